"""The document of a server, described from its own tables when somebody asks; and that of several workers as one."""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

from umbilical import __version__
from umbilical.konnectivity.links import CLOSING, PENDING, AgentLink, Tunnel
from umbilical.konnectivity.metadata import AgentIdentifiers
from umbilical.tunnel import server_core
from umbilical.tunnel.agent_stream import AgentStream
from umbilical.tunnel.certificates import WatchedContext
from umbilical.tunnel.events import EventSource
from umbilical.tunnel.identities import proved_by
from umbilical.tunnel.interfaces import Publisher
from umbilical.tunnel.server import Server
from umbilical.tunnel.settings import ServerSettings
from umbilical.tunnel.status.parts import (
    API_VERSION,
    certificates,
    dials,
    moment,
    rounded,
    troubles,
    windows,
)
from umbilical.tunnel.status.state import Document, JudgedState, facts_of, judge
from umbilical.tunnel.tls_channel import TlsChannel

FORM: Final = "pure" if server_core.__file__.endswith(".py") else "compiled"
"""Of the data path that runs in this process."""


class ServerStatus:
    """A `StatusSource`."""

    def __init__(self, server: Server, admin: WatchedContext | None = None) -> None:
        """`admin` has the certificate of the admin port."""
        self._admin: Final = [] if admin is None else [admin]
        self._server: Final = server
        self._core: Final = server.core
        self._loop: Final = server.core.loop
        self._started_at: Final = server.core.loop.now
        self.publisher: Publisher | None = None

    async def document(self, most_tunnels: int, worker: str) -> Document | None:
        return self.describe(most_tunnels) if worker in ("", "0") else None

    def events(self) -> EventSource:
        return self._core.events

    def whose(self) -> Document:
        return {"kind": "ServerStatus", "id": self._core.settings.server_id}

    def describe(self, most_tunnels: int) -> Document:
        """Lists of agents and tunnels are iterators over what is here now."""
        document = self.brief()
        core, now = self._core, self._loop.now
        agents = [agent for agent in core.agents.values() if not agent.link.is_sibling]
        document["agents"]["items"] = (self._agent(agent) for agent in agents)
        tunnels = list(islice(self._tunnels(), most_tunnels))
        document["tunnels"]["shown"] = len(tunnels)
        document["tunnels"]["items"] = (self._tunnel(tunnel, now) for tunnel in tunnels)
        return document

    def brief(self) -> Document:
        """Everything but the lists of agents and tunnels, with the state; its cost grows with the agents alone."""
        server, core, now = self._server, self._core, self._loop.now
        settings, gauges = server.settings, core.gauges()
        ids = {link.agent_id for link in core.agent_links()}
        lost = [one for one in core.recent.lost.values() if one.name not in ids and len(core.agents) < one.links_before]
        document = {
            **server_head(settings, now - self._started_at),
            "agents": {
                "count": len(ids),
                "expected": settings.expected_agents or None,
                "lost": troubles(core.recent.since(lost), now, "id"),
                "refused": troubles(core.recent.since(list(core.recent.refused)), now, "address"),
                "items": [],
            },
            "tunnels": {
                "count": gauges.pending_dials + gauges.established_connections,
                "dialling": gauges.pending_dials,
                "shown": 0,
                "items": [],
            },
            "dials": dials(core.recent, now, ("endpoint", "client", "agent")),
            "certificates": certificates([*server.watched_certificates(), *self._admin]),
            "leases": leases(self.publisher, settings.server_count),
            "windows": windows(core.window_budget),
        }
        document["server"] |= {"ready": core.is_ready(), "stopping": server.stopping}
        document["server"]["workers"] = [
            {"id": settings.server_id, "pid": os.getpid(), "tunnels": document["tunnels"]["count"]}
        ]
        return judged(document)

    def state(self) -> JudgedState:
        return judge(facts_of(self.brief()))

    def _tunnels(self) -> Iterator[Tunnel]:
        """Those whose client is here: a tunnel that another worker asked for is in that one's list."""
        links = self._core.links()
        found = chain.from_iterable([*list(link.pending.values()), *list(link.connections.values())] for link in links)
        return (tunnel for tunnel in found if tunnel.may_relay)

    def _agent(self, agent: AgentStream) -> Document:
        link, now = agent.link, self._loop.now
        channel = agent.transport.channel
        rounds = agent.transport.rounds
        error = self._core.recent.last_errors.get(link.agent_id)
        return {
            "id": link.agent_id,
            "node": node_of(link.identifiers),
            "server": self._core.settings.server_id,
            "address": agent.peer,
            "identity": list(proved_by(channel.tls)) if isinstance(channel, TlsChannel) else [],
            "identifiers": identifiers_of(link.identifiers),
            "program": agent.program or None,
            "form": "streams" if link.has_own_streams else "upstream",
            "since": moment(now - agent.since),
            "connectedSeconds": rounded(now - agent.since),
            "roundTripMilliseconds": rounded(rounds.shortest_seconds * 1000) if rounds is not None else None,
            "state": _agent_state(link),
            "load": link.load(),
            "dialling": len(link.pending),
            "lastError": troubles([error], now, "about")[0] if error is not None else None,
        }

    def _tunnel(self, tunnel: Tunnel, now: float) -> Document:
        up, down = tunnel.client.byte_counts()
        waiting, is_held = tunnel.client.waiting()
        link = tunnel.link
        is_relayed = link is not None and link.is_sibling
        return {
            "dialId": tunnel.dial_id,
            "client": tunnel.client.identity() or None,
            "server": self._core.settings.server_id,
            "agent": None if link is None or is_relayed else link.agent_id,
            "relay": link.agent_id if link is not None and is_relayed else None,
            "endpoint": tunnel.address,
            "state": _TUNNEL_STATES.get(tunnel.state, "open"),
            "since": moment(now - tunnel.asked_at),
            "ageSeconds": rounded(now - tunnel.asked_at),
            "dialMilliseconds": rounded((tunnel.opened_at - tunnel.asked_at) * 1000) if tunnel.opened_at else None,
            "bytesFromClient": up,
            "bytesToClient": down,
            "bytesWaitingForClient": waiting,
            "slow": "client" if waiting else "endpoint" if is_held else None,
        }


_TUNNEL_STATES: Final = {PENDING: "dialling", CLOSING: "closing"}


def server_head(settings: ServerSettings, uptime: float) -> Document:
    return {
        "apiVersion": API_VERSION,
        "kind": "ServerStatus",
        "time": moment(0.0),
        "state": "",
        "reason": "",
        "reasons": [],
        "server": {
            "id": settings.server_id,
            "version": __version__,
            "form": FORM,
            "mode": settings.mode.value,
            "strategies": list(settings.strategies),
            "startedAt": moment(uptime),
            "uptimeSeconds": rounded(uptime),
        },
    }


def judged(document: Document) -> Document:
    return document | judge(facts_of(document)).as_members()


def leases(publisher: Publisher | None, server_count: int) -> Document:
    published = [] if publisher is None else [dict(one) for one in publisher.describe()]
    return {"published": published, "announcedServers": server_count}


def node_of(identifiers: AgentIdentifiers) -> str | None:
    """The node that an agent announces, as our manifests have it."""
    return identifiers.host[0] if identifiers.host else None


def identifiers_of(identifiers: AgentIdentifiers) -> Document:
    return {
        "ipv4": list(identifiers.ipv4),
        "ipv6": list(identifiers.ipv6),
        "host": list(identifiers.host),
        "cidr": list(identifiers.cidr),
        "defaultRoute": identifiers.default_route,
    }


def _agent_state(link: AgentLink) -> str:
    return "draining" if link.draining else "last-choice" if link.sick else "ready"


def merged(documents: Sequence[Document], own: Document, agent_count: int) -> Document:
    """The documents of workers as that of one server, whose head, leases and certificates are in `own`."""
    dial_parts = [one["dials"] for one in documents]
    agents, tunnels = [one["agents"] for one in documents], [one["tunnels"] for one in documents]
    lost = {one["id"]: one for part in agents for one in part["lost"]}
    document = own | {
        "agents": {
            "count": agent_count,
            "expected": own["agents"]["expected"],
            "lost": list(lost.values()),
            "refused": _by_age(part["refused"] for part in agents),
            "items": _all(part["items"] for part in agents),
        },
        "tunnels": {
            **{name: sum(part[name] for part in tunnels) for name in ("count", "dialling", "shown")},
            "items": _all(part["items"] for part in tunnels),
        },
        "dials": {
            "windowSeconds": max([part["windowSeconds"] for part in dial_parts], default=0.0),
            "succeeded": sum(part["succeeded"] for part in dial_parts),
            "failed": sum(part["failed"] for part in dial_parts),
            "failedByCode": _summed([part["failedByCode"] for part in dial_parts]),
            "failures": _by_age(part["failures"] for part in dial_parts),
        },
        "certificates": next((one["certificates"] for one in documents), []) + own["certificates"],
        "windows": {"grantedBytes": 0, "budgetBytes": 0} | _summed([one["windows"] for one in documents]),
    }
    document["server"] = own["server"] | {
        "ready": any(one["server"]["ready"] for one in documents),
        "workers": _all(one["server"]["workers"] for one in documents),
    }
    return judged(document)


def _all(lists: Iterable[list[Any]]) -> list[Any]:
    return list(chain.from_iterable(lists))


def _by_age(lists: Iterable[list[Document]]) -> list[Document]:
    return sorted(chain.from_iterable(lists), key=lambda one: one["agoSeconds"], reverse=True)


def _summed(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    return {name: sum(part.get(name, 0) for part in counts) for name in chain.from_iterable(counts)}
