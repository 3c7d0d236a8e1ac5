"""A dial through a server in mode grpc: one tunnel in a Proxy stream, as a transport.

Packets have no word for the end of one direction, so `can_write_eof()` is False: a program that has sent all closes,
and may lose what had not come by then.
"""

import asyncio
import time
from typing import Final, cast

from umbilical.dialer.connect import ENDPOINTS_OWN, broken
from umbilical.dialer.failure import DialFailed, Reason, reason_of_stream_end, reason_of_text
from umbilical.dialer.streams import Layer
from umbilical.dialer.trace import Trace, add_hop
from umbilical.tunnel.proxy_call import CHUNK_BYTES, ProxyCall

USER_AGENT: Final = b"umbilical-dialer"
FAREWELL_SECONDS: Final = 5.0
"""For the answer to CLOSE_REQ: a socket closed before it may take with it what the server has not read yet."""
SMALLEST_WINDOW_BYTES: Final = 65_535
"""RFC 9113 section 6.9.2: what every stream begins with."""


class GrpcLayer(Layer):
    def __init__(self, authority: str, is_secure: bool, buffer_bytes: int) -> None:
        super().__init__()
        self.call: Final = ProxyCall(
            authority.encode(),
            b"https" if is_secure else b"http",
            USER_AGENT,
            self._take,
            max(buffer_bytes, SMALLEST_WINDOW_BYTES),
        )
        self.error: Exception | None = None
        """What broke below, if anything did."""
        self._loop: Final = asyncio.get_running_loop()
        self._settled: Final[asyncio.Future[None]] = self._loop.create_future()
        """The dial was answered, or will not be."""
        self._waiting = bytearray()
        """Written by the program; the server's window or the socket has no room for it yet."""
        self._high, self._low = buffer_bytes, buffer_bytes // 4
        self._is_below_full = False
        self._holds_writer = False
        self._farewell: asyncio.TimerHandle | None = None

    async def dial(self, address: str) -> None:
        """Return when the dial is answered, for better or worse; or when the stream has ended: see `call`."""
        self.call.dial(address)
        self._flush()
        await self._settled

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.call.connection.receive_room()

    def buffer_updated(self, nbytes: int) -> None:
        self.call.received(nbytes)
        self._flush()
        self._pump()
        self._heed()

    def eof_received(self) -> bool:
        self.call.lost()
        self._heed()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._farewell is not None:
            self._farewell.cancel()
        self.error = exc
        self.call.lost()
        self._heed()
        self._tell_loss(exc)

    def pause_writing(self) -> None:
        self._is_below_full = True

    def resume_writing(self) -> None:
        self._is_below_full = False
        self._pump()

    def _take(self, view: memoryview) -> None:
        if not self._closing:
            self._deliver(view)

    def _heed(self) -> None:
        """See whether the dial was answered, or the tunnel has ended."""
        call = self.call
        if not self._settled.done() and (call.answer is not None or call.end is not None):
            self._settled.set_result(None)
        if call.end is None or self._below is None or self._lost:
            return
        if call.end and not self._closing:
            self._tell_loss(ConnectionResetError(call.end))
        else:
            self._tell_end()
        self._below.close()

    def pause_reading(self) -> None:
        """The socket is read on: the server's windows and pings come by the same way."""
        self._read_pauses = True
        self.call.hold_credit()

    def resume_reading(self) -> None:
        self._read_pauses = False
        self.call.release_credit()
        self._flush()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return len(self._waiting) + super().get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        self._waiting += data
        self._pump()

    def can_write_eof(self) -> bool:
        return False

    def write_eof(self) -> None:
        raise NotImplementedError("a tunnel through a gRPC frontend has no end of one direction: close it")

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self.resume_reading()
        self._pump()

    def _pump(self) -> None:
        waiting, call = self._waiting, self.call
        while waiting and call.has_room() and call.end is None and not self._is_below_full:
            chunk = bytes(waiting[:CHUNK_BYTES])
            del waiting[:CHUNK_BYTES]
            call.send(chunk)
            self._flush()
        self._mind_writer()
        if self._closing and not waiting and self._farewell is None:
            self._say_goodbye()

    def _mind_writer(self) -> None:
        size = len(self._waiting)
        if self._above is None or self._lost:
            return
        if not self._holds_writer and size > self._high:
            self._holds_writer = True
            self._above.pause_writing()
        elif self._holds_writer and size <= self._low:
            self._holds_writer = False
            self._above.resume_writing()

    def _say_goodbye(self) -> None:
        assert self._below is not None
        self._farewell = self._loop.call_later(FAREWELL_SECONDS, self._below.close)
        self.call.say_goodbye()
        self._flush()
        if self.call.end is not None or self.call.answer is None:
            self._below.close()

    def _flush(self) -> None:
        sender = self.call.connection.sender
        outbox = sender.outbox
        while self._below is not None and not outbox.is_empty():
            while (view := outbox.pending()) is not None:
                # A copy: a transport may keep what it cannot send, and the memory is used again.
                self._below.write(bytes(view))
                outbox.sent(len(view))
            sender.after_flush()


async def dial(layer: GrpcLayer, server: str, endpoint: str, seconds: float, trace: Trace | None) -> None:
    """Return when the layer leads to the endpoint. Raises DialFailed; the layer is then the caller's to abort."""
    started = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            await layer.dial(endpoint)
    except TimeoutError:
        text = f"no word on the dial within {seconds:g} s from the server or its agent"
        failure: DialFailed | None = DialFailed(Reason.SERVER, server, text)
    else:
        failure = _failure(layer, server, endpoint)
    add_hop(trace, "dial", started, endpoint, "" if failure is None else failure.text)
    if failure is not None:
        raise failure


def _failure(layer: GrpcLayer, server: str, endpoint: str) -> DialFailed | None:
    call = layer.call
    if call.answer is not None:
        if not call.answer.error:
            return None
        reason = reason_of_text(call.answer.error)
        return DialFailed(reason, endpoint if reason in ENDPOINTS_OWN else server, call.answer.error)
    violation = call.connection.sender.failure
    if violation is not None:
        return DialFailed(Reason.PROTOCOL, server, f"no HTTP/2: {violation.message}")
    if layer.error is not None:
        return broken(layer.error, server)
    text = call.end or "the server ended the stream without an answer"
    return DialFailed(reason_of_stream_end(text), server, text)
