"""The document of an agent, described from its own tables when somebody asks."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from umbilical import __version__
from umbilical.konnectivity.commands import CONNECTED, DIALLING, EndpointConnection
from umbilical.konnectivity.metadata import parse_agent_identifiers
from umbilical.tunnel.agent import Agent
from umbilical.tunnel.certificates import WatchedContext
from umbilical.tunnel.endpoint import Endpoint
from umbilical.tunnel.events import EventSource
from umbilical.tunnel.outbound import display
from umbilical.tunnel.server_link import ServerLink
from umbilical.tunnel.server_targets import ServerSource
from umbilical.tunnel.status.parts import API_VERSION, certificates, dials, moment, rounded, windows
from umbilical.tunnel.status.server_status import FORM, identifiers_of, judged, node_of
from umbilical.tunnel.status.state import Document, JudgedState, facts_of, judge


class AgentStatus:
    """A `StatusSource`."""

    def __init__(self, agent: Agent, admin: WatchedContext | None = None) -> None:
        self._agent: Final = agent
        self._loop: Final = agent.context.loop
        self._started_at: Final = agent.context.loop.now
        self._admin: Final = [] if admin is None else [admin]

    async def document(self, most_tunnels: int, worker: str) -> Document | None:
        if worker:
            return None
        document, now = self.brief(), self._loop.now
        tunnels = list(islice(self._tunnels(), most_tunnels))
        document["tunnels"]["shown"] = len(tunnels)
        document["tunnels"]["items"] = (_tunnel(record, link, now) for record, link in tunnels)
        return document

    def events(self) -> EventSource:
        return self._agent.context.events

    def whose(self) -> Document:
        return {"kind": "AgentStatus", "id": self._agent.settings.agent_id}

    def state(self) -> JudgedState:
        return judge(facts_of(self.brief()))

    def brief(self) -> Document:
        """Everything but the list of tunnels, with the state."""
        agent, now = self._agent, self._loop.now
        settings, links = agent.settings, agent.links()
        announced = parse_agent_identifiers(settings.agent_identifiers)
        serving = [link for link in links if not agent.is_leaving(link)]
        count = sum(len(link.session.connections) for link in links)
        counter = agent.counter
        counted = counter.server_count() if counter is not None else None
        published = counter.published_addresses() if counter is not None else ()
        return judged(
            {
                "apiVersion": API_VERSION,
                "kind": "AgentStatus",
                "time": moment(0.0),
                "state": "",
                "reason": "",
                "reasons": [],
                "agent": {
                    "id": settings.agent_id,
                    "node": node_of(announced),
                    "version": __version__,
                    "form": FORM,
                    "startedAt": moment(now - self._started_at),
                    "uptimeSeconds": rounded(now - self._started_at),
                    "identifiers": identifiers_of(announced),
                    "draining": agent.draining,
                },
                "servers": {
                    "count": len(serving),
                    "expected": agent.server_count(),
                    "items": [_server(link, now, is_leaving=link not in serving) for link in links],
                    "unreached": _unreached(agent.sources()),
                },
                "tunnels": {
                    "count": count,
                    "dialling": count - sum(link.session.open_count() for link in links),
                    "shown": 0,
                    "items": [],
                },
                "dials": dials(agent.context.recent, now, ("endpoint", "server")),
                "certificates": certificates([agent.watched_certificates(), *self._admin]),
                "leases": {"counted": counted, "addresses": [display(host, port) for host, port in published]},
                "windows": windows(agent.context.window_budget),
            }
        )

    def _tunnels(self) -> Iterator[tuple[EndpointConnection, ServerLink]]:
        for link in self._agent.links():
            for record in list(link.session.connections.values()):
                yield record, link


def _server(link: ServerLink, now: float, *, is_leaving: bool) -> Document:
    return {
        "id": link.server_id(),
        "address": link.channel.peer(),
        "state": "leaving" if is_leaving or link.leaving else "connected",
        "form": "streams" if link.has_own_streams else "upstream",
        "since": moment(now - link.since),
        "connectedSeconds": rounded(now - link.since),
        "roundTripMilliseconds": rounded(link.measured().shortest_seconds * 1000),
        "load": len(link.session.connections),
    }


def _unreached(sources: list[ServerSource]) -> list[Document]:
    """Configured and published addresses that lead to no connected server, with why. One of several addresses of a name
    may fail while another serves: perhaps both are one load balancer."""
    found = []
    for source in sources:
        if source.is_served() or not source.is_named:
            continue
        failing = [target for target in source.targets.values() if target.is_failing]
        reason, code = source.told_reason, source.told_code
        if failing and not reason:
            last = max(failing, key=lambda target: target.attempted_at)
            reason, code = last.told_reason + last.explanation, last.told_code
        is_busy = source.is_busy or any(target.is_busy for target in source.targets.values())
        found.append(
            {
                "address": display(source.server.host, source.server.port),
                "origin": "configured" if source.is_given else "lease",
                "state": "connecting" if is_busy else "waiting",
                "error": {"code": code, "text": reason} if reason else None,
            }
        )
    return found


def _tunnel(record: EndpointConnection, link: ServerLink, now: float) -> Document:
    endpoint = record.endpoint
    up = down = waiting = 0
    is_held = False
    if isinstance(endpoint, Endpoint):
        up, down = endpoint.bytes_delivered, endpoint.bytes_read()
        waiting, is_held = endpoint.waiting()
    return {
        "dialId": record.dial_id,
        "server": link.server_id(),
        "endpoint": record.address,
        "state": {DIALLING: "dialling", CONNECTED: "open"}.get(record.state, "closing"),
        "since": moment(now - record.asked_at),
        "ageSeconds": rounded(now - record.asked_at),
        "bytesToEndpoint": up,
        "bytesFromEndpoint": down,
        "bytesWaitingForEndpoint": waiting,
        "slow": "endpoint" if waiting else "client" if is_held else None,
    }
