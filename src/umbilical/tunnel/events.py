"""What happens, as server-sent events for whoever listens. While nobody does, nothing is made.

Each listener has a queue with a bound in bytes; one that reads too slowly is cut with a last event that says so.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, Final

from umbilical.konnectivity.commands import EndpointConnection
from umbilical.konnectivity.links import AgentLink, Tunnel
from umbilical.tunnel import certificate_dates

MOST_QUEUED_BYTES: Final = 1 << 20
"""About 3,000 events."""
MOST_LISTENERS: Final = 16
BEAT_SECONDS: Final = 15.0
"""Of silence until a comment is sent, which keeps proxies on the way from closing the connection."""
_BEAT: Final = b": nothing has happened\n\n"
MOST_CHARACTERS: Final = 300
"""Characters of a text that is sent on: peers choose some of them."""


class Listener:
    """One reader and what waits for it."""

    def __init__(self, most_bytes: int = MOST_QUEUED_BYTES) -> None:
        self._most_bytes: Final = most_bytes
        self._waiting: Final[deque[bytes]] = deque()
        self._waiting_bytes = 0
        self._came: Final = asyncio.Event()
        self.is_cut = False

    def put(self, event: bytes) -> None:
        if self.is_cut:
            return
        if self._waiting_bytes + len(event) > self._most_bytes:
            lost, self.is_cut = len(self._waiting) + 1, True
            self._waiting.clear()
            text = f"this listener reads too slowly: {lost} events were dropped; connect again"
            event = encode("cut", {"at": moment(), "text": text})
        self._waiting.append(event)
        self._waiting_bytes += len(event)
        self._came.set()

    async def next(self) -> bytes:
        """Return all events that wait, or a comment after a while without any; nothing behind the last event."""
        if not self._waiting and self.is_cut:
            return b""
        with suppress(TimeoutError):
            async with asyncio.timeout(BEAT_SECONDS):
                await self._came.wait()
        self._came.clear()
        octets = b"".join(self._waiting) or _BEAT
        self._waiting.clear()
        self._waiting_bytes = 0
        return octets


class EventSource:
    """The events of one process. Ask `heard` before making one."""

    def __init__(self, server: str = "", on_heard: Callable[[bool], None] | None = None) -> None:
        """`server` is the ID that each event of a server names; `on_heard` is called when the first listener comes, and
        when the last has left."""
        self.heard = False
        self._own: Final = {"server": server} if server else {}
        self._on_heard: Final = on_heard
        self._listeners: Final[set[Listener]] = set()

    def is_full(self) -> bool:
        return len(self._listeners) >= MOST_LISTENERS

    def listen(self) -> Listener:
        listener = Listener()
        self._listeners.add(listener)
        self._note()
        return listener

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        self._note()

    def _note(self) -> None:
        heard = bool(self._listeners)
        if heard != self.heard:
            self.heard = heard
            if self._on_heard is not None:
                self._on_heard(heard)

    def pass_on(self, events: bytes) -> None:
        """Publish events that another process has made."""
        for listener in self._listeners:
            listener.put(events)

    def publish(self, kind: str, members: dict[str, Any]) -> None:
        self.pass_on(encode(kind, {"at": moment()} | self._own | members))

    async def stream(self, first: dict[str, Any]) -> AsyncGenerator[bytes]:
        """Events from now on, behind one that says whose they are."""
        listener = self.listen()
        try:
            yield encode("listening", {"at": moment()} | first)
            while octets := await listener.next():
                yield octets
        finally:
            self.leave(listener)

    # What a server publishes.

    def agent_came(self, link: AgentLink, peer: str) -> None:
        if not link.is_sibling:
            self.publish("agent-connected", {"agent": link.agent_id, "address": peer})

    def agent_left(self, link: AgentLink, reason: str) -> None:
        if not link.is_sibling:
            members = {"agent": link.agent_id, "tunnels": len(link.connections), "text": reason[:MOST_CHARACTERS]}
            self.publish("agent-gone", members)

    def tunnel_opened(self, tunnel: Tunnel, round_trip_seconds: float) -> None:
        if tunnel.may_relay:  # else the worker that asked for it publishes it
            self.publish("tunnel-opened", _about(tunnel) | _hops(tunnel, round_trip_seconds))

    def tunnel_over(self, tunnel: Tunnel, now: float, cause: str, code: str) -> None:
        """A tunnel was closed, or a dial failed."""
        if not tunnel.may_relay:
            return
        members = _about(tunnel) | {"code": code or None, "text": cause[:MOST_CHARACTERS]}
        if not tunnel.opened_at:
            self.publish("dial-failed", members | {"milliseconds": round((now - tunnel.asked_at) * 1000, 3)})
            return
        up, down = tunnel.client.byte_counts()
        members |= {"bytesFromClient": up, "bytesToClient": down, "ageSeconds": round(now - tunnel.opened_at, 3)}
        self.publish("tunnel-closed", members)

    # What an agent publishes.

    def server_came(self, server: str, address: str) -> None:
        self.publish("server-connected", {"server": server, "address": address})

    def server_left(self, server: str, reason: str) -> None:
        self.publish("server-gone", {"server": server, "text": reason[:MOST_CHARACTERS]})

    def endpoint_opened(self, record: EndpointConnection, server: str, seconds: float) -> None:
        self.publish("tunnel-opened", _asked(record, server) | {"dialMilliseconds": round(seconds * 1000, 3)})

    def endpoint_failed(self, record: EndpointConnection, server: str, text: str, code: str, seconds: float) -> None:
        members = {"code": code or None, "text": text[:MOST_CHARACTERS], "milliseconds": round(seconds * 1000, 3)}
        self.publish("dial-failed", _asked(record, server) | members)

    def endpoint_closed(
        self, record: EndpointConnection, server: str, text: str, counts: tuple[int, int], seconds: float
    ) -> None:
        sizes = {"bytesToEndpoint": counts[0], "bytesFromEndpoint": counts[1], "ageSeconds": round(seconds, 3)}
        self.publish("tunnel-closed", _asked(record, server) | {"text": text[:MOST_CHARACTERS]} | sizes)


def _asked(record: EndpointConnection, server: str) -> dict[str, Any]:
    return {"dialId": record.dial_id, "server": server, "endpoint": record.address[:MOST_CHARACTERS]}


def _about(tunnel: Tunnel) -> dict[str, Any]:
    link = tunnel.link
    return {
        "dialId": tunnel.dial_id,
        "client": tunnel.client.identity() or None,
        "endpoint": tunnel.address[:MOST_CHARACTERS],
        "agent": None if link is None or link.is_sibling else link.agent_id,
        "relay": link.agent_id if link is not None and link.is_sibling else None,
    }


def _hops(tunnel: Tunnel, round_trip_seconds: float) -> dict[str, float]:
    """The dial is the way to the agent and back, and the agent's connect."""
    dial = tunnel.opened_at - tunnel.asked_at
    return {
        "dialMilliseconds": round(dial * 1000, 3),
        "roundTripMilliseconds": round(round_trip_seconds * 1000, 3),
    }


def moment() -> str:
    return certificate_dates.shown_exactly(time.time())


def encode(kind: str, members: dict[str, Any]) -> bytes:
    import json

    return f"event: {kind}\ndata: {json.dumps(members)}\n\n".encode()
