"""Which destinations an agent dials: rules by network, host name and port, and what it denies without any rule.

Judged is the address that is connected to, after the lookup. A name is only what the client says: a rule by name denies
it, and answers `others`, but does not open what is denied by address.
"""

from typing import Final

from umbilical.konnectivity import dial_failure
from umbilical.konnectivity.networks import Network, parse_network

OTHERS: Final = "others"
"""In a deny rule: every destination that no allow rule matches."""
LOCAL: Final = "local"
"""In a deny rule: what only the agent's own machine should reach; always denied by our own agent."""

LINK_LOCAL: Final = "link-local"
LOOPBACK: Final = "loopback"
OWN_PORT: Final = "own-port"
BY_RULE: Final = "rule"
KINDS: Final = (LINK_LOCAL, LOOPBACK, OWN_PORT, BY_RULE, OTHERS)

_WORDS: Final = {
    LINK_LOCAL: "link-local addresses are denied by default",
    LOOPBACK: "the agent's loopback is denied by default",
    OWN_PORT: "the agent's health and admin ports are denied by default",
    OTHERS: "no rule allows it",
}
_LAST_PORT: Final = 65535
_BITS: Final = {4: 32, 6: 128}
_MAPPED: Final = bytes(10) + b"\xff\xff"
_LOOPBACK_4: Final = bytes((127, 0, 0, 1))
_LOOPBACK_6: Final = bytes(15) + b"\x01"


class Refusal:
    """Why a destination is denied: its kind for metrics, and words for the client."""

    def __init__(self, kind: str, words: str) -> None:
        self.kind: Final = kind
        self.words: Final = words


class Rule:
    """One rule: a network, a host name or everything, and ports."""

    def __init__(self, text: str, network: Network | None, name: str, first_port: int, last_port: int) -> None:
        self.text: Final = text
        self.name: Final = name
        """In lower case; with a dot in front it matches every name below; empty: none."""
        self._network: Final = network
        self._first_port: Final = first_port
        self._last_port: Final = last_port

    def matches_name(self, host: str, port: int) -> bool:
        if not self.name or not self._first_port <= port <= self._last_port:
            return False
        return host.endswith(self.name) if self.name[0] == "." else host == self.name

    def matches_address(self, packed: bytes, port: int) -> bool:
        if self.name or not self._first_port <= port <= self._last_port:
            return False
        if self._network is None:
            return True
        version, length, prefix = self._network
        bits = len(packed) * 8
        return _BITS[version] == bits and int.from_bytes(packed, "big") >> (bits - length) == prefix


class Destinations:
    """The rules of one agent; immutable."""

    def __init__(
        self,
        allowed: tuple[Rule, ...] = (),
        denied: tuple[Rule, ...] = (),
        *,
        denies_local: bool = False,
        denies_others: bool = False,
    ) -> None:
        self._allowed: Final = allowed
        self._denied: Final = denied
        self._denies_local: Final = denies_local
        self._denies_others: Final = denies_others
        self.judges_names: Final = any(rule.name for rule in denied)
        self.judges: Final = bool(denied) or denies_local or denies_others

    def refusal_of_name(self, host: str, port: int) -> Refusal | None:
        """Judge what the client asks for, before any lookup."""
        plain = plain_name(host)
        for rule in self._denied:
            if rule.matches_name(plain, port):
                return Refusal(BY_RULE, f"rule: deny {rule.text}")
        return None

    def refusal(self, host: str, packed: bytes, port: int, *, is_own_port: bool) -> Refusal | None:
        """Judge an address in network byte order; `is_own_port`: this agent's health or admin server is there."""
        address = connected_to(packed)
        for rule in self._denied:
            if rule.matches_address(address, port):
                return Refusal(BY_RULE, f"rule: deny {rule.text}")
        if any(rule.matches_address(address, port) for rule in self._allowed):
            return None
        if address == _LOOPBACK_4 and port == dial_failure.PROBE_PORT:
            return None  # our own clients dial it to see whether the tunnel works
        kind = _local_kind(address, is_own_port) if self._denies_local else ""
        if not kind and self._denies_others:
            plain = plain_name(host)
            kind = "" if any(rule.matches_name(plain, port) for rule in self._allowed) else OTHERS
        return Refusal(kind, _WORDS[kind]) if kind else None


def plain_name(host: str) -> str:
    """A host name as rules have it: lower case, without the dot of the root."""
    return host.lower().removesuffix(".")


def connected_to(packed: bytes) -> bytes:
    """The address that a connect reaches: IPv4-mapped is IPv4, and the unspecified address is the loopback."""
    if len(packed) == 16 and packed[:12] == _MAPPED:
        packed = packed[12:]
    if not any(packed):
        return _LOOPBACK_4 if len(packed) == 4 else _LOOPBACK_6
    return packed


def _local_kind(address: bytes, is_own_port: bool) -> str:
    if len(address) == 4:
        if address[0] == 127:
            return LOOPBACK
        if address[0] == 169 and address[1] == 254:
            return LINK_LOCAL
    elif address == _LOOPBACK_6:
        return LOOPBACK
    elif address[0] == 0xFE and address[1] & 0xC0 == 0x80:
        return LINK_LOCAL
    return OWN_PORT if is_own_port else ""


def parse_rule(text: str) -> Rule:
    """Read ADDRESS, NETWORK, NAME, .SUFFIX or *, each with :PORT or :FIRST-LAST behind it. Raises ValueError."""
    target, ports = _split(text)
    first, last = _ports(ports) if ports else (0, _LAST_PORT)
    if target in ("", "*"):
        if not ports and not target:
            raise ValueError("it is empty")
        return Rule(text, None, "", first, last)
    if "/" in target or ":" in target or target.replace(".", "").isdigit():
        network = parse_network(target if "/" in target else f"{target}/{128 if ':' in target else 32}")
        if network is None:
            raise ValueError(f"{target!r} is neither an address nor a network")
        return Rule(text, network, "", first, last)
    name = plain_name(target[1:] if target.startswith("*.") else target)
    labels = name.removeprefix(".").split(".")
    if not all(label and label.isascii() and label.replace("-", "").replace("_", "").isalnum() for label in labels):
        raise ValueError(f"{target!r} is not a host name")
    return Rule(text, None, name, first, last)


def _split(text: str) -> tuple[str, str]:
    """Target and ports; brackets around IPv6, which has colons of its own."""
    if text.startswith("["):
        target, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or rest == ":":
            raise ValueError("write IPv6 with ports as [ADDRESS/LENGTH]:PORT")
        return target, rest[1:]
    if text.count(":") > 1:
        return text, ""
    target, colon, ports = text.partition(":")
    if colon and not ports:
        raise ValueError("no port behind the colon")
    return target, ports


def _ports(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    numbers = [int(part) for part in (first, last if dash else first) if _is_port(part)]
    if len(numbers) < 2 or numbers[0] > numbers[1]:
        raise ValueError(f"{text!r} is neither a port nor a range of ports such as 8000-8999")
    return numbers[0], numbers[1]


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= _LAST_PORT


def parse_destinations(allowed: tuple[str, ...], denied: tuple[str, ...], lines: str) -> Destinations:
    """Rules of the options, and of a file with lines `allow RULE` and `deny RULE`. Raises ValueError."""
    allow, deny = list(allowed), list(denied)
    for number, line in enumerate(lines.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0] not in ("allow", "deny"):
            raise ValueError(f"line {number}: {line.strip()!r} is neither `allow RULE` nor `deny RULE`")
        try:
            check_rule(words[1], is_deny=words[0] == "deny")
        except ValueError as fault:
            raise ValueError(f"line {number}: {fault}") from None
        (allow if words[0] == "allow" else deny).append(words[1])
    return Destinations(
        tuple(rule for text in allow if (rule := check_rule(text, is_deny=False))),
        tuple(rule for text in deny if (rule := check_rule(text, is_deny=True))),
        denies_local=LOCAL in deny,
        denies_others=OTHERS in deny,
    )


def check_rule(text: str, *, is_deny: bool) -> Rule | None:
    """Read a rule; None for the two words, which are no rules. Raises ValueError."""
    if text in (LOCAL, OTHERS):
        if is_deny:
            return None
        raise ValueError(f"{text!r} can only be denied")
    return parse_rule(text)
