"""HAProxy's configuration as far as rules read it: sections, who is bound where, and the servers behind it."""

from dataclasses import dataclass, field

_SECTIONS = ("global", "defaults", "frontend", "backend", "listen")


@dataclass(frozen=True)
class Server:
    name: str
    address: str
    port: int
    words: tuple[str, ...]
    """What follows the address, with what `default-server` adds in front."""

    @property
    def is_checked(self) -> bool:
        return "check" in self.words

    @property
    def is_asked_over_tls(self) -> bool:
        return "check-ssl" in self.words or "ssl" in self.words

    @property
    def check_port(self) -> int:
        """Where its health is asked."""
        if "port" in self.words:
            text = self.words[self.words.index("port") + 1 :][:1]
            return int(text[0]) if text and text[0].isdigit() else self.port
        return self.port


@dataclass
class Section:
    kind: str
    name: str
    lines: list[list[str]] = field(default_factory=list)

    def values(self, *words: str) -> list[list[str]]:
        """Return what follows these words, of each line that begins with them."""
        return [line[len(words) :] for line in self.lines if line[: len(words)] == list(words)]


@dataclass(frozen=True)
class Balancer:
    sections: tuple[Section, ...]

    def of_kind(self, *kinds: str) -> list[Section]:
        return [section for section in self.sections if section.kind in kinds]

    def binds(self) -> list[tuple[Section, str, int]]:
        """List every socket that it listens on, but those of the statistics."""
        found = []
        for section in self.of_kind("frontend", "listen"):
            if not section.values("stats"):
                found += [(section, *_address(line[0])) for line in section.values("bind") if line]
        return found

    def backend_at(self, port: int) -> list[Section]:
        """Return where the connections to a port go."""
        names = {
            word for section, _, bound in self.binds() if bound == port for word in _names(section, "default_backend")
        }
        return [
            section
            for section in self.of_kind("backend", "listen")
            if section.name in names or (section.kind == "listen" and port in self._ports(section))
        ]

    def servers(self, section: Section) -> list[Server]:
        usual = [word for part in self.of_kind("defaults") for word in _words(part, "default-server")]
        own = _words(section, "default-server")
        found = []
        for line in section.values("server"):
            if len(line) >= 2:
                address, port = _address(line[1])
                found.append(Server(line[0], address, port, (*usual, *own, *line[2:])))
        return found

    def _ports(self, section: Section) -> list[int]:
        return [port for bound, _, port in self.binds() if bound is section]


def read_balancer(text: str) -> Balancer:
    """Read a configuration. What stands before the first section is left out, as are comments."""
    sections: list[Section] = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        if words[0] in _SECTIONS:
            sections.append(Section(words[0], words[1] if len(words) > 1 else ""))
        elif sections:
            sections[-1].lines.append(words)
    return Balancer(tuple(sections))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0


def _names(section: Section, keyword: str) -> list[str]:
    return [line[0] for line in section.values(keyword) if line]


def _words(section: Section, keyword: str) -> list[str]:
    return [word for line in section.values(keyword) for word in line]
