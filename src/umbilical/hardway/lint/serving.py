"""Which certificate kube-apiserver shows to whom: by name the one that a flag maps it to, else its default."""

import ipaddress
from dataclasses import dataclass

from umbilical.hardway.lint.facts import Facts
from umbilical.hardway.lint.programs import KUBE_APISERVER, Program, programs
from umbilical.manifests.objects import IpAddress
from umbilical.pki.certificate import Certificate


@dataclass(frozen=True)
class Shown:
    path: str
    """Of the artifact."""
    certificate: Certificate

    def covers(self, name: str) -> bool:
        address = _address(name)
        if address is not None:
            return address in self.certificate.ip_addresses
        return name in self.certificate.dns_names


@dataclass(frozen=True)
class ServingPairs:
    program: Program
    default: Shown
    by_name: dict[str, Shown]

    def shown_for(self, name: str) -> Shown:
        """Say what whoever dials this name or address gets to see."""
        return self.by_name.get(name, self.default)

    @property
    def all(self) -> list[Shown]:
        return list({shown.path: shown for shown in (self.default, *self.by_name.values())}.values())


def serving_pairs(facts: Facts) -> list[ServingPairs]:
    """Read the flags of every kube-apiserver, the bootstrap node's and our own on masters."""
    return [_pairs(program) for program in programs(facts, KUBE_APISERVER)]


def _pairs(program: Program) -> ServingPairs:
    by_name: dict[str, Shown] = {}
    for value in program.values("tls-sni-cert-key"):
        files, _, names = value.partition(":")
        shown = _shown(program, program.artifact(files.partition(",")[0]))
        # kube-apiserver takes the certificate's own names where none are given; addresses are not among those.
        for name in names.split(",") if names else shown.certificate.dns_names:
            by_name.setdefault(name, shown)
    return ServingPairs(program, _shown(program, program.file("tls-cert-file")), by_name)


def _shown(program: Program, path: str) -> Shown:
    return Shown(path, program.facts.certificates(path)[0])


def _address(name: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
