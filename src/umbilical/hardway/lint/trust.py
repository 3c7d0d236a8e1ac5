"""Which certificate is shown and checked by whom with what, by the table and by flags; and who signs tokens."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.certificates import anchor, cluster_rows
from umbilical.hardway.lint.facts import LintFacts, Unreadable
from umbilical.hardway.lint.pods import CONTROLLER_MANAGER, ETCD, KUBE_APISERVER, ProgramPod, programs
from umbilical.pki.authority import decode_own_key, public_half
from umbilical.pki.certificate import Certificate
from umbilical.pki.judgement import chain_trouble
from umbilical.pki.pem import BundleError, public_key_block
from umbilical.pki.profiles import Usage, parse_address


@dataclass(frozen=True)
class CertificateUse:
    """Somebody shows a certificate to somebody who knows others by a bundle."""

    shown: str
    """Both are artifacts."""
    checked_with: str
    purpose: Usage


def chain_faults(facts: LintFacts) -> Iterator[str]:
    """Name every meeting that would end in a refusal."""
    for meeting in dict.fromkeys((*_by_table(facts), *_by_flags(facts))):
        leaf = facts.certificates(meeting.shown)[0]
        trouble = chain_trouble(leaf, facts.certificates(meeting.checked_with), meeting.purpose, facts.now)
        if trouble:
            yield f"{meeting.shown} against {meeting.checked_with}: {trouble}"


def _by_table(facts: LintFacts) -> Iterator[CertificateUse]:
    for row in cluster_rows(facts.cluster):
        # By its signer too: what a signer's file and a bundle say must not drift apart.
        for trusted in (*row.verified_by, *filter(None, [row.signer])):
            yield from _meetings(layout.certificate(row.id), anchor(trusted), row.usages)


def _by_flags(facts: LintFacts) -> Iterator[CertificateUse]:
    servers, members = programs(facts, KUBE_APISERVER), programs(facts, ETCD)
    for member in members:
        trusted = member.file("trusted-ca-file")
        yield from _meetings(member.file("cert-file"), trusted, (Usage.CLIENT,))
        yield from (CertificateUse(server.file("etcd-certfile"), trusted, Usage.CLIENT) for server in servers)
        yield from _peers(member, members)
    for server in servers:
        yield from _server_meetings(server, members)
        yield from _future_kubelets(server, programs(facts, CONTROLLER_MANAGER))


def _peers(member: ProgramPod, members: Iterable[ProgramPod]) -> Iterator[CertificateUse]:
    for other in members:
        yield from _meetings(other.file("peer-cert-file"), member.file("peer-trusted-ca-file"), tuple(Usage))


def _server_meetings(server: ProgramPod, members: Iterable[ProgramPod]) -> Iterator[CertificateUse]:
    for member in members:
        yield CertificateUse(member.file("cert-file"), server.file("etcd-cafile"), Usage.SERVER)
    yield CertificateUse(
        server.file("proxy-client-cert-file"), server.file("requestheader-client-ca-file"), Usage.CLIENT
    )
    # Kubelets get the same bundle as their clientCAFile.
    yield CertificateUse(server.file("kubelet-client-certificate"), server.file("client-ca-file"), Usage.CLIENT)


def _future_kubelets(server: ProgramPod, controllers: Iterable[ProgramPod]) -> Iterator[CertificateUse]:
    """Kubelets' certificates are signed later: who will sign them must be known already."""
    for one in controllers:
        yield CertificateUse(
            one.file("cluster-signing-cert-file"), server.file("kubelet-certificate-authority"), Usage.SERVER
        )
        yield CertificateUse(one.file("cluster-signing-cert-file"), server.file("client-ca-file"), Usage.CLIENT)


def _meetings(shown: str, checked_with: str, purposes: Iterable[Usage]) -> Iterator[CertificateUse]:
    return (CertificateUse(shown, checked_with, purpose) for purpose in purposes)


def token_key_faults(facts: LintFacts) -> Iterator[str]:
    servers = programs(facts, KUBE_APISERVER)
    bound = {server.file("service-account-signing-key-file") for server in servers}
    lasting = {one.file("service-account-private-key-file") for one in programs(facts, CONTROLLER_MANAGER)}
    signing = bound | lasting
    if {_own(facts, path) for path in bound} & {_own(facts, path) for path in lasting}:
        yield f"kube-apiserver and controller-manager sign with the same key: {', '.join(sorted(signing))}"
    for server in servers:
        known = {_public(facts, server.artifact(path)) for path in server.values("service-account-key-file")}
        for path in sorted(signing):
            if _own(facts, path) not in known:
                yield f"{server.path} has not the public half of {path}"


def _public(facts: LintFacts, path: str) -> bytes:
    try:
        return public_key_block(facts.content(path))
    except BundleError as error:
        raise Unreadable(f"{path}: {error}") from None


def _own(facts: LintFacts, path: str) -> bytes:
    try:
        return public_half(decode_own_key(facts.content(path)))
    except BundleError as error:
        raise Unreadable(f"{path}: {error}") from None


@dataclass(frozen=True)
class ShownCertificate:
    path: str
    """Of the artifact."""
    certificate: Certificate

    def covers(self, name: str) -> bool:
        address = parse_address(name)
        if address is not None:
            return address in self.certificate.ip_addresses
        return name in self.certificate.dns_names


@dataclass(frozen=True)
class ServingPairs:
    program: ProgramPod
    default: ShownCertificate
    by_name: dict[str, ShownCertificate]

    def shown_for(self, name: str) -> ShownCertificate:
        """Say what whoever dials this name or address gets to see."""
        return self.by_name.get(name, self.default)

    @property
    def all(self) -> list[ShownCertificate]:
        return list({shown.path: shown for shown in (self.default, *self.by_name.values())}.values())


def serving_pairs(facts: LintFacts) -> list[ServingPairs]:
    """Read the flags of every kube-apiserver, the bootstrap node's and our own on masters."""
    return [_pairs(program) for program in programs(facts, KUBE_APISERVER)]


def _pairs(program: ProgramPod) -> ServingPairs:
    by_name: dict[str, ShownCertificate] = {}
    for value in program.values("tls-sni-cert-key"):
        files, _, names = value.partition(":")
        shown = _shown(program, program.artifact(files.partition(",")[0]))
        # kube-apiserver takes the certificate's own names where none are given; addresses are not among those.
        for name in names.split(",") if names else shown.certificate.dns_names:
            by_name.setdefault(name, shown)
    return ServingPairs(program, _shown(program, program.file("tls-cert-file")), by_name)


def _shown(program: ProgramPod, path: str) -> ShownCertificate:
    return ShownCertificate(path, program.facts.certificates(path)[0])
