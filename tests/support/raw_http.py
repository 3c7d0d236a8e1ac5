"""A raw client of the health and admin ports, and a listener for the time of one conversation."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from umbilical.tunnel.http_server import HttpListener, HttpRoutes
from umbilical.tunnel.settings import ListenAddress

LOOPBACK: Final = ListenAddress("127.0.0.1", 0)
PATIENCE_SECONDS: Final = 60


class Client:
    """A raw HTTP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Errors are ignored: the listener may close early, and `rest` then returns."""
        self._writer.write(data)
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def reply(self) -> tuple[bytes, bytes]:
        """Return one head and its body, by content-length."""
        head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), PATIENCE_SECONDS)
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return head, await asyncio.wait_for(self._reader.readexactly(length), PATIENCE_SECONDS)

    async def finish(self) -> None:
        """Half-close: nothing more will be sent."""
        self._writer.write_eof()

    async def rest(self) -> bytes:
        try:
            return await asyncio.wait_for(self._reader.read(), PATIENCE_SECONDS)
        except ConnectionError:
            return b""

    async def close(self) -> None:
        """The listener may have reset the connection."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


async def dial(listener: HttpListener) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", listener.port))


@contextlib.asynccontextmanager
async def served(routes: HttpRoutes, max_connections: int = 256) -> AsyncIterator[HttpListener]:
    listener = HttpListener(LOOPBACK, routes, max_connections)
    await listener.start()
    try:
        yield listener
    finally:
        await asyncio.wait_for(listener.stop(), PATIENCE_SECONDS)


@contextlib.asynccontextmanager
async def talking(routes: HttpRoutes) -> AsyncIterator[Client]:
    """One client of a listener with these routes."""
    async with served(routes) as listener:
        client = await dial(listener)
        yield client
        await client.close()
