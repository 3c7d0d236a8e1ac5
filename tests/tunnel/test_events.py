"""Server-sent events: nothing is made while nobody listens, a slow listener is cut, and real programs tell."""

import asyncio
import json
import os
import re
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.support.in_process import Stage, echo, listening, refused_address
from tests.support.raw_http import talking
from tests.support.tunnel_client import DialRefused, assert_echoes, close_leftovers
from tests.support.tunnel_pair import Shape, TunnelPair, wait_until
from tests.support.tunnel_pki import TunnelPki

from umbilical.tunnel import events as module
from umbilical.tunnel.admin import ServerAdminRoutes
from umbilical.tunnel.events import EventSource, Listener, encode
from umbilical.tunnel.settings import ListenAddress
from umbilical.tunnel.status.routes import StatusAccess, StatusRoutes
from umbilical.tunnel.status.server_status import ServerStatus
from umbilical.tunnel.status.state import Document

Event = tuple[str, dict[str, Any]]
PATIENCE_SECONDS = 60.0


def parsed(octets: bytes) -> list[Event]:
    found = re.findall(r"event: (\S+)\ndata: (.*)\n\n", octets.decode())
    return [(kind, json.loads(text)) for kind, text in found]


class Reader:
    """A connection to `/v1/events`."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
        self._sock.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self._octets = b""
        self.wait_for("listening")

    def wait_for(self, kind: str, count: int = 1) -> list[Event]:
        """Read until so many events of a kind came; return all of the kind."""
        while len(found := [one for one in self.all() if one[0] == kind]) < count:
            more = self._sock.recv(65536)
            assert more, self._octets
            self._octets += more
        return found

    def read_what_came(self) -> None:
        while select.select([self._sock], [], [], 0.05)[0]:
            self._octets += self._sock.recv(65536)

    def all(self) -> list[Event]:
        return parsed(self._octets)

    def head(self) -> bytes:
        return self._octets.partition(b"\r\n\r\n")[0]

    def close(self) -> None:
        self._sock.close()


@contextmanager
def reading(port: int) -> Iterator[Reader]:
    reader = Reader(port)
    try:
        yield reader
    finally:
        reader.close()


async def test_a_listener_gets_what_waits_at_once_and_a_comment_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    source = EventSource()
    assert not source.heard
    listener = source.listen()
    source.publish("a", {"n": 1})
    source.publish("b", {"n": 2})
    assert [(kind, members["n"]) for kind, members in parsed(await listener.next())] == [("a", 1), ("b", 2)]
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)
    assert (await listener.next()).startswith(b": ")
    source.leave(listener)
    assert not source.heard


async def test_a_slow_listener_is_cut_with_an_event_that_says_so_and_others_go_on() -> None:
    source = EventSource()
    slow, quick = source.listen(), source.listen()
    got: list[Event] = []
    size = len(encode("x", {"at": "2026-11-20T00:00:00.000Z", "text": "y" * 1000}))
    for _ in range(module.MOST_QUEUED_BYTES // size + 10):
        source.publish("x", {"text": "y" * 1000})
        got += parsed(await quick.next())
    assert {kind for kind, _ in got} == {"x"}
    ((kind, members),) = parsed(await slow.next())
    assert kind == "cut"
    assert re.search(r"reads too slowly: 9\d\d events were dropped", members["text"])
    assert await slow.next() == b""


async def test_the_number_of_listeners_is_limited_and_one_that_leaves_makes_room() -> None:
    source = EventSource()
    changes: list[bool] = []
    heard = EventSource(on_heard=changes.append)
    listeners = [source.listen() for _ in range(module.MOST_LISTENERS)]
    assert source.is_full()
    source.leave(listeners[0])
    assert not source.is_full()
    first, second = heard.listen(), heard.listen()
    heard.leave(first)
    heard.leave(second)
    assert changes == [True, False]


def test_a_burst_is_bounded_in_bytes() -> None:
    listener = Listener(100)
    listener.put(b"x" * 60)
    listener.put(b"x" * 60)
    assert listener.is_cut
    listener.put(b"x")
    assert asyncio.run(listener.next()).startswith(b"event: cut\n")


class Nothing:
    """A `StatusSource` with events alone."""

    def __init__(self) -> None:
        self.source = EventSource()

    async def document(self, most_tunnels: int, worker: str) -> Document | None:
        return None

    def events(self) -> EventSource:
        return self.source

    def whose(self) -> Document:
        return {"kind": "ServerStatus", "id": "s1"}


async def test_a_client_that_leaves_is_noticed_at_once() -> None:
    nothing = Nothing()
    access = StatusAccess(ListenAddress("127.0.0.1", 0), False, None)
    async with talking(StatusRoutes(ServerAdminRoutes(lambda: b"", profiling=False), nothing, access)) as client:
        await client.send(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not nothing.source.heard:
                await asyncio.sleep(0.01)
            await client.close()
            while nothing.source.heard:
                await asyncio.sleep(0.01)


def test_nothing_is_made_while_nobody_listens(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def note(kind: str, members: dict[str, Any]) -> bytes:
        made.append(kind)
        return b""

    monkeypatch.setattr(module, "encode", note)
    server, _ = stage.start_pair()
    tunnel = server.frontend.open(stage.endpoint().serve(echo).address)
    assert_echoes(tunnel)
    tunnel.close()
    server.wait_until_quiet()
    assert made == []
    listener = stage.call(ServerStatus(server.server).events().listen)
    with pytest.raises(DialRefused):
        server.frontend.open(refused_address())
    assert made == ["dial-failed"]
    stage.call(lambda: server.server.core.events.leave(listener))


@pytest.fixture(params=[1, 2], ids=["alone", "workers"])
def pair(request: pytest.FixtureRequest, tunnel_pki: TunnelPki, tmp_path: Any) -> Iterator[TunnelPair]:
    pair = TunnelPair(Shape(workers=request.param), tunnel_pki, tmp_path)
    try:
        pair.start()
        wait_until(lambda: pair.agent_metric("open_server_connections") == request.param, "the agent is connected")
        yield pair
    finally:
        print(pair.logs())
        pair.stop()
        close_leftovers()


def test_real_programs_tell_what_happens(pair: TunnelPair) -> None:
    closed = refused_address()
    with listening() as endpoint, reading(pair.ports.server_admin) as server, reading(pair.ports.agent_admin) as agent:
        assert b"Content-Type: text/event-stream\r\n" in server.head() + b"\r\n"
        assert b"Content-Length" not in server.head()
        assert server.all()[0][1]["id"] == "s1"
        address = endpoint.serve(echo).address
        if pair.shape.has_workers:  # the supervisor asks its workers when the first listener comes
            _until_told(pair, server, closed)
        tunnel = pair.frontend().open(address)
        assert_echoes(tunnel, b"12345")
        (_, opened), (_, seen) = server.wait_for("tunnel-opened")[-1], agent.wait_for("tunnel-opened")[-1]
        assert (opened["dialId"] == seen["dialId"]) or pair.shape.has_workers
        assert (opened["endpoint"], seen["endpoint"]) == (address, address)
        assert opened["server"] in ("s1", "s1-0", "s1-1")
        assert opened["client"] == f"uid={os.getuid()} pid={os.getpid()}"
        assert opened["dialMilliseconds"] > 0
        assert opened["roundTripMilliseconds"] > 0
        tunnel.close()
        (_, over), (_, gone) = server.wait_for("tunnel-closed")[-1], agent.wait_for("tunnel-closed")[-1]
        assert (over["bytesFromClient"], over["bytesToClient"], over["dialId"]) == (5, 5, opened["dialId"])
        assert (gone["bytesToEndpoint"], gone["bytesFromEndpoint"]) == (5, 5)
        with pytest.raises(DialRefused):
            pair.frontend().open(closed)
        for reader in (server, agent):
            _, failed = reader.wait_for("dial-failed")[-1]
            assert (failed["endpoint"], failed["code"]) == (closed, "UMB401")
            assert "connection refused" in failed["text"]
        pair.agent.signal(signal.SIGKILL)
        _, lost = server.wait_for("agent-gone")[0]
        assert lost["agent"] == "a1"


def _until_told(pair: TunnelPair, server: Reader, closed: str) -> None:
    """Dial what fails until both workers have told of it: they begin a moment after the first listener has come."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while {members["server"] for kind, members in server.all() if kind == "dial-failed"} != {"s1-0", "s1-1"}:
        assert time.monotonic() < deadline
        with pytest.raises(DialRefused):
            pair.frontend().open(closed)
        server.read_what_came()
