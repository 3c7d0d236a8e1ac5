"""One tunnel's own stream between our ends: credit that follows the reader, and the ways to end it (docs/protocol.md).

Who owns the stream (a client at the server, an endpoint at the agent) says what its reader has taken; the window, and
so what may wait here, starts small and grows only while the reader keeps up with bulk.
"""

from typing import Final

from umbilical.tunnel.transport import LARGEST_TUNNEL_WINDOW_BYTES, Transport
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import ANSWER_HEADERS

BULK_BYTES: Final = 32 * 1024
"""A frame of this size means that the sender has more; those of requests and answers are smaller."""
GROWTH_SHIFT: Final = 3
"""Eight windows of bulk must pass before it is doubled: a reader that stands still seems to keep up with the first one
or two megabytes, which the kernel's buffers swallow."""


class TunnelStream:
    def __init__(self, transport: Transport, stream: Stream) -> None:
        self.stream: Final = stream
        self._transport: Final = transport
        self._connection: Final = transport.connection
        self._sender: Final = transport.connection.sender
        self._unanswered = False
        self._passed = 0
        """Bytes of bulk since the window last grew, or since the reader last fell behind."""

    def answer_later(self) -> None:
        """The server's: its answer goes out with its first bytes, and so costs no packet of its own."""
        self._unanswered = True

    def answer(self) -> None:
        if self._unanswered:
            self._unanswered = False
            self._sender.send_headers(self.stream, ANSWER_HEADERS)

    def arrived(self, size: int, kept: int) -> None:
        """So many bytes came, of which so many still wait for the reader. Called while the transport reads."""
        stream = self.stream
        if kept:
            self._passed = 0
        elif size >= BULK_BYTES:
            self._passed += size
            if self._passed >= stream.window << GROWTH_SHIFT and stream.window < LARGEST_TUNNEL_WINDOW_BYTES:
                self._passed = 0
                self._connection.enlarge(stream, stream.window << 1)
        self._connection.credit(stream, size - kept)

    def taken(self, count: int) -> None:
        """The reader took so many bytes that had waited."""
        self._connection.credit(self.stream, count)
        if not self._sender.outbox.is_empty():
            self._transport.touch()

    def end(self) -> None:
        """Our side sends no more."""
        self.answer()
        self._sender.close_sending(self.stream)
        self._transport.touch()

    def close(self) -> None:
        """Our side sends no more and reads no more; what it sent still counts."""
        self.answer()
        self._transport.unpark(self.stream)
        self._sender.close_both(self.stream)
        self._transport.touch()

    def abort(self, code: int) -> None:
        """Our side broke off; `code` is HTTP/2's."""
        self._transport.unpark(self.stream)
        self._sender.abort(self.stream, code)
        self._transport.touch()
