"""A registry, and short words for what happens on it; orders come back as the playbook's lines."""

from typing import Final, cast

from tests.playbook import said

from umbilical.konnectivity.caps import Caps
from umbilical.konnectivity.links import AgentLink, Tunnel, TunnelClient
from umbilical.konnectivity.metadata import AgentIdentifiers
from umbilical.konnectivity.routing import AgentRouter
from umbilical.konnectivity.tunnel_registry import TunnelRegistry
from umbilical.wire.packets import DialResponse

NO_CLIENT: Final = cast(TunnelClient, object())
"""The registry calls no client: it returns commands."""


class RegistryDriver:
    def __init__(self, *strategies: str, caps: Caps | None = None) -> None:
        self.registry: Final = TunnelRegistry(AgentRouter(strategies or ("default",)), caps)
        self.told: list[str] = []
        """What came of the last dial, where a test keeps it."""
        self._keys = 0

    def agent(self, agent_id: str = "a1", identifiers: AgentIdentifiers | None = None) -> AgentLink:
        self._keys += 1
        link = AgentLink(self._keys, agent_id, identifiers or AgentIdentifiers())
        self.registry.agent_connected(link)
        return link

    def dial(self, dial_id: int, address: str = "web:443", at: float = 0.0) -> Tunnel:
        """A dial that some agent takes."""
        tunnel = Tunnel(NO_CLIENT, dial_id, address, at)
        told = said(self.registry.dialled(tunnel, "tcp", 0))
        assert [line.split(" <- ")[1] for line in told] == [f"DIAL_REQ tcp {address} dial={dial_id}"]
        return tunnel

    def answer(
        self, link: AgentLink, dial_id: int, connection_id: int = 0, error: str = "", at: float = 1.0
    ) -> list[str]:
        return said(self.registry.agent_answered(link, DialResponse(error, connection_id, dial_id), at))

    def tunnel(self, link: AgentLink, dial_id: int, connection_id: int) -> Tunnel:
        tunnel = self.dial(dial_id)
        assert self.answer(link, dial_id, connection_id) == [f"open dial {dial_id} as connection {connection_id}"]
        return tunnel

    def close(self, tunnel: Tunnel, at: float = 0.0) -> list[str]:
        """The client goes."""
        return said(self.registry.client_closed(tunnel, at))

    def gone(self, link: AgentLink, cause: str = "lost") -> list[str]:
        return said(self.registry.agent_gone(link, cause, 0))

    def passes(self, now: float, dial_timeout: float, *stalled: AgentLink) -> list[str]:
        return said(self.registry.time_passed(now, dial_timeout, list(stalled), 0))

    def counts(self) -> tuple[int, int, int]:
        """Pending, established, closing."""
        registry = self.registry
        return registry.pending_count(), registry.established_count(), registry.closing_count()


def best_links(links: list[AgentLink]) -> list[AgentLink]:
    """Of every agent the oldest of its best."""
    best: dict[str, AgentLink] = {}
    for link in links:
        before = best.get(link.agent_id)
        if before is None or (link.sick, link.draining) < (before.sick, before.draining):
            best[link.agent_id] = link
    return list(best.values())
