"""Relays bytes between a client and an endpoint until both have ended: an EOF ends one direction only.

What was received before an error is delivered first. Memory is limited by the buffers. The two transports call each
other directly: no task wakes up for data.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from umbilical.dialer.streams import Streams
from umbilical.konnectivity.dial_failure import join_host_port
from umbilical.proxies.metrics import ByteCount, Traffic
from umbilical.record import Record

tunnels = logging.getLogger("umbilical.tunnels")

CHUNK_BYTES: Final = 256 * 1024
"""As much as asyncio reads from a socket at once."""
HALF_CLOSED_SECONDS: Final = 120.0
"""Idle limit after one side has ended and the other cannot be half-closed. The server has the same limit."""
LAST_BYTES_SECONDS: Final = 10.0
"""Idle limit for the last bytes to a peer."""
LINGER_SECONDS: Final = 2.0
"""After an error: time for the client to read its last bytes before a reset destroys them."""


class RelayLimits(Record):
    idle_seconds: float = 0.0
    """Close when no byte has moved for this long in either direction; 0: never."""
    buffer_bytes: int = 256 * 1024
    """Write buffer per direction; one more read may be added to it."""


class RelayEnding(Record):
    """How a relay ended, for the log."""

    to_endpoint: int
    to_client: int
    reason: str
    """Empty: both sides ended normally."""


Now = Callable[[], float]


def log_tunnel(client: asyncio.StreamWriter, target: str, ending: RelayEnding, early: int, began: float) -> None:
    """`early`: bytes that the client sent before the relay began."""
    tunnels.info(
        'tunnel client=%s target=%s up=%d down=%d ms=%d end="%s"',
        *(peer_of(client), target, ending.to_endpoint + early, ending.to_client),
        *(_milliseconds_since(began), ending.reason or "both sides ended"),
    )


def log_request(client: asyncio.StreamWriter, target: str, method: str, began: float) -> None:
    ms = _milliseconds_since(began)
    tunnels.info("request client=%s target=%s method=%s ms=%d", peer_of(client), target, method, ms)


def peer_of(client: asyncio.StreamWriter) -> str:
    found = client.get_extra_info("peername")
    return join_host_port(found[0], found[1]) if isinstance(found, tuple) else "unknown"


def _milliseconds_since(began: float) -> int:
    return int((time.monotonic() - began) * 1000)


async def relay(
    client: Streams, endpoint: Streams, limits: RelayLimits, traffic: Traffic, now: Now = time.monotonic
) -> RelayEnding:
    """Relay until both directions have ended, one has failed, or the idle limit is reached; then close both.

    If cancelled, it aborts both.
    """
    work = _Relay(client, endpoint, limits, traffic, now)
    try:
        reason = await work.run()
        if not work.both_ended():
            await linger(*client)
        await flush(endpoint[1])
        await flush(client[1])
    finally:
        cut(endpoint[1])
        cut(client[1])
    return RelayEnding(work.client.moved, work.endpoint.moved, reason)


async def part(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close a connection after its peer has received everything."""
    if not writer.transport.is_closing():
        await linger(reader, writer)
        await flush(writer)


async def linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read to the end first: closing a socket with unread input sends a reset, which may destroy unread output."""
    if writer.transport.is_closing() or not writer.can_write_eof():
        return
    with suppress(OSError, TimeoutError):
        writer.write_eof()
        async with asyncio.timeout(LINGER_SECONDS):
            while await reader.read(CHUNK_BYTES):
                pass


async def flush(writer: asyncio.StreamWriter) -> None:
    """Close, and wait while the peer reads what is left."""
    if not writer.transport.is_closing():  # asyncio's TLS discards unsent data when closed twice
        writer.close()
    if not unsent(writer):
        return
    closing = asyncio.get_running_loop().create_task(writer.wait_closed())
    left = -1
    try:
        while not closing.done() and unsent(writer) != left:
            left = unsent(writer)
            await asyncio.wait({closing}, timeout=LAST_BYTES_SECONDS)
    finally:
        cut(writer)
        closing.cancel()
        await asyncio.wait({closing})


def cut(writer: asyncio.StreamWriter) -> None:
    """Close at once and discard unsent data. asyncio's abort fails right after a completed close."""
    if not writer.transport.is_closing() or unsent(writer):
        writer.transport.abort()


def unsent(writer: asyncio.StreamWriter) -> int:
    try:
        return writer.transport.get_write_buffer_size()
    except AttributeError:
        return 0  # asyncio's TLS after a close


class _End(asyncio.Protocol):
    """One side of the relay: writes what its transport reads to the other side's transport."""

    def __init__(self, streams: Streams, relay: "_Relay", count: ByteCount) -> None:
        self.reader, self.writer = streams
        transport = self.writer.transport
        assert isinstance(transport, asyncio.Transport)
        before = transport.get_protocol()
        assert isinstance(before, asyncio.Protocol)
        self.transport: Final = transport
        self.other: _End = self
        self.moved = 0
        """Bytes read here and written to the other side."""
        self.ended = False
        self._lost = False
        self._before: Final = before
        """The streams' own protocol: gets the transport's state changes now, and data again after the relay."""
        self._relay: Final = relay
        self._count: Final = count

    def take_over(self) -> None:
        self.transport.set_write_buffer_limits(self._relay.limits.buffer_bytes)
        self.transport.set_protocol(self)
        self.transport.resume_reading()

    def begin(self) -> None:
        """Forward what the reader has buffered. Both ends must have taken over, for flow control."""
        # Both exist in every CPython, but not in the published types; reading would wait.
        held: bytearray = getattr(self.reader, "_buffer")  # noqa: B009
        ended: bool = getattr(self.reader, "_eof")  # noqa: B009
        if held:
            data = bytes(held)
            held.clear()
            self.data_received(data)
        if (error := self.reader.exception()) is not None:
            self._relay.over(_words(error))
        elif ended:
            self.eof_received()
        elif self.transport.is_closing():
            self._relay.over(_words(None))

    def give_back(self) -> None:
        """Return the transport to the streams, which close it."""
        if self._lost:
            return
        self.transport.set_protocol(self._before)
        if self.ended:
            self._before.eof_received()
        self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        other = self.other.transport
        if other.is_closing():
            self._relay.over(_words(None))
            return
        other.write(data)
        self.moved += len(data)
        self._count.total += len(data)
        self._relay.moved_at = self._relay.now()

    def eof_received(self) -> bool:
        self.ended = True
        self._relay.end_of(self)
        # asyncio's TLS cannot stay open for writing, and warns if asked to.
        return self.transport.can_write_eof()

    def pause_writing(self) -> None:
        self._before.pause_writing()
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self._before.resume_writing()
        self._relay.moved_at = self._relay.now()
        self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._before.connection_lost(exc)
        self._relay.over("" if exc is None and self.ended else _words(exc))


def _words(error: Exception | None) -> str:
    if error is None:
        return "the other side disconnected"
    return str(error) or type(error).__name__


class _Relay:
    def __init__(self, client: Streams, endpoint: Streams, limits: RelayLimits, traffic: Traffic, now: Now) -> None:
        self.limits: Final = limits
        self.now: Final = now
        self.moved_at = now()
        self.client: Final = _End(client, self, traffic.to_endpoint)
        self.endpoint: Final = _End(endpoint, self, traffic.to_client)
        self.client.other, self.endpoint.other = self.endpoint, self.client
        self._eof_stuck = False
        """A peer cannot be half-closed."""
        self._over: Final[asyncio.Future[str]] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> str:
        """Return why it ended; empty for a normal end."""
        ends = (self.client, self.endpoint)
        if not await self._writable():
            return "idle"
        for end in ends:
            end.take_over()
        try:
            for end in ends:
                end.begin()
            self._check_idle()
            return await self._over
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for end in ends:
                end.give_back()

    async def _writable(self) -> bool:
        """Wait until both can be written: a full transport has notified the streams, not the relay."""
        if not unsent(self.endpoint.writer) and not unsent(self.client.writer):
            return True
        try:
            async with asyncio.timeout(self.limits.idle_seconds or None):
                await self.endpoint.writer.drain()
                await self.client.writer.drain()
        except TimeoutError:
            return False
        except OSError:
            pass  # what was received is delivered first; then the error occurs again
        return True

    def end_of(self, end: _End) -> None:
        """Half-close the other side, if it can be."""
        transport = end.other.transport
        if not transport.is_closing():
            if transport.can_write_eof():
                transport.write_eof()
            else:
                self._eof_stuck = True
                self._check_idle()
        if self.both_ended():
            self.over("")

    def both_ended(self) -> bool:
        return self.client.ended and self.endpoint.ended

    def over(self, reason: str) -> None:
        if not self._over.done():
            self._over.set_result(reason)

    def _check_idle(self) -> None:
        """End the relay if it is idle for too long; otherwise check again when it may be."""
        idle = self.limits.idle_seconds
        if self._eof_stuck:
            idle = min(idle or HALF_CLOSED_SECONDS, HALF_CLOSED_SECONDS)
        if self._timer is not None:
            self._timer.cancel()
        if not idle:
            return
        left = self.moved_at + idle - self.now()
        if left > 0:
            self._timer = asyncio.get_running_loop().call_later(left, self._check_idle)
        else:
            self.over("idle")
