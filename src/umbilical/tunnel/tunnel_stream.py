"""One tunnel's own stream between our ends: credit that follows the reader, and the ways to end it (docs/protocol.md).

The end that owns the stream reports what its reader has taken. The window, and so what may wait here, starts small and
grows only while the reader keeps up with bulk: on a short way slowly, on a long way in every round trip.
"""

from typing import Final

from umbilical.tunnel.round_trips import SizedWindow
from umbilical.tunnel.transport import LARGEST_TUNNEL_WINDOW_BYTES, NEAR_TUNNEL_WINDOW_BYTES, Transport
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import ANSWER_HEADERS

BULK_BYTES: Final = 32 * 1024
"""A frame of this size is bulk; requests and answers are smaller."""
GROWTH_SHIFT: Final = 3
"""On a short way the window doubles after eight windows of bulk: a reader that takes nothing seems to keep up with the
first one or two megabytes, which fit into the kernel's buffers."""


class TunnelStream(SizedWindow):
    def __init__(self, transport: Transport, stream: Stream) -> None:
        super().__init__(transport.measured(), transport.connection, stream)
        self._transport: Final = transport
        self._sender: Final = transport.connection.sender
        self._unanswered = False
        self._passed = 0
        """Bytes of bulk since the window last grew, or since the reader last fell behind."""
        self._total = 0
        """Bytes that the reader took since the tunnel was opened."""
        self._waiting = 0
        """Bytes that wait for the reader."""

    def answer_later(self) -> None:
        """Server: send the response headers with the first bytes, which saves a packet."""
        self._unanswered = True

    def answer(self) -> None:
        if self._unanswered:
            self._unanswered = False
            self._sender.send_headers(self.stream, ANSWER_HEADERS)

    def arrived(self, size: int, kept: int) -> None:
        """So many bytes came, and `kept` of them wait for the reader. Called while the transport reads."""
        stream = self.stream
        if kept:
            self._passed = 0
            self._waiting += kept
        elif size >= BULK_BYTES:
            self._passed += size
            if self._passed >= stream.window << GROWTH_SHIFT and stream.window < NEAR_TUNNEL_WINDOW_BYTES:
                self._passed = 0
                self.grow(stream.window << 1)
        self._took(size - kept)

    def taken(self, count: int) -> None:
        """The reader took so many waiting bytes."""
        self._waiting -= count
        self._took(count)
        if not self._sender.outbox.is_empty():
            self._transport.touch()

    def _took(self, count: int) -> None:
        self._total += count
        self.count(count)
        self._connection.credit(self.stream, count)

    def round_over(self, share: float) -> None:
        """Beyond what a short way needs, the window is at most three quarters of what the reader took: the kernel's
        buffers take two megabytes for a reader that takes nothing."""
        window = self.stream.window
        wanted = min(self.wanted(share), LARGEST_TUNNEL_WINDOW_BYTES)
        if self._waiting > window >> 2:
            if wanted < window >> 1:
                self._connection.shrink(self.stream, max(wanted, NEAR_TUNNEL_WINDOW_BYTES))
            return
        wanted = min(wanted, max(NEAR_TUNNEL_WINDOW_BYTES, self._total - (self._total >> 2)))
        if wanted > window:
            self.grow(wanted)

    def end(self) -> None:
        """Our side sends no more."""
        self.answer()
        self._sender.close_sending(self.stream)
        self._transport.touch()

    def close(self) -> None:
        """Our side sends no more and reads no more; what it sent still arrives."""
        self.answer()
        self._transport.unpark(self.stream)
        self._sender.close_both(self.stream)
        self._transport.touch()

    def abort(self, code: int) -> None:
        """Reset the stream with an HTTP/2 error code."""
        self._transport.unpark(self.stream)
        self._sender.abort(self.stream, code)
        self._transport.touch()
