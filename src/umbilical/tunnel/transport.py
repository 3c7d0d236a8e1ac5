"""An HTTP/2 connection on a channel: one read, one flush per turn, and the only back-pressure there is.

Whoever has payload takes turns, one quantum each; who finds no room (`wait`) stands in line until a flush or a
WINDOW_UPDATE made some.
"""

from collections import deque
from typing import Final

from umbilical.tunnel.channel import AGAIN, END, Channel, Owner
from umbilical.tunnel.loop import Loop
from umbilical.wire import grpc
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import Block, BlockPool
from umbilical.wire.http2.connection import Connection
from umbilical.wire.http2.events import ConnectionEvent, ConnectionFailed, DataReceived, SettingsReceived, WindowOpened
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.streams import HALF_CLOSED_LOCAL, Stream

KIB: Final = 1024
BIG_BLOCK_BYTES: Final = 512 * KIB
"""Outgoing block of a connection between server and agent; measured: 256 KiB is slower, 1 MiB gains nothing."""
SMALL_BLOCK_BYTES: Final = 64 * KIB
"""Outgoing block of a gRPC client's connection."""
RECEIVE_BLOCK_BYTES: Final = 256 * KIB
OWN_FRAME_BYTES: Final = 64 * KIB
"""What we accept from a peer; one of our own then sends frames of this size."""

QUANTUM_BYTES: Final = 64 * KIB
"""What one tunnel may read in one turn before its neighbours are served."""

TUNNEL_WINDOW_BYTES: Final = 256 * KIB
"""What may be under way to the reader of one tunnel with a stream of its own, at first."""
LARGEST_TUNNEL_WINDOW_BYTES: Final = 2 * KIB * KIB
"""And at most, once its reader has kept up with bulk; measured: 1 MiB is slower, more gains nothing."""
SHARED_WINDOW_BYTES: Final = 4 * KIB * KIB
"""For the Connect stream, which carries all payload of an upstream peer."""
CONNECTION_WINDOW_BYTES: Final = 2 * KIB * KIB
"""What may be under way between server and agent at first: a queue that an exchange beside bulk has to wait for."""
LARGEST_CONNECTION_WINDOW_BYTES: Final = 16 * KIB * KIB
BYTES_PER_SECOND: Final = 1e9
"""The rate that a window should allow over a network with a long round trip."""

AGENT_CONNECTION_LIMITS: Final = ConnectionLimits(
    frame_bytes=OWN_FRAME_BYTES,
    stream_window_bytes=TUNNEL_WINDOW_BYTES,
    connection_window_bytes=CONNECTION_WINDOW_BYTES,
    max_streams=100_000,
    credits_on_arrival=True,
)
CLIENT_CONNECTION_LIMITS: Final = ConnectionLimits(
    stream_window_bytes=256 * KIB, connection_window_bytes=16 * KIB * KIB, max_streams=10_000
)

big_pool: Final = BlockPool(BIG_BLOCK_BYTES, kept_blocks=4)
small_pool: Final = BlockPool(SMALL_BLOCK_BYTES, kept_blocks=16)
_shared_receive_block: Final = Block(RECEIVE_BLOCK_BYTES)
"""For gRPC clients' connections; each keeps only its unfinished rest."""


class Transport(Owner):
    """Subclasses say what streams mean."""

    def __init__(self, loop: Loop, channel: Channel, connection: Connection) -> None:
        self.loop: Final = loop
        self.channel: Final = channel
        self.connection: Final = connection
        self.heard_at = loop.now
        """When the peer last sent anything; keepalive asks."""
        self.closed = False
        self.progress = 0
        """Counts up whenever the peer takes bytes: at a standstill it stays the same."""
        self._dirty = False
        self._waiting: deque[Owner] = deque()
        self._parked: Final[dict[int, Owner]] = {}
        """Sources whose own stream is shut, by its number: no room for others helps them."""

    def start(self) -> None:
        self.channel.start(self)
        self.touch()

    def on_readable(self) -> None:
        connection = self.connection
        channel = self.channel
        count = channel.receive_into(connection.receive_room())
        if count > 0:
            self.heard_at = self.loop.now
            connection.received(count, self.loop.now)
            self._dispatch()
            connection.settle()
            if self.closed:
                return
            if channel.readable:
                self.loop.again(self)
            if not connection.outbox.is_empty():
                self.touch()
        elif count == END:
            connection.settle()
            self.lose("connection closed by the peer")
        else:
            connection.settle()
            if count != AGAIN:
                self.lose(channel.error)

    def on_again(self) -> None:
        if not self.closed and self.channel.readable:
            self.on_readable()

    def _dispatch(self) -> None:
        connection = self.connection
        while not self.closed:
            event = connection.next_event()
            if event is None:
                return
            if isinstance(event, DataReceived):
                self.on_data(event)
            elif isinstance(event, WindowOpened):
                self.on_window(event.stream)
            elif isinstance(event, SettingsReceived):
                self._unpark_all()  # a larger initial window opens every stream
                self.wake_waiting()
            elif isinstance(event, ConnectionFailed):
                self.on_flush()
                self.lose(f"protocol violation: {event.text}")
            else:
                self.on_event(event)

    def on_data(self, event: DataReceived) -> None:
        """Payload of a stream; the event is valid during the call."""

    def on_window(self, stream: Stream | None) -> None:
        """The peer granted credit: to this stream, or to the whole connection."""
        if stream is None or not stream.plain:
            self.wake_waiting()
            return
        source = self._parked.pop(stream.stream_id, None)
        if source is not None:
            source.on_room()

    def on_event(self, event: ConnectionEvent) -> None:
        """HeadersReceived, StreamReset, GoawayReceived or PingAnswered."""

    def finish(self, stream: Stream, status: int, text: str) -> None:
        """Server: end a call with its status; alone, with the headers of a response, if it was not answered yet."""
        trailers = grpc.trailers(status, text)
        self.connection.sender.finish(stream, trailers if stream.answered else [*grpc.RESPONSE_HEADERS, *trailers])
        if stream.state == HALF_CLOSED_LOCAL:
            # The peer need not send the rest: RFC 9113 section 8.1. Else it would stay open until the peer ends it.
            self.connection.sender.reset(stream, frames.NO_ERROR)
        self.touch()

    def touch(self) -> None:
        if not self._dirty:
            self._dirty = True
            self.loop.touch(self)

    def on_flush(self) -> None:
        self._dirty = False
        if self.closed:
            return
        sender = self.connection.sender
        outbox = sender.outbox
        channel = self.channel
        while True:
            view = outbox.pending()
            if view is None:
                break
            taken = channel.add(view)
            if taken < 0:
                self.lose(channel.error)
                return
            if taken == 0:
                break
            outbox.sent(taken)
            self.progress += 1
        if not channel.push():
            self.lose(channel.error)
            return
        if channel.has_unsent() or not outbox.is_empty():
            channel.ask_room()
            sender.after_flush()
        else:
            sender.after_flush()
            if not outbox.is_empty():
                self.touch()  # messages that had found the block full
        if self._waiting:
            self.wake_waiting()

    def on_writable(self) -> None:
        if not self.channel.push():
            self.lose(self.channel.error)
            return
        self.progress += 1
        self.touch()

    def wait(self, source: Owner, first: bool = False) -> None:
        """No room: stand in line; `first` for one that had nothing to send lately, and so little to ask for now."""
        if first:
            self._waiting.appendleft(source)
        else:
            self._waiting.append(source)

    def park(self, stream: Stream, source: Owner) -> None:
        """The peer lets this one stream wait: its credit alone will wake the source."""
        self._parked[stream.stream_id] = source

    def unpark(self, stream: Stream) -> None:
        """The stream is over."""
        self._parked.pop(stream.stream_id, None)

    def _unpark_all(self) -> None:
        self._waiting.extend(self._parked.values())
        self._parked.clear()

    def wake_waiting(self) -> None:
        """Everybody in line gets one turn. Who finds no room keeps the place ahead of all that were served."""
        waiting = self._waiting
        outbox = self.connection.outbox
        served: list[Owner] = []
        for _ in range(len(waiting)):
            if not waiting:
                break
            source = waiting.popleft()
            queued = outbox.queued_bytes()
            source.on_room()
            if waiting and waiting[-1] is source and outbox.queued_bytes() > queued:
                served.append(waiting.pop())
        if not self.closed:
            waiting.extend(served)

    def has_unsent(self) -> bool:
        """Bytes lie here that the socket has not taken yet."""
        return not self.connection.outbox.is_empty() or self.channel.has_unsent()

    def fit_window(self, round_trip_seconds: float) -> None:
        """Now that the handshakes have shown how far the peer is: enlarge the connection's window to match."""
        wanted = int(round_trip_seconds * BYTES_PER_SECOND)
        self.connection.enlarge_connection(min(wanted, LARGEST_CONNECTION_WINDOW_BYTES))

    def on_lost(self, reason: str) -> None:
        self.lose(reason)

    def on_crash(self, error: Exception) -> None:
        self.lose(f"internal error: {error!r}")

    def lose(self, reason: str) -> None:
        """The connection is over, whoever ended it."""
        if self.closed:
            return
        self.closed = True
        self.channel.close()
        self.connection.outbox.release()
        self._waiting.clear()
        self._parked.clear()
        self.on_closed(reason)

    def on_closed(self, reason: str) -> None:
        """Tell whoever used the connection."""

    def on_silent(self, seconds: float, acknowledges: bool) -> None:
        """Nothing was heard, not even the answer to a ping; `acknowledges`: but the peer's kernel is there."""

    def on_answered(self, seconds: float) -> None:
        """It was silent so long, and is back."""

    def on_loss(self, sent_again: int, sent: int, seconds: float) -> None:
        """So many segments of so many had to be sent again."""


def agent_side_connection(is_client: bool) -> Connection:
    """The HTTP/2 half of a connection between server and agent: large blocks, its own receive block."""
    return Connection(is_client, AGENT_CONNECTION_LIMITS, big_pool, Block(RECEIVE_BLOCK_BYTES), shared_block=False)


def client_side_connection() -> Connection:
    """The HTTP/2 half of a gRPC client's connection: nothing is held while it is idle."""
    return Connection(False, CLIENT_CONNECTION_LIMITS, small_pool, _shared_receive_block, shared_block=True)
