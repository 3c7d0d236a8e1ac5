"""Decoded infrastructure files: host plan, libvirt's XML, DNS zones, HAProxy's configuration."""

import json
import posixpath
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from umbilical.hardway.artifacts.infrastructure import places
from umbilical.hardway.config.cluster import MachinesKind
from umbilical.hardway.lint.facts import LintFacts, Unreadable

_SECTIONS = ("global", "defaults", "frontend", "backend", "listen")


@dataclass(frozen=True)
class BalancerServer:
    name: str
    address: str
    port: int
    words: tuple[str, ...]
    """Options after the address; those of `default-server` come first."""

    @property
    def is_checked(self) -> bool:
        return "check" in self.words

    @property
    def is_checked_over_tls(self) -> bool:
        return "check-ssl" in self.words or "ssl" in self.words

    @property
    def check_port(self) -> int:
        """Port of the health check."""
        if "port" in self.words:
            text = self.words[self.words.index("port") + 1 :][:1]
            return int(text[0]) if text and text[0].isdigit() else self.port
        return self.port


@dataclass
class BalancerSection:
    kind: str
    name: str
    lines: list[list[str]] = field(default_factory=list)

    def values(self, *words: str) -> list[list[str]]:
        """Return the rest of each line that begins with these words."""
        return [line[len(words) :] for line in self.lines if line[: len(words)] == list(words)]


@dataclass(frozen=True)
class BalancerConfig:
    sections: tuple[BalancerSection, ...]

    def of_kind(self, *kinds: str) -> list[BalancerSection]:
        return [section for section in self.sections if section.kind in kinds]

    def binds(self) -> list[tuple[BalancerSection, str, int]]:
        """List every listening socket except that of the statistics."""
        found = []
        for section in self.of_kind("frontend", "listen"):
            if not section.values("stats"):
                found += [(section, *_address(line[0])) for line in section.values("bind") if line]
        return found

    def backend_at(self, port: int) -> list[BalancerSection]:
        """Return the backends that serve a port."""
        names = {
            word for section, _, bound in self.binds() if bound == port for word in _names(section, "default_backend")
        }
        return [
            section
            for section in self.of_kind("backend", "listen")
            if section.name in names or (section.kind == "listen" and port in self._ports(section))
        ]

    def servers(self, section: BalancerSection) -> list[BalancerServer]:
        usual = [word for part in self.of_kind("defaults") for word in _words(part, "default-server")]
        own = _words(section, "default-server")
        found = []
        for line in section.values("server"):
            if len(line) >= 2:
                address, port = _address(line[1])
                found.append(BalancerServer(line[0], address, port, (*usual, *own, *line[2:])))
        return found

    def _ports(self, section: BalancerSection) -> list[int]:
        return [port for bound, _, port in self.binds() if bound is section]


def read_balancer(text: str) -> BalancerConfig:
    """Read a configuration without comments and without lines before the first section."""
    sections: list[BalancerSection] = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        if words[0] in _SECTIONS:
            sections.append(BalancerSection(words[0], words[1] if len(words) > 1 else ""))
        elif sections:
            sections[-1].lines.append(words)
    return BalancerConfig(tuple(sections))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0


def _names(section: BalancerSection, keyword: str) -> list[str]:
    return [line[0] for line in section.values(keyword) if line]


def _words(section: BalancerSection, keyword: str) -> list[str]:
    return [word for line in section.values(keyword) for word in line]


BALANCERS = (places.HAPROXY_BOOTSTRAP, places.HAPROXY_FINAL)


def libvirt(facts: LintFacts) -> str | None:
    """Return why a rule about virtual machines does not apply."""
    return None if facts.cluster.machines is MachinesKind.LIBVIRT else "there are no virtual machines (machines: lab)"


def balancers(facts: LintFacts) -> dict[str, BalancerConfig]:
    return {path: read_balancer(facts.text(path)) for path in BALANCERS}


def host_plan(facts: LintFacts) -> dict[str, Any]:
    """Read host-plan.json. Raises Unreadable: it is missing or malformed."""
    try:
        plan = json.loads(facts.content(places.HOST_PLAN))
    except ValueError as error:
        raise Unreadable(f"{places.HOST_PLAN} is not JSON: {error}") from None
    actions = plan.get("actions") if isinstance(plan, dict) else None
    if not isinstance(actions, list) or not all(_is_action(action) for action in actions):
        raise Unreadable(f"{places.HOST_PLAN} has no list of actions with id, check, do and undo")
    return dict(plan)


def host_commands(facts: LintFacts) -> list[str]:
    """List the `do` commands of the host plan, in order."""
    return [str(action["do"]) for action in host_plan(facts)["actions"]]


def xml(facts: LintFacts, path: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(facts.content(path))
    except ElementTree.ParseError as error:
        raise Unreadable(f"{path} is not XML: {error}") from None


def domains(facts: LintFacts) -> dict[str, ElementTree.Element]:
    """Read the libvirt domain of every node."""
    paths = [places.domain_file(node) for node in facts.cluster.nodes]
    return {path: xml(facts, path) for path in paths}


def is_below(path: str, folder: str) -> bool:
    whole = posixpath.normpath(path)
    return whole.startswith(posixpath.normpath(folder).rstrip("/") + "/")


def zone_records(facts: LintFacts, path: str) -> list[tuple[str, str, str]]:
    """Read a zone file as (name, type, value); names have no trailing dot."""
    found = []
    for line in facts.text(path).splitlines():
        words = line.split()
        if len(words) >= 4 and words[1] == "IN":
            found.append((words[0].rstrip("."), words[2], " ".join(words[3:]).rstrip(".")))
    return found


def _is_action(action: object) -> bool:
    return isinstance(action, dict) and all(isinstance(action.get(key), str) for key in ("id", "check", "do", "undo"))
