"""Bytes both ways between a client and an endpoint, until both have ended: one EOF ends one direction alone.

What was received before an error is delivered first. Neither side can make this one hold more than its buffers.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from umbilical.dialer.opener import Streams
from umbilical.proxies.metrics import ByteCount, Traffic
from umbilical.record import Record

CHUNK_BYTES: Final = 256 * 1024
"""As much as asyncio takes from a socket in one turn."""
HALF_CLOSED_SECONDS: Final = 120.0
"""One side has ended, the other cannot be told so, and nothing moves: then it is over. As the server's own limit."""
LAST_BYTES_SECONDS: Final = 10.0
"""A peer that takes nothing of its last bytes for so long does not get them."""
LINGER_SECONDS: Final = 2.0
"""After an error: for the client to read its last bytes before a reset could destroy them."""


class RelayLimits(Record):
    idle_seconds: float = 0.0
    """No byte for so long, in either direction: closed. 0: never."""
    buffer_bytes: int = 256 * 1024
    """What may wait to be written, per direction."""


class Ending(Record):
    """How a relay ended, for the log."""

    to_endpoint: int
    to_client: int
    reason: str
    """Empty: both sides ended in order."""


Now = Callable[[], float]


async def relay(
    client: Streams, endpoint: Streams, limits: RelayLimits, traffic: Traffic, now: Now = time.monotonic
) -> Ending:
    """Carry until both directions have ended, one has failed, or nothing moves; then both are closed.

    Cancelled, it cuts both at once.
    """
    work = _Relay(client, endpoint, limits, traffic, now)
    try:
        reason = await work.run()
        await work.finish(reason)
    finally:
        work.abort()
    return Ending(work.up.moved, work.down.moved, reason)


async def part(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close one connection so that its peer gets all that was written for it."""
    if not writer.transport.is_closing():
        await linger(reader, writer)
        await flush(writer)


async def linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """To close a socket with unread input sends a reset, which may destroy what the peer has not read yet."""
    if writer.transport.is_closing() or not writer.can_write_eof():
        return
    with suppress(OSError, TimeoutError):
        writer.write_eof()
        async with asyncio.timeout(LINGER_SECONDS):
            while await reader.read(CHUNK_BYTES):
                pass


async def flush(writer: asyncio.StreamWriter) -> None:
    """Close, and wait while the peer takes what is left."""
    transport = writer.transport
    writer.close()
    if not transport.get_write_buffer_size():
        return
    closing = asyncio.get_running_loop().create_task(writer.wait_closed())
    left = -1
    try:
        while not closing.done() and transport.get_write_buffer_size() != left:
            left = transport.get_write_buffer_size()
            await asyncio.wait({closing}, timeout=LAST_BYTES_SECONDS)
    finally:
        cut(writer)
        closing.cancel()
        await asyncio.wait({closing})


def cut(writer: asyncio.StreamWriter) -> None:
    """Close at once, whatever waits to be written. asyncio's own abort fails where a close has just ended."""
    if not writer.transport.is_closing() or writer.transport.get_write_buffer_size():
        writer.transport.abort()


class _Direction:
    """One way: what it reads from, what it writes to, and what has passed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: ByteCount, now: Now) -> None:
        self.reader: Final = reader
        self.writer: Final = writer
        self.moved = 0
        self.moved_at = now()
        self.eof_stuck = False
        """The peer behind `writer` cannot be told that no more will come."""
        self._count: Final = count
        self._now: Final = now

    async def carry(self, buffer_bytes: int) -> None:
        """Raises OSError when either end breaks."""
        read, writer, transport = self.reader.read, self.writer, self.writer.transport
        now = self._now
        while data := await read(CHUNK_BYTES):
            if transport.is_closing():
                raise ConnectionResetError("the other side is gone")
            writer.write(data)
            self._moved(len(data), now())
            if transport.get_write_buffer_size() > buffer_bytes:
                await writer.drain()
                self.moved_at = now()
        self._end()

    def _moved(self, count: int, now: float) -> None:
        self.moved += count
        self.moved_at = now
        self._count.total += count

    def _end(self) -> None:
        if self.writer.transport.is_closing():
            return
        if self.writer.can_write_eof():
            self.writer.write_eof()
        else:
            self.eof_stuck = True

    def deliver_rest(self) -> None:
        """After an error a StreamReader gives nothing more, though it may hold bytes from before it."""
        rest = bytes(getattr(self.reader, "_buffer", b""))  # in every CPython, but in no published type
        if self.reader.exception() is not None and rest and not self.writer.transport.is_closing():
            self.writer.write(rest)
            self._moved(len(rest), self.moved_at)


class _Relay:
    def __init__(self, client: Streams, endpoint: Streams, limits: RelayLimits, traffic: Traffic, now: Now) -> None:
        self._limits: Final = limits
        self._now: Final = now
        self.up: Final = _Direction(client[0], endpoint[1], traffic.to_endpoint, now)
        self.down: Final = _Direction(endpoint[0], client[1], traffic.to_client, now)
        for direction in (self.up, self.down):
            direction.writer.transport.set_write_buffer_limits(high=limits.buffer_bytes)

    async def run(self) -> str:
        """Why it ended; empty when both directions have ended in order."""
        loop = asyncio.get_running_loop()
        carried = self._limits.buffer_bytes
        tasks = {loop.create_task(self.up.carry(carried)), loop.create_task(self.down.carry(carried))}
        try:
            return await self._until_over(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _until_over(self, tasks: "set[asyncio.Task[None]]") -> str:
        pending = set(tasks)
        while pending:
            left = self._seconds_left()
            if left is not None and left <= 0:
                return "idle"
            done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if (error := task.exception()) is not None:
                    return str(error) or type(error).__name__
        return ""

    def _seconds_left(self) -> float | None:
        """Until nothing will have moved for too long; None: no limit."""
        idle = self._limits.idle_seconds
        if self.up.eof_stuck or self.down.eof_stuck:
            idle = min(idle or HALF_CLOSED_SECONDS, HALF_CLOSED_SECONDS)
        return max(self.up.moved_at, self.down.moved_at) + idle - self._now() if idle else None

    async def finish(self, reason: str) -> None:
        if reason:
            self.up.deliver_rest()
            self.down.deliver_rest()
            await linger(self.up.reader, self.down.writer)
        await flush(self.up.writer)
        await flush(self.down.writer)

    def abort(self) -> None:
        """Nothing after an orderly end; where it was cut short, neither side is left open."""
        cut(self.up.writer)
        cut(self.down.writer)
