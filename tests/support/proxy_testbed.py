"""Parts of a proxy in the test's own loop: an opener on loopback, endpoints, a SOCKS5 client."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from tests.support.coroutines import PATIENCE_SECONDS, play

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.streams import Opener, Streams
from umbilical.proxies.listener import ProxyListener
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.settings import ListenerSettings
from umbilical.proxies.socks5 import Socks5, Socks5Credentials
from umbilical.tunnel.settings import ListenAddress

LOOPBACK: Final = ListenAddress("127.0.0.1", 0)
HELLO: Final = b"\x05\x01\x00"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]

__all__ = ["LOOPBACK", "PATIENCE_SECONDS", "play"]


class LoopbackOpener:
    """Dials without a tunnel; `failures` and `names` replace the agents' answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.failures: dict[str, DialFailed] = {}
        self.names: dict[str, str] = {}

    async def open(self, host: str, port: int) -> Streams:
        self.asked.append((host, port))
        if host in self.failures:
            raise self.failures[host]
        address = self.names.get(host, host)
        assert address in ("127.0.0.1", "::1")
        try:
            return await asyncio.open_connection(address, port)
        except ConnectionRefusedError as error:
            raise DialFailed(DialReason.REFUSED, f"{host}:{port}", "connection refused") from error


class PendingOpener:
    """Every dial hangs until the test lets it go."""

    def __init__(self) -> None:
        self.asked: Final = asyncio.Event()
        self.cancelled: Final = asyncio.Event()

    async def open(self, host: str, port: int) -> Streams:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        raise AssertionError


@asynccontextmanager
async def endpoint(answer: Answer, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A TCP server, and its port. `answer` serves each connection, which is closed after it."""

    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await answer(reader, writer)
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, host, 0, backlog=4096)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        while tasks:
            for task in list(tasks):
                task.cancel()
            await asyncio.wait(tasks)
        await asyncio.sleep(0)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


class Proxy:
    """A running SOCKS5 listener."""

    def __init__(self, listener: ProxyListener, metrics: ProxyMetrics) -> None:
        self.listener: Final = listener
        self.metrics: Final = metrics

    @property
    def port(self) -> int:
        return self.listener.addresses[0][1]

    async def connect(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def opened(self, port: int) -> Streams:
        """A client that is connected to this port of loopback."""
        client = await self.connect()
        assert await ask(client, "127.0.0.1", port) == 0
        return client

    async def told(self, octets: bytes) -> bytes:
        """Return everything that a client receives after sending this."""
        reader, writer = await self.connect()
        writer.write(octets)
        answer = await rest_of(reader)
        await drop((reader, writer))
        return answer

    def sample(self, text: str) -> float:
        return sample(self.metrics, text)


def sample(metrics: ProxyMetrics, text: str) -> float:
    """Return the value of a metric with labels; 0 if there is none."""
    for line in metrics.render().decode().splitlines():
        name, _, value = line.rpartition(" ")
        if name == text:
            return float(value)
    return 0.0


@asynccontextmanager
async def socks5_proxy(
    opener: Opener, credentials: Socks5Credentials | None = None, **settings: Any
) -> AsyncIterator[Proxy]:
    metrics = ProxyMetrics()
    made = ListenerSettings(**({"listen": (LOOPBACK,)} | settings))
    listener = ProxyListener(made, Socks5(made, opener, metrics, credentials), metrics)
    listener.listen("SOCKS5")
    try:
        yield Proxy(listener, metrics)
    finally:
        await listener.close()


def connect_request(host: str, port: int) -> bytes:
    """As curl and PySocks write it: addresses as addresses, all else as names."""
    for family, kind in ((socket.AF_INET, 1), (socket.AF_INET6, 4)):
        with suppress(OSError):
            return bytes((5, 1, 0, kind)) + socket.inet_pton(family, host) + struct.pack(">H", port)
    return bytes((5, 1, 0, 3, len(host))) + host.encode() + struct.pack(">H", port)


async def reply_code(reader: asyncio.StreamReader) -> int:
    """Read one reply; return its code."""
    head = await reader.readexactly(4)
    assert head[0] == 5
    await reader.readexactly((16 if head[3] == 4 else 4) + 2)
    return head[1]


async def ask(streams: Streams, host: str, port: int) -> int:
    """Send greeting and request; return the code of the reply."""
    reader, writer = streams
    writer.write(HELLO + connect_request(host, port))
    assert await reader.readexactly(2) == b"\x05\x00"
    return await reply_code(reader)


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Read to the end, which may be a reset."""
    received = bytearray()
    with suppress(ConnectionResetError):
        while data := await reader.read(1 << 16):
            received += data
    return bytes(received)


async def eventually(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not fact():
            await asyncio.sleep(0.002)


async def drop(streams: Streams) -> None:
    """Close a client's connection, in any state."""
    streams[1].close()
    with suppress(OSError):
        await streams[1].wait_closed()
