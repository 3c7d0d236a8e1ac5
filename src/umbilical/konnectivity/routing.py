"""Which agent gets a dial: the three strategies, arrival order, and agents that drain.

One `Roster` per configured strategy maps a key to the streams that serve it; a stream is in all of them at once.
"""

from typing import TYPE_CHECKING, Final

from umbilical.konnectivity.metadata import AgentIdentifiers

if TYPE_CHECKING:
    from umbilical.konnectivity.commands import Tunnel

DEFAULT: Final = "default"
DEST_HOST: Final = "destHost"
DEFAULT_ROUTE: Final = "defaultRoute"
STRATEGIES: Final = (DEST_HOST, DEFAULT, DEFAULT_ROUTE)


class AgentLink:
    """One Connect stream of one agent. Two streams with one agent ID are two links, told apart by identity."""

    def __init__(
        self, key: int, agent_id: str, identifiers: AgentIdentifiers, *, understands_pause: bool = False
    ) -> None:
        self.key = key
        """A serial number, unique within this server."""
        self.agent_id = agent_id
        self.identifiers = identifiers
        self.understands_pause = understands_pause
        self.draining = False
        self.connections: dict[int, Tunnel] = {}
        """By the connection ID that the agent chose; filled by the switchboard."""
        self.pending: dict[int, Tunnel] = {}
        """By dial ID: asked of this agent, not answered yet; filled by the switchboard."""
        self.answered_orphans: dict[int, None] = {}
        """Connection IDs that nobody owns and whose close was requested already, oldest first."""
        self.shell: object | None = None
        """What the tunnel room hangs on it: the stream itself."""


class Roster:
    """The links of one strategy, by key. `keys` is the ring that random choice walks."""

    def __init__(self, strategy: str) -> None:
        self.strategy = strategy
        self.links: dict[str, list[AgentLink]] = {}
        self.keys: list[str] = []
        self._position: dict[str, int] = {}

    def add(self, key: str, link: AgentLink) -> None:
        links = self.links.get(key)
        if links is None:
            self.links[key] = [link]
            self._position[key] = len(self.keys)
            self.keys.append(key)
        elif link not in links:  # an agent may name the same host twice
            links.append(link)

    def remove(self, key: str, link: AgentLink) -> None:
        links = self.links.get(key)
        if links is None or link not in links:
            return
        links.remove(link)
        if not links:
            del self.links[key]
            self._forget(key)

    def _forget(self, key: str) -> None:
        # The last key takes the hole, so that removal does not shift the whole ring.
        hole = self._position.pop(key)
        last = self.keys.pop()
        if last != key:
            self.keys[hole] = last
            self._position[last] = hole

    def for_host(self, host: str) -> AgentLink | None:
        """The oldest link for exactly this host that does not drain, else the oldest."""
        links = self.links.get(host) if host else None
        if links is None:
            return None
        for link in links:
            if not link.draining:
                return link
        return links[0]

    def from_ring(self, draw: int) -> AgentLink | None:
        """Walk the agents from a random start; of each only the oldest link counts.

        Oldest, because an agent that finds itself connected twice closes the later one.
        """
        count = len(self.keys)
        if count == 0:
            return None
        start = draw % count
        first = self.links[self.keys[start]][0]
        if not first.draining:
            return first
        for step in range(1, count):
            link = self.links[self.keys[(start + step) % count]][0]
            if not link.draining:
                return link
        return first


class Switchyard:
    """All connected agents, and the choice among them. Never empty of strategies."""

    def __init__(self, strategies: tuple[str, ...]) -> None:
        self._rosters = [Roster(strategy) for strategy in strategies]

    def add(self, link: AgentLink) -> None:
        for roster in self._rosters:
            for key in keys_of(link, roster.strategy):
                roster.add(key, link)

    def remove(self, link: AgentLink) -> None:
        """Take this link out, by identity: a newer stream of the same agent stays. Twice is harmless."""
        for roster in self._rosters:
            for key in keys_of(link, roster.strategy):
                roster.remove(key, link)

    def choose(self, address: str, draw: int) -> AgentLink | None:
        """The agent for a dial to `address` ("host:port"), or None. `draw` is a random non-negative integer.

        The first strategy that yields a link wins, even one that drains.
        """
        for roster in self._rosters:
            if roster.strategy == DEST_HOST:
                link = roster.for_host(host_of(address)) if roster.keys else None
            else:
                link = roster.from_ring(draw)
            if link is not None:
                return link
        return None

    def has_any(self) -> bool:
        """Whether any strategy could serve a dial. Upstream asks only its first, and may be unready while it serves."""
        return any(roster.keys for roster in self._rosters)

    def ready_backends(self) -> dict[str, int]:
        """How many keys (agents, or destination hosts) each strategy knows, in the configured order."""
        return {roster.strategy: len(roster.keys) for roster in self._rosters}


def keys_of(link: AgentLink, strategy: str) -> tuple[str, ...]:
    """Under which keys a strategy finds this link."""
    if strategy == DEST_HOST:
        return link.identifiers.ipv4 + link.identifiers.ipv6 + link.identifiers.host
    if strategy == DEFAULT_ROUTE and not link.identifiers.default_route:
        return ()
    return (link.agent_id,)


def host_of(address: str) -> str:
    """Strip the port from "host:port" or "[v6]:port"; an IPv6 address without brackets has none to strip."""
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
