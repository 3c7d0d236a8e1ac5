"""Which CA verifies each certificate, by the table and by the programs' flags; and which keys sign tokens."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.certificates import anchor, cluster_rows
from umbilical.hardway.lint.facts import LintFacts, Unreadable
from umbilical.hardway.lint.pods import CONTROLLER_MANAGER, ETCD, KUBE_APISERVER, ProgramPod, programs
from umbilical.pki.authority import decode_own_key, public_half
from umbilical.pki.certificate import Certificate
from umbilical.pki.pem import BundleError, public_key_block
from umbilical.pki.profiles import Usage, parse_address
from umbilical.pki.validation import chain_trouble


@dataclass(frozen=True)
class CertificateMatch:
    """A certificate that a peer verifies with a CA file; both are paths of artifacts."""

    shown: str
    checked_with: str
    purpose: Usage


def chain_faults(facts: LintFacts) -> Iterator[str]:
    """List every certificate that its peer would reject."""
    for use in dict.fromkeys((*_by_table(facts), *_by_flags(facts))):
        leaf = facts.certificates(use.shown)[0]
        trouble = chain_trouble(leaf, facts.certificates(use.checked_with), use.purpose, facts.now)
        if trouble:
            yield f"{use.shown} against {use.checked_with}: {trouble}"


def _by_table(facts: LintFacts) -> Iterator[CertificateMatch]:
    for row in cluster_rows(facts.cluster):
        # Its signer too: the signer's file and the bundle must agree.
        for trusted in (*row.verified_by, *filter(None, [row.signer])):
            yield from _uses(layout.certificate(row.id), anchor(trusted), row.usages)


def _by_flags(facts: LintFacts) -> Iterator[CertificateMatch]:
    servers, members = programs(facts, KUBE_APISERVER), programs(facts, ETCD)
    for member in members:
        trusted = member.file("trusted-ca-file")
        yield from _uses(member.file("cert-file"), trusted, (Usage.CLIENT,))
        yield from (CertificateMatch(server.file("etcd-certfile"), trusted, Usage.CLIENT) for server in servers)
        yield from _peers(member, members)
    for server in servers:
        yield from _server_uses(server, members)
        yield from _future_kubelets(server, programs(facts, CONTROLLER_MANAGER))


def _peers(member: ProgramPod, members: Iterable[ProgramPod]) -> Iterator[CertificateMatch]:
    for other in members:
        yield from _uses(other.file("peer-cert-file"), member.file("peer-trusted-ca-file"), tuple(Usage))


def _server_uses(server: ProgramPod, members: Iterable[ProgramPod]) -> Iterator[CertificateMatch]:
    for member in members:
        yield CertificateMatch(member.file("cert-file"), server.file("etcd-cafile"), Usage.SERVER)
    yield CertificateMatch(
        server.file("proxy-client-cert-file"), server.file("requestheader-client-ca-file"), Usage.CLIENT
    )
    # Kubelets get the same bundle as their clientCAFile.
    yield CertificateMatch(server.file("kubelet-client-certificate"), server.file("client-ca-file"), Usage.CLIENT)


def _future_kubelets(server: ProgramPod, controllers: Iterable[ProgramPod]) -> Iterator[CertificateMatch]:
    """Kubelets' certificates are signed later: check that their signer is trusted."""
    for one in controllers:
        yield CertificateMatch(
            one.file("cluster-signing-cert-file"), server.file("kubelet-certificate-authority"), Usage.SERVER
        )
        yield CertificateMatch(one.file("cluster-signing-cert-file"), server.file("client-ca-file"), Usage.CLIENT)


def _uses(shown: str, checked_with: str, purposes: Iterable[Usage]) -> Iterator[CertificateMatch]:
    return (CertificateMatch(shown, checked_with, purpose) for purpose in purposes)


def token_key_faults(facts: LintFacts) -> Iterator[str]:
    servers = programs(facts, KUBE_APISERVER)
    bound = {server.file("service-account-signing-key-file") for server in servers}
    lasting = {one.file("service-account-private-key-file") for one in programs(facts, CONTROLLER_MANAGER)}
    signing = bound | lasting
    if {_own(facts, path) for path in bound} & {_own(facts, path) for path in lasting}:
        yield f"kube-apiserver and controller-manager sign tokens with the same key: {', '.join(sorted(signing))}"
    for server in servers:
        known = {_public(facts, server.artifact(path)) for path in server.values("service-account-key-file")}
        for path in sorted(signing):
            if _own(facts, path) not in known:
                yield f"{server.path} lacks the public key of {path}"


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
    """Path of the artifact."""
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
        """Return the certificate for clients that dial this name or address."""
        return self.by_name.get(name, self.default)

    @property
    def all(self) -> list[ShownCertificate]:
        return list({shown.path: shown for shown in (self.default, *self.by_name.values())}.values())


def serving_pairs(facts: LintFacts) -> list[ServingPairs]:
    """Read the serving certificates from the flags of every kube-apiserver."""
    return [_pairs(program) for program in programs(facts, KUBE_APISERVER)]


def _pairs(program: ProgramPod) -> ServingPairs:
    by_name: dict[str, ShownCertificate] = {}
    for value in program.values("tls-sni-cert-key"):
        files, _, names = value.partition(":")
        shown = _shown(program, program.artifact(files.partition(",")[0]))
        # Without names in the flag kube-apiserver uses the certificate's DNS names, but not its addresses.
        for name in names.split(",") if names else shown.certificate.dns_names:
            by_name.setdefault(name, shown)
    return ServingPairs(program, _shown(program, program.file("tls-cert-file")), by_name)


def _shown(program: ProgramPod, path: str) -> ShownCertificate:
    return ShownCertificate(path, program.facts.certificates(path)[0])
