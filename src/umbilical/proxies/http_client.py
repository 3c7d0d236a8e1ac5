"""A client's connection to a proxy: reads with push-back, and a timeout for every wait."""

import asyncio
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from umbilical.dialer.streams import Streams
from umbilical.proxies.http_head import BadRequest, HeadLimits, HeadReader, RequestHead
from umbilical.proxies.relay import HALF_CLOSED_SECONDS, flush
from umbilical.tunnel.time_limit import time_limit

READ_BYTES: Final = 64 * 1024
LINGER_SECONDS: Final = 2.0
LINGER_BYTES: Final = 1024 * 1024
"""Read and discard up to this much of a refused client: a reset would destroy the response."""


_AT_ONCE: Final = struct.pack("ii", 1, 0)


class ClientGone(Exception):
    """The client disconnected or timed out within a request; no response is possible."""


class ProxyClient:
    def __init__(self, streams: Streams, idle_seconds: float) -> None:
        self.streams: Final = streams
        self._reader, self._writer = streams
        self._idle_seconds: Final = idle_seconds or None
        self._rest = b""
        self._written = 0
        self._is_between = False

    @property
    def is_idle(self) -> bool:
        """No request has begun: none would be lost by closing."""
        # Exists in every CPython, but not in the published types.
        return self._is_between and not getattr(self._reader, "_buffer")  # noqa: B009

    async def receive(self) -> bytes:
        """Return bytes; b"" at the end. Raises TimeoutError past the idle limit, and OSError."""
        with time_limit(self._idle_seconds):
            return await self._next()

    async def _next(self) -> bytes:
        return self.take_rest() or await self._reader.read(READ_BYTES)

    def unread(self, data: bytes) -> None:
        self._rest = data + self._rest

    def take_rest(self) -> bytes:
        rest, self._rest = self._rest, b""
        return rest

    async def until_gone(self) -> None:
        """Return when the client has disconnected. Keeps what arrives meanwhile, up to a limit."""
        try:
            while len(self._rest) < READ_BYTES:
                data = await self._reader.read(READ_BYTES)
                if not data:
                    await self._until_stalled()
                    return
                self._rest += data
        except OSError:
            return
        await asyncio.get_running_loop().create_future()

    async def _until_stalled(self) -> None:
        """After a half-close: return when the client does not read its response either."""
        seen = -1
        while seen != self._written:
            seen = self._written
            await asyncio.sleep(HALF_CLOSED_SECONDS)

    async def write(self, pieces: Iterable[bytes]) -> None:
        """Raises TimeoutError for a client that does not read, and OSError."""
        if self._writer.transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        self._writer.write(b"".join(pieces))
        self._written += 1
        with time_limit(self._idle_seconds):
            await self._writer.drain()

    async def read_head(self, limits: HeadLimits, wait_seconds: float, head_seconds: float) -> RequestHead | None:
        """Return the next request's head; None if there is none. Raises BadRequest."""
        self._is_between = True
        try:
            with time_limit(wait_seconds):
                first = await self._next()
        except (TimeoutError, OSError):
            return None
        finally:
            self._is_between = False
        try:
            with time_limit(head_seconds):
                return await self._collect_head(HeadReader(limits), first)
        except TimeoutError:
            raise BadRequest(408, f"request head not complete {head_seconds:g} s after its first byte") from None

    async def _collect_head(self, reader: HeadReader, data: bytes) -> RequestHead | None:
        while data:
            head = reader.feed(data)
            if head is not None:
                self.unread(reader.rest)
                return head
            data = await self._next()
        if reader.has_begun:
            raise BadRequest(400, "the connection ended within a request head")
        return None

    def abort(self) -> None:
        """Close with a reset: an orderly end would look like the end of an unframed response."""
        sock = self._writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()

    async def linger(self) -> None:
        """Close after a response that the client may not have read yet."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                await self._writer.drain()
                if self._writer.can_write_eof():
                    self._writer.write_eof()
                await self._discard()
        await flush(self._writer)

    async def _discard(self) -> None:
        left = LINGER_BYTES
        while left > 0 and (data := await self._reader.read(READ_BYTES)):
            left -= len(data)
