"""An HTTP/2 connection on a channel: one read and one flush per turn, and all back-pressure of its tunnels.

Tunnels with payload take turns of one quantum each. One that finds no room waits in a queue (`wait`) until a flush or
a WINDOW_UPDATE made some.
"""

from collections import deque
from typing import Final

from umbilical.tunnel import faults
from umbilical.tunnel.channel import AGAIN, END, Channel, ChannelOwner
from umbilical.tunnel.faults import Breakable
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.round_trips import ROUND_PING, RoundTrips
from umbilical.wire import grpc
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import BlockPool
from umbilical.wire.http2.connection import Connection
from umbilical.wire.http2.events import (
    ConnectionEvent,
    ConnectionFailed,
    DataReceived,
    HeadersReceived,
    PingAnswered,
    SettingsReceived,
    StreamReset,
    WindowOpened,
)
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.streams import Stream

KIB: Final = 1024
BIG_BLOCK_BYTES: Final = 512 * KIB
"""Outgoing block of a connection between server and agent (measured: 256 KiB is slower, 1 MiB not faster)."""
FIRST_BLOCK_BYTES: Final = 128 * KIB
"""The same for a connection without bulk: two frames of full size."""
SMALL_BLOCK_BYTES: Final = 64 * KIB
"""Outgoing block of a gRPC client's connection."""
OWN_FRAME_BYTES: Final = 64 * KIB
"""Largest frame that we accept; our own peer then sends frames of this size."""

QUANTUM_BYTES: Final = 64 * KIB
"""What one tunnel may read in one turn before its neighbours are served."""

FRAMES_PER_TURN: Final = 128
"""What one peer may have handled before others are served; a read can hold 28,000 empty ones. An upstream agent's bulk
has 64 in a read, ours has fewer (measured: with 512, a flood costs others twice as much)."""
_LEFT_OVER: Final = -3
"""In place of the count of a read: frames of the last one are left."""

TUNNEL_WINDOW_BYTES: Final = 256 * KIB
"""First window of a tunnel with its own stream."""
NEAR_TUNNEL_WINDOW_BYTES: Final = 2 * KIB * KIB
"""Largest window on a short way, for a reader that keeps up with bulk (measured: 1 MiB is slower, 4 MiB not faster)."""
LARGEST_TUNNEL_WINDOW_BYTES: Final = 32 * KIB * KIB
"""Largest window on a long way: 160 MB/s at 200 ms (measured: 16 MiB keep one tunnel at half of that)."""
SHARED_WINDOW_BYTES: Final = 4 * KIB * KIB
"""First window of the Connect stream, which carries all payload of an upstream peer."""
LARGEST_SHARED_WINDOW_BYTES: Final = 16 * KIB * KIB
"""Its largest on a long way, as grpc-go's: a single reader may have all of it waiting."""
CONNECTION_WINDOW_BYTES: Final = 2 * KIB * KIB
"""First window of a connection between server and agent; a small request beside bulk waits behind this much."""
UNSERVED_STREAMS_OF_AGENTS: Final = 100
"""An agent opens one Connect stream, and streams for dials that it was asked for, which do not count. Anybody may reach
its port, and each call that is refused delays others by 20 us."""

AGENT_CONNECTION_LIMITS: Final = ConnectionLimits(
    frame_bytes=OWN_FRAME_BYTES,
    stream_window_bytes=TUNNEL_WINDOW_BYTES,
    connection_window_bytes=CONNECTION_WINDOW_BYTES,
    max_streams=100_000,
    unserved_streams=UNSERVED_STREAMS_OF_AGENTS,
    credits_on_arrival=True,
)
CLIENT_CONNECTION_LIMITS: Final = ConnectionLimits(
    stream_window_bytes=256 * KIB, connection_window_bytes=16 * KIB * KIB, max_streams=10_000
)

big_pool: Final = BlockPool(BIG_BLOCK_BYTES, kept_blocks=4, small=BlockPool(FIRST_BLOCK_BYTES, kept_blocks=32))
small_pool: Final = BlockPool(SMALL_BLOCK_BYTES, kept_blocks=16)


class RoomWaiter:
    """Waits in a transport's queue until frames can be added."""

    def on_room(self) -> None:
        """Add frames for one quantum of payload, and wait again if there is more."""

    def on_crash(self, error: Exception) -> None:
        """`on_room` raised, which is a bug: close the tunnel."""


class Transport(ChannelOwner):
    """Subclasses give streams their meaning."""

    def __init__(self, loop: Loop, channel: Channel, connection: Connection) -> None:
        self.loop: Final = loop
        self.channel: Final = channel
        self.connection: Final = connection
        self.heard_at = loop.now
        """When the peer last sent anything; read by keepalive."""
        self.closed = False
        self.rounds: RoundTrips | None = None
        """Of a connection between server and agent: sizes its windows."""
        self.progress = 0
        """Incremented whenever the socket accepts bytes."""
        self._dirty = False
        self._read_turn = -1
        self._waiting: deque[RoomWaiter] = deque()
        self._parked: Final[dict[int, RoomWaiter]] = {}
        """By stream ID: waiters whose own stream has no window. Room on the connection does not help them."""

    def start(self) -> None:
        self.channel.start(self)
        self.touch()

    def on_readable(self) -> None:
        connection = self.connection
        channel = self.channel
        budget = FRAMES_PER_TURN
        if self._read_turn == self.loop.turns:  # a second look, besides an event
            budget = connection.frames_left
            if budget <= 0:
                self.loop.again(self)
                return
        self._read_turn = self.loop.turns
        room = connection.receive_room()
        # Frames of an earlier read come first: where they fill the block, there is no room to read.
        count = channel.receive_into(room) if connection.frames_left > 0 else _LEFT_OVER
        if count > 0 or count == _LEFT_OVER:
            self.heard_at = self.loop.now
            connection.received(max(count, 0), self.loop.now, budget)
            if self.rounds is not None and count > 0:
                self.rounds.heard(count)
            self._dispatch()
            connection.settle()
            if self.closed:
                return
            if channel.readable or connection.frames_left <= 0:
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
        if not self.closed and (self.channel.readable or self.connection.frames_left <= 0):
            self.on_readable()

    def _dispatch(self) -> None:
        connection = self.connection
        while not self.closed:
            event = connection.next_event()
            if event is None:
                return
            try:
                if isinstance(event, DataReceived):
                    self.on_data(event)
                elif isinstance(event, WindowOpened):
                    self.on_window(event.stream)
                elif isinstance(event, SettingsReceived):
                    self._unpark_all()  # a larger initial window opens every stream
                    self.wake_waiting()
                elif isinstance(event, PingAnswered) and event.payload == ROUND_PING:
                    self._round_over()
                elif isinstance(event, ConnectionFailed):
                    if event.code == frames.ENHANCE_YOUR_CALM:
                        self.channel.pause_host()
                    self.on_flush()
                    self.lose(f"protocol violation: {event.text}")
                else:
                    self.on_event(event)
            except Exception as error:
                end = self._end_of(event)
                if end is None:
                    raise
                self.loop.crash(end, faults.DELIVERY, error)

    def _round_over(self) -> None:
        if self.rounds is not None:
            self.rounds.answered()
            if self.rounds.is_far():
                self.channel.keep_little_unsent()

    def _end_of(self, event: ConnectionEvent) -> Breakable | None:
        """The end of the one tunnel that an event is for; None if others would miss it too."""
        if isinstance(event, DataReceived | HeadersReceived | StreamReset | WindowOpened) and event.stream is not None:
            return self.end_on(event.stream)
        return None

    def end_on(self, stream: Stream) -> Breakable | None:
        """The end of the tunnel that has this stream for itself."""
        return stream.owner

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

    def end_stream(self, stream: Stream, reason: str) -> None:
        """Server: end an agent's Connect stream."""

    def finish(self, stream: Stream, status: int, text: str) -> None:
        """Server: end a call with its status, together with the response headers if none were sent yet."""
        trailers = grpc.trailers(status, text)
        self.connection.sender.finish(stream, trailers if stream.answered else [*grpc.RESPONSE_HEADERS, *trailers])
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
                self._send_failed()
                return
            if taken == 0:
                break
            outbox.sent(taken)
            self.progress += 1
        if not channel.push() or channel.error:
            self._send_failed()
            return
        if channel.has_unsent() or not outbox.is_empty():
            channel.ask_room()
            sender.after_flush()
        else:
            sender.after_flush()
            if not outbox.is_empty():
                self.touch()  # messages that did not fit into the block before
        if self._waiting:
            self.wake_waiting()

    def _send_failed(self) -> None:
        """What the peer sent before it left counts, so frames that wait for the next turn come first."""
        if self.connection.frames_left > 0:
            self.lose(self.channel.error)
        else:
            self.connection.outbox.release()
            self.touch()

    def on_writable(self) -> None:
        if not self.channel.push():
            self._send_failed()
            return
        self.progress += 1
        self.touch()

    def wait(self, source: RoomWaiter, first: bool = False) -> None:
        """Queue up for room; `first` for one that had nothing to send lately, and so needs little room now."""
        if first:
            self._waiting.appendleft(source)
        else:
            self._waiting.append(source)

    def park(self, stream: Stream, source: RoomWaiter) -> None:
        """Wait for credit of this one stream."""
        self._parked[stream.stream_id] = source

    def unpark(self, stream: Stream) -> None:
        """The stream is over."""
        self._parked.pop(stream.stream_id, None)

    def _unpark_all(self) -> None:
        self._waiting.extend(self._parked.values())
        self._parked.clear()

    def wake_waiting(self) -> None:
        """Give each waiter one turn. One that finds no room keeps its place ahead of those that were served."""
        waiting = self._waiting
        outbox = self.connection.outbox
        served: list[RoomWaiter] = []
        for _ in range(len(waiting)):
            if not waiting:
                break
            source = waiting.popleft()
            queued = outbox.queued_bytes()
            try:
                source.on_room()
            except Exception as error:
                self.loop.crash(source, faults.ROOM, error)
            if waiting and waiting[-1] is source and outbox.queued_bytes() > queued:
                served.append(waiting.pop())
        if not self.closed:
            waiting.extend(served)

    def measured(self) -> RoundTrips:
        """Of a connection between server and agent."""
        assert self.rounds is not None
        return self.rounds

    def has_unsent(self) -> bool:
        """Bytes wait here that the socket has not accepted yet."""
        return not self.connection.outbox.is_empty() or self.channel.has_unsent()

    def on_lost(self, reason: str) -> None:
        self.lose(reason)

    def on_crash(self, error: Exception) -> None:
        self.lose(f"internal error: {error!r}")

    def lose(self, reason: str) -> None:
        """Close the connection; `reason` is why it ended."""
        if self.closed:
            return
        self.closed = True
        self.channel.close()
        if self.rounds is not None:
            self.rounds.stop()
        self.connection.outbox.release()
        self._waiting.clear()
        self._parked.clear()
        self.on_closed(reason)

    def on_closed(self, reason: str) -> None:
        """The connection has ended: end everything on it."""

    def on_silent(self, seconds: float, acknowledges: bool) -> None:
        """The peer sent nothing for so long and answered no ping; `acknowledges`: its kernel still does."""

    def on_answered(self, seconds: float) -> None:
        """The peer answers again after so many seconds of silence."""

    def on_loss(self, sent_again: int, sent: int, seconds: float) -> None:
        """Many segments had to be retransmitted."""


def agent_side_connection(loop: Loop, is_client: bool) -> Connection:
    """The HTTP/2 half of a connection between server and agent: large blocks to send, and one to receive from its first
    bulk on. One from the start for each of 5,000 agents would be 1.3 GB."""
    block = loop.receive_block
    return Connection(is_client, AGENT_CONNECTION_LIMITS, big_pool, block, shared_block=True, may_own_block=True)


def client_side_connection(loop: Loop) -> Connection:
    """The HTTP/2 half of a gRPC client's connection, which holds no buffer while it is idle."""
    return Connection(False, CLIENT_CONNECTION_LIMITS, small_pool, loop.receive_block, shared_block=True)
