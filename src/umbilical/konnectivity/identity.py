"""What an identity may do: which identifiers an agent may announce, and which clients may open tunnels.

An identity is what a peer has proved: CN=, O=, DNS= or URI= of its certificate, SA=namespace/name of its token.
Identifiers are not proved: without rules any agent can announce any address and get its traffic.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from umbilical.konnectivity.metadata import AgentIdentifiers
from umbilical.konnectivity.networks import Network, covers, parse_network

KINDS: Final = ("CN", "O", "DNS", "URI", "SA")
ANYTHING: Final = "*"
AGENT_NAMES: Final = ("konnectivity-agent", "konnectivity-agent-")
"""The common name of agents' certificates, and the prefix for single agents. They may not open tunnels."""

_ADDRESS_TYPES: Final = ("ipv4", "ipv6", "host")
"""Routing treats them alike: HyperShift announces IPv6 addresses as ipv4 (see routing.py)."""


class Allowance:
    """What one identity may announce."""

    def __init__(self) -> None:
        self.anything = False
        self.default_route = False
        self.addresses: set[str] = set()
        self.networks: list[Network] = []

    def allow(self, word: str) -> None:
        """Raises ValueError for a word that is not an identifier."""
        if word == ANYTHING:
            self.anything = True
            return
        kind, _, value = word.partition("=")
        if kind == "default-route" and value == "true":
            self.default_route = True
        elif kind in _ADDRESS_TYPES and value:
            self.addresses.add(value)
        elif kind == "cidr":
            network = parse_network(value)
            if network is None:
                raise ValueError(f"{value!r} is not a network")
            self.networks.append(network)
        else:
            raise ValueError(f"{word!r} is not an identifier")

    def forbidden(self, identifiers: AgentIdentifiers) -> str:
        """The first identifier that is not allowed; empty if all are."""
        if self.anything:
            return ""
        if identifiers.default_route and not self.default_route:
            return "default-route=true"
        named = (("ipv4", identifiers.ipv4), ("ipv6", identifiers.ipv6), ("host", identifiers.host))
        for kind, values in named:
            for value in values:
                if value and value not in self.addresses and not self._holds(_as_network(value)):
                    return f"{kind}={value}"
        for value in identifiers.cidr:
            if not self._holds(parse_network(value)):
                return f"cidr={value}"
        return ""

    def _holds(self, network: Network | None) -> bool:
        if network is None:
            return False
        return any(covers(allowed, network) for allowed in self.networks)


def _as_network(address: str) -> Network | None:
    return parse_network(f"{address}/{128 if ':' in address else 32}")


class AgentRules:
    """Which identity may announce what; an agent without a rule may not connect."""

    def __init__(self) -> None:
        self._allowances: dict[str, Allowance] = {}

    def allow(self, identity: str, words: Iterable[str]) -> None:
        """Add to what an identity may announce; raises ValueError."""
        check_identity(identity)
        allowance = self._allowances.setdefault(identity, Allowance())
        for word in words:
            allowance.allow(word)

    def refusal(self, proved: Sequence[str], identifiers: AgentIdentifiers) -> str:
        """Why an agent that has proved these identities is not let in; empty if it is."""
        forbidden = ""
        for identity in proved:
            allowance = self._allowances.get(identity)
            if allowance is None:
                continue
            forbidden = allowance.forbidden(identifiers)
            if not forbidden:
                return ""
        if forbidden:
            return f"the identity of this agent does not allow the identifier {forbidden}"
        return f"no rule lets an agent with the identity {_listed(proved)} connect"


def parse_agent_rules(text: str) -> AgentRules:
    """Read one rule per line: an identity, then the identifiers it may announce. Raises ValueError."""
    rules = AgentRules()
    for number, line in enumerate(text.splitlines(), 1):
        words = _words(line)
        if not words:
            continue
        try:
            rules.allow(words[0], words[1:])
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return rules


def _words(line: str) -> list[str]:
    """Words before a comment. `#` begins one only at the start of a word."""
    words: list[str] = []
    for word in line.split():
        if word[0] == "#":
            break
        words.append(word)
    return words


def parse_identities(text: str) -> tuple[str, ...]:
    """Read identities with commas between them. Raises ValueError."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for identity in found:
        check_identity(identity)
    return found


def check_identity(text: str) -> None:
    kind, _, value = text.partition("=")
    if kind not in KINDS or not value:
        raise ValueError(f"{text!r} is not an identity: use one of {', '.join(f'{kind}=…' for kind in KINDS)}")


def client_refusal(proved: Sequence[str], allowed: Sequence[str]) -> str:
    """Why a client with these identities may not open tunnels; empty if it may.

    Where `allowed` is empty, all may except agents: with one CA for both, every node of a cluster has a certificate
    that would be accepted here too.
    """
    if allowed:
        if any(identity in allowed for identity in proved):
            return ""
        return f"a client with the identity {_listed(proved)} may not open tunnels"
    for identity in proved:
        if identity[:3] == "CN=" and _is_agent(identity[3:]):
            return f"{identity} is an agent's certificate, and agents may not open tunnels"
    return ""


def _is_agent(common_name: str) -> bool:
    exact, prefix = AGENT_NAMES
    return common_name == exact or common_name.startswith(prefix)


def _listed(proved: Sequence[str]) -> str:
    return ", ".join(proved) or "none"
