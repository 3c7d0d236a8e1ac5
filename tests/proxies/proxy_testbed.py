"""A scripted HTTP proxy on loopback: answers CONNECT, plain or over TLS, and records requests."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Final

from umbilical.dialer.failure import DialFailed
from umbilical.dialer.streams import Streams

ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


class ScriptedProxy:
    """Sends `reply`, then echoes. `requests` holds whole heads."""

    def __init__(self, reply: bytes = ESTABLISHED, tls: ssl.SSLContext | None = None) -> None:
        self.reply = reply
        self.closes = False
        """Bytes after its reply."""
        self.requests: list[str] = []
        self.port = 0
        self._tls: Final = tls
        self._writers: Final[set[asyncio.StreamWriter]] = set()

    async def __aenter__(self) -> "ScriptedProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(self.reply)
            while not self.closes and (octets := await reader.read(1 << 16)):
                writer.write(octets)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def tls_in_front_of(port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    """A port that terminates TLS and forwards to this one, as a tunnel's server does."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while octets := await reader.read(1 << 16):
                writer.write(octets)
                await writer.drain()
        writer.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as group:
            group.create_task(copy(reader, inner_writer))
            group.create_task(copy(inner_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


class Loopback:
    """Opens one port of loopback for every host: tests never look up names."""

    def __init__(self, port: int = 0) -> None:
        self._port: Final = port
        self.dials: list[tuple[str, int]] = []
        self.failure: DialFailed | None = None

    async def open(self, host: str, port: int) -> Streams:
        self.dials.append((host, port))
        if self.failure is not None:
            raise self.failure
        return await asyncio.open_connection("127.0.0.1", self._port)
