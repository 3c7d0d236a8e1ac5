"""Which agent gets a dial: strategies in their configured order; in each the nearest, then the least loaded agent.

One `Roster` per strategy holds groups of links; a link is in all rosters at once.
"""

from typing import Final

from umbilical.konnectivity.links import AgentLink, Group
from umbilical.konnectivity.networks import Network, NetworkTable, parse_network

DEFAULT: Final = "default"
DEST_HOST: Final = "destHost"
DEFAULT_ROUTE: Final = "defaultRoute"
CIDR: Final = "cidr"
"""Ours: upstream accepts `cidr` identifiers and does not use them."""
STRATEGIES: Final = (DEST_HOST, DEFAULT, DEFAULT_ROUTE, CIDR)


class Roster:
    """The links that one strategy may choose."""

    def __init__(self, strategy: str) -> None:
        self.strategy: Final = strategy
        self._agents: Final = Group()
        """Of `default` and `defaultRoute`."""
        self._hosts: Final[dict[str, Group]] = {}
        """Of `destHost`; the other two prefer an agent that announced the host."""
        self._networks: Final = NetworkTable()

    def add(self, link: AgentLink) -> None:
        if self.strategy == CIDR:
            for network in networks_of(link):
                self._networks.group(network).add(link)
            return
        if self.strategy == DEFAULT_ROUTE and not link.identifiers.default_route:
            return
        for host in hosts_of(link):
            self._hosts.setdefault(host, Group()).add(link)
        if self.strategy != DEST_HOST:
            self._agents.add(link)

    def forget_empty_groups(self, link: AgentLink) -> None:
        """Delete groups that are empty after this link has left them."""
        if self.strategy == CIDR:
            for network in networks_of(link):
                self._networks.forget_if_empty(network)
            return
        for host in hosts_of(link):
            group = self._hosts.get(host)
            if group is not None and not group.slots:
                del self._hosts[host]

    def choose(self, host: str, draw: int, moment: int) -> AgentLink | None:
        group = self._group(host)
        return group.least_loaded(draw, moment) if group is not None and group.slots else None

    def _group(self, host: str) -> Group | None:
        if self.strategy == CIDR:
            return self._networks.find(host)
        named = self._hosts.get(host) if host and self._hosts else None
        if self.strategy == DEST_HOST or (named is not None and named.is_well()):
            return named
        return self._agents

    def count(self) -> int:
        """How many agents, hosts or networks it knows."""
        if self.strategy == CIDR:
            return self._networks.count
        return len(self._hosts) if self.strategy == DEST_HOST else len(self._agents.slots)


class AgentRouter:
    """Chooses among all connected agents. It has at least one strategy."""

    def __init__(self, strategies: tuple[str, ...]) -> None:
        self._rosters: Final = [Roster(strategy) for strategy in strategies]
        self._siblings: Final[list[AgentLink]] = []

    def add(self, link: AgentLink) -> None:
        if link.is_sibling:
            self._siblings.append(link)
            return
        link.weigh()
        for roster in self._rosters:
            roster.add(link)

    def remove(self, link: AgentLink) -> None:
        """Remove this link; a newer stream of the same agent stays. May be called twice."""
        if link in self._siblings:
            self._siblings.remove(link)
        for slot in link.slots:
            slot.group.leave(slot, link)
        link.slots.clear()
        for roster in self._rosters:
            roster.forget_empty_groups(link)

    def choose(self, address: str, draw: int, moment: int = 0) -> AgentLink | None:
        """The agent for a dial to `address` ("host:port"), or None. `draw` is a random non-negative integer.

        Dials of one `moment` may share an agent (`Group.least_loaded`).
        The first strategy that yields a link wins, even one that drains.
        """
        host = host_of(address)
        for roster in self._rosters:
            link = roster.choose(host, draw, moment)
            if link is not None:
                return link
        return None

    def choose_sibling(self, tried: tuple[int, ...], draw: int) -> AgentLink | None:
        """Another worker for a dial that no agent of this one can serve, but none of those that were tried."""
        left = [link for link in self._siblings if link.key not in tried]
        return left[draw % len(left)] if left else None

    def unusable_networks(self, link: AgentLink) -> list[str]:
        """`cidr` identifiers that are not networks, if a strategy uses them.

        The agent is still accepted: upstream accepts any text, and its agents must go on working.
        """
        if all(roster.strategy != CIDR for roster in self._rosters):
            return []
        return [text for text in link.identifiers.cidr if parse_network(text) is None]

    def has_any(self) -> bool:
        """Whether any strategy has an agent. Upstream checks only its first (fault first-strategy)."""
        return any(roster.count() > 0 for roster in self._rosters)

    def ready_backends(self) -> dict[str, int]:
        """How many agents, hosts or networks each strategy knows, in the configured order."""
        return {roster.strategy: roster.count() for roster in self._rosters}


def hosts_of(link: AgentLink) -> tuple[str, ...]:
    """The hosts that an agent announces as its own."""
    return link.identifiers.ipv4 + link.identifiers.ipv6 + link.identifiers.host


def networks_of(link: AgentLink) -> list[Network]:
    found = [parse_network(text) for text in link.identifiers.cidr]
    return [network for network in found if network is not None]


def host_of(address: str) -> str:
    """Strip the port from "host:port" or "[v6]:port"; an IPv6 address without brackets has no port."""
    colons = address.count(":")
    if colons <= 1:
        return address.partition(":")[0]
    if "[" in address:
        address = address[: address.rindex(":")]
    return address.strip("[]")


def parse_strategies(text: str) -> tuple[str, ...]:
    """Read `--proxy-strategies`; raises ValueError with upstream's text. Empty items are skipped."""
    if not text:
        raise ValueError("ProxyStrategies cannot be empty")
    strategies: list[str] = []
    for name in text.split(","):
        if not name:
            continue
        if name not in STRATEGIES:
            raise ValueError(f"invalid proxy strategies: unknown proxy strategy: {name}")
        strategies.append(name)
    if not strategies:
        raise ValueError("invalid proxy strategies: proxy strategies cannot be empty")
    return tuple(strategies)
