"""An HTTP proxy between a scripted client and scripted origin servers, on real sockets."""

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import h11

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.streams import Streams
from umbilical.proxies.http_head import RequestTarget
from umbilical.proxies.https import HttpLimits, HttpProxy
from umbilical.proxies.listener import ProxyListener
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.settings import ListenerSettings
from umbilical.proxies.user_proxy import UpstreamRoute
from umbilical.tunnel.settings import ListenAddress

PATIENCE_SECONDS: Final = 60.0


class Peer:
    """One end of a connection. What was received before a reset is kept."""

    def __init__(self, streams: Streams) -> None:
        self.reader, self.writer = streams
        self.seen = b""
        """All that was read."""

    async def send(self, data: bytes) -> None:
        with suppress(ConnectionError):
            self.writer.write(data)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.writer.drain()

    async def send_bytewise(self, data: bytes) -> None:
        for index in range(len(data)):
            await self.send(data[index : index + 1])
            await asyncio.sleep(0)

    async def until(self, marker: bytes = b"\r\n\r\n") -> bytes:
        """Read up to and with the marker."""
        return await self._read(self.reader.readuntil(marker))

    async def exactly(self, count: int) -> bytes:
        return await self._read(self.reader.readexactly(count))

    async def rest(self) -> bytes:
        """Read to the end; a reset is an end."""
        pieces: list[bytes] = []
        with suppress(ConnectionError):
            while piece := await self._read(self.reader.read(65536)):
                pieces.append(piece)
        return b"".join(pieces)

    async def _read(self, reading: Awaitable[bytes]) -> bytes:
        async with asyncio.timeout(PATIENCE_SECONDS):
            data = await reading
        self.seen += data
        return data

    def end(self) -> None:
        self.writer.write_eof()

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        self.writer.transport.abort()

    def break_off(self) -> None:
        """Close with a reset, even if everything was read."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.reset()


Behaviour = Callable[[Peer], Awaitable[None]]


class Origin:
    """A server that runs `behaviour` for each connection; `peers` has them in order."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour: Final = behaviour
        self.peers: list[Peer] = []
        self.faults: list[BaseException] = []
        """Errors of the behaviour; raised at the end of the test."""
        self.port = 0
        self._done: Final = asyncio.Condition()
        self._ended = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer((reader, writer))
        self.peers.append(peer)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._behaviour(peer)
        except asyncio.CancelledError:
            raise
        except BaseException as fault:
            self.faults.append(fault)
        finally:
            writer.close()
            async with self._done:
                self._ended += 1
                self._done.notify_all()

    async def visited(self) -> None:
        """Wait for a connection."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.peers:
                await asyncio.sleep(0.01)

    async def ended(self, count: int) -> None:
        """Wait until this many connections have ended."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._done:
            await self._done.wait_for(lambda: self._ended >= count)


@asynccontextmanager
async def origin(behaviour: Behaviour) -> AsyncIterator[Origin]:
    place = Origin(behaviour)
    server = await asyncio.start_server(place.serve, "127.0.0.1", 0, backlog=4096)
    place.port = server.sockets[0].getsockname()[1]
    try:
        yield place
    finally:
        server.close()
        for peer in place.peers:
            peer.reset()
        await place.ended(len(place.peers))
        await asyncio.sleep(0)
    if place.faults:
        raise place.faults[0]


def answering(*answers: bytes) -> Behaviour:
    """Read a head without a body and answer it, once for each; then wait for the end."""

    async def behave(peer: Peer) -> None:
        for answer in answers:
            await peer.until()
            await peer.send(answer)
        await peer.rest()

    return behave


def read_answer(raw: bytes, method: str = "GET") -> bytes:
    """The body of a whole answer, as h11 reads it."""
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(raw)
    body = b""
    while not isinstance(event := reader.next_event(), h11.EndOfMessage):
        assert event is not h11.NEED_DATA, f"not whole: {raw!r}"
        body += bytes(event.data) if isinstance(event, h11.Data) else b""
    return body


class LoopbackRouter:
    """Every name leads to a port of loopback; names in `failures` fail."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.ports: Final = ports
        self.failures: dict[str, DialReason] = {}
        self.proxy: UpstreamRoute | None = None
        """Where plain requests go instead."""
        self.dials: list[str] = []

    async def connect(self, target: RequestTarget) -> Streams:
        return await self._dial(target.host)

    def route(self, target: RequestTarget) -> UpstreamRoute:
        return self.proxy or UpstreamRoute(target.host, target.port)

    async def open(self, route: UpstreamRoute) -> Streams:
        return await self._dial(route.host)

    async def _dial(self, host: str) -> Streams:
        self.dials.append(host)
        if host in self.failures:
            raise DialFailed(self.failures[host], "agent one", f"{host} is broken")
        return await asyncio.open_connection("127.0.0.1", self.ports[host])


class ProxyTestbed:
    def __init__(self, router: LoopbackRouter, proxy: HttpProxy, listener: ProxyListener) -> None:
        self.router: Final = router
        self.proxy: Final = proxy
        self.listener: Final = listener
        self.metrics: Final = proxy.metrics
        self.peers: list[Peer] = []

    async def client(self) -> Peer:
        peer = Peer(await asyncio.open_connection(*self.listener.addresses[0]))
        self.peers.append(peer)
        return peer

    async def ask(self, request: bytes) -> bytes:
        """Send a request, read until the proxy ends the connection."""
        client = await self.client()
        await client.send(request)
        answer = await client.rest()
        client.close()
        return answer

    async def counts(self, line: str) -> None:
        """Wait until the metrics hold a line such as `umbilical_proxy_requests_total{…} 1`."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line not in self.metrics.render().decode().splitlines():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def proxying(
    ports: dict[str, int], limits: HttpLimits | None = None, default_connect_port: int | None = None, **listener: Any
) -> AsyncIterator[ProxyTestbed]:
    """`listener` are fields of ListenerSettings."""
    settings = ListenerSettings(listen=(ListenAddress("127.0.0.1", 0),), **listener)
    metrics = ProxyMetrics()
    router = LoopbackRouter(ports)
    proxy = HttpProxy(router, settings, metrics, limits or HttpLimits(), default_connect_port)
    port = ProxyListener(settings, proxy, metrics)
    port.listen("the HTTP proxy")
    testbed = ProxyTestbed(router, proxy, port)
    crashes = _Crashes()
    logging.getLogger("umbilical.proxies.listener").addHandler(crashes)
    try:
        yield testbed
    finally:
        for peer in testbed.peers:
            peer.reset()
        await port.close()
        await asyncio.sleep(0)
        logging.getLogger("umbilical.proxies.listener").removeHandler(crashes)
    assert not crashes.texts


@asynccontextmanager
async def between(behaviour: Behaviour, **settings: Any) -> AsyncIterator[tuple[Peer, Origin, ProxyTestbed]]:
    """A client, one origin server by the name of `a`, and the proxy between them."""
    async with origin(behaviour) as endpoint, proxying({"a": endpoint.port}, **settings) as testbed:
        yield await testbed.client(), endpoint, testbed


class _Crashes(logging.Handler):
    """No client may cause an unexpected exception."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
