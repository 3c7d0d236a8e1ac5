"""The client's end of a proxy's connection: bytes with a way to give them back, and every wait with a limit."""

import asyncio
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from umbilical.dialer.streams import Streams
from umbilical.proxies.http_head import BadRequest, HeadLimits, HeadReader, RequestHead
from umbilical.proxies.relay import HALF_CLOSED_SECONDS, flush

READ_BYTES: Final = 64 * 1024
LINGER_SECONDS: Final = 2.0
LINGER_BYTES: Final = 1024 * 1024
"""A client that still sends while it is refused would lose the answer to a reset: so much is read and thrown away."""


_AT_ONCE: Final = struct.pack("ii", 1, 0)


class ClientGone(Exception):
    """It ended or fell silent in the middle of what it was sending; there is nobody to answer."""


class ClientConnection:
    def __init__(self, streams: Streams, idle_seconds: float) -> None:
        self.streams: Final = streams
        self._reader, self._writer = streams
        self._idle_seconds: Final = idle_seconds or None
        self._rest = b""
        self._written = 0
        self._is_between = False

    @property
    def is_idle(self) -> bool:
        """It has asked for nothing, not even in part: no request would be lost by an end of ours."""
        # In every CPython, but in no published type.
        return self._is_between and not getattr(self._reader, "_buffer")  # noqa: B009

    async def receive(self) -> bytes:
        """b"" is the end. Raises TimeoutError past the idle limit, and OSError."""
        async with asyncio.timeout(self._idle_seconds):
            return await self._next()

    async def _next(self) -> bytes:
        return self.take_rest() or await self._reader.read(READ_BYTES)

    def unread(self, data: bytes) -> None:
        self._rest = data + self._rest

    def take_rest(self) -> bytes:
        rest, self._rest = self._rest, b""
        return rest

    async def until_gone(self) -> None:
        """Keep what comes meanwhile, up to a bound past which nothing more is seen; an end may be half a one."""
        try:
            while len(self._rest) < READ_BYTES:
                data = await self._reader.read(READ_BYTES)
                if not data:
                    await self._until_still()
                    return
                self._rest += data
        except OSError:
            return
        await asyncio.get_running_loop().create_future()

    async def _until_still(self) -> None:
        """It ended its side, as it may, and is gone only when it takes nothing of its answer either."""
        seen = -1
        while seen != self._written:
            seen = self._written
            await asyncio.sleep(HALF_CLOSED_SECONDS)

    async def write(self, pieces: Iterable[bytes]) -> None:
        """Raises TimeoutError for a client that takes nothing, and OSError."""
        if self._writer.transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self._writer.write(b"".join(pieces))
        self._written += 1
        async with asyncio.timeout(self._idle_seconds):
            await self._writer.drain()

    async def read_head(self, limits: HeadLimits, wait_seconds: float, head_seconds: float) -> RequestHead | None:
        """The next request's; None if there is none. Raises BadRequest."""
        self._is_between = True
        try:
            async with asyncio.timeout(wait_seconds):
                first = await self._next()
        except (TimeoutError, OSError):
            return None
        finally:
            self._is_between = False
        try:
            async with asyncio.timeout(head_seconds):
                return await self._collect_head(HeadReader(limits), first)
        except TimeoutError:
            raise BadRequest(408, f"no whole head within {head_seconds:g} s of its first byte") from None

    async def _collect_head(self, reader: HeadReader, data: bytes) -> RequestHead | None:
        while data:
            head = reader.feed(data)
            if head is not None:
                self.unread(reader.rest)
                return head
            data = await self._next()
        if reader.has_begun:
            raise BadRequest(400, "the connection ended in the middle of a head")
        return None

    def abort(self) -> None:
        """By a reset: an end in order would look like the end of an answer that has no other."""
        sock = self._writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()

    async def linger(self) -> None:
        """Close behind an answer that the client may not have read yet."""
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
