"""Which certificate is checked by whom with what: as the table says, and as the flags of the programs say."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.certificates import anchor, cluster_rows
from umbilical.hardway.lint.facts import Facts
from umbilical.hardway.lint.programs import CONTROLLER_MANAGER, ETCD, KUBE_APISERVER, Program, programs
from umbilical.pki.judgement import chain_trouble
from umbilical.pki.profiles import Usage


@dataclass(frozen=True)
class Meeting:
    """Somebody shows a certificate to somebody who knows others by a bundle."""

    shown: str
    """Both are artifacts."""
    checked_with: str
    purpose: Usage


def chain_faults(facts: Facts) -> Iterator[str]:
    """Name every meeting that would end in a refusal."""
    for meeting in dict.fromkeys((*_by_table(facts), *_by_flags(facts))):
        leaf = facts.certificates(meeting.shown)[0]
        trouble = chain_trouble(leaf, facts.certificates(meeting.checked_with), meeting.purpose, facts.now)
        if trouble:
            yield f"{meeting.shown} against {meeting.checked_with}: {trouble}"


def _by_table(facts: Facts) -> Iterator[Meeting]:
    for row in cluster_rows(facts.cluster):
        # By its signer too: what a signer's file and a bundle say must not drift apart.
        for trusted in (*row.verified_by, *filter(None, [row.signer])):
            yield from _meetings(layout.certificate(row.id), anchor(trusted), row.usages)


def _by_flags(facts: Facts) -> Iterator[Meeting]:
    servers, members = programs(facts, KUBE_APISERVER), programs(facts, ETCD)
    for member in members:
        trusted = member.file("trusted-ca-file")
        yield from _meetings(member.file("cert-file"), trusted, (Usage.CLIENT,))
        yield from (Meeting(server.file("etcd-certfile"), trusted, Usage.CLIENT) for server in servers)
        yield from _peers(member, members)
    for server in servers:
        yield from _server_meetings(server, members)
        yield from _future_kubelets(server, programs(facts, CONTROLLER_MANAGER))


def _peers(member: Program, members: Iterable[Program]) -> Iterator[Meeting]:
    for other in members:
        yield from _meetings(other.file("peer-cert-file"), member.file("peer-trusted-ca-file"), tuple(Usage))


def _server_meetings(server: Program, members: Iterable[Program]) -> Iterator[Meeting]:
    for member in members:
        yield Meeting(member.file("cert-file"), server.file("etcd-cafile"), Usage.SERVER)
    yield Meeting(server.file("proxy-client-cert-file"), server.file("requestheader-client-ca-file"), Usage.CLIENT)
    # Kubelets get the same bundle as their clientCAFile.
    yield Meeting(server.file("kubelet-client-certificate"), server.file("client-ca-file"), Usage.CLIENT)


def _future_kubelets(server: Program, controllers: Iterable[Program]) -> Iterator[Meeting]:
    """Kubelets' certificates are signed later: who will sign them must be known already."""
    for one in controllers:
        yield Meeting(one.file("cluster-signing-cert-file"), server.file("kubelet-certificate-authority"), Usage.SERVER)
        yield Meeting(one.file("cluster-signing-cert-file"), server.file("client-ca-file"), Usage.CLIENT)


def _meetings(shown: str, checked_with: str, purposes: Iterable[Usage]) -> Iterator[Meeting]:
    return (Meeting(shown, checked_with, purpose) for purpose in purposes)
