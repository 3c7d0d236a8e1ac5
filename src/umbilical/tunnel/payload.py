"""Payload between a socket and the frames of a stream: the inlet writes it into frames, the outlet into the socket.

An inlet that finds no room for frames waits in the transport's queue. The outlet's buffer is bounded by its user, in
bytes: see `Limits.tunnel_buffer_bytes`.
"""

from typing import Final, Protocol

from umbilical.tunnel.channel import AGAIN, Channel
from umbilical.tunnel.transport import QUANTUM_BYTES, RoomWaiter, Transport
from umbilical.tunnel.tunnel_stream import TunnelStream
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import DataPrefix, PayloadPrefix, PlainPrefix
from umbilical.wire.packets import DATA

MORE: Final = 1
"""Of `Inlet.draw`: the quantum is used up and the socket has more; draw again in the next turn."""
SPARSE_TURNS: Final = 2


class InletOwner(Protocol):
    def on_room(self, inlet: "Inlet") -> None:
        """The inlet waited for room, and its turn has come."""

    def on_crash(self, error: Exception) -> None:
        """`on_room` raised, which is a bug."""


class Inlet(RoomWaiter):
    """Writes DATA packets of one connection into a shared stream, or plain bytes into the tunnel's own stream."""

    def __init__(
        self, owner: InletOwner, transport: Transport, stream: Stream, connection_id: int, packet_counts: list[int]
    ) -> None:
        self._owner: Final = owner
        self._transport: Final = transport
        self._sender: Final = transport.connection.sender
        self._stream: Final = stream
        self._prefix: Final[PayloadPrefix] = (
            PlainPrefix(stream.stream_id) if stream.plain else DataPrefix(stream.stream_id, connection_id)
        )
        self._packet_counts: Final = packet_counts
        self.waiting = False
        """It is in the transport's queue."""
        self.bytes_written = 0
        self._loop: Final = transport.loop
        self._served_turn = -SPARSE_TURNS
        """The last turn in which it had room; one that is served in every turn is bulk."""
        self.unanswered: TunnelStream | None = None
        """Its answer goes out with the first payload."""

    def draw(self, channel: Channel) -> int:
        """Receive one quantum straight into frames. MORE, AGAIN, or END or LOST when the socket is over."""
        sender, stream, prefix = self._sender, self._stream, self._prefix
        budget = QUANTUM_BYTES
        count = AGAIN
        while channel.readable and budget > 0:
            room = sender.payload_room(stream, prefix.size)
            if room is None:
                self.wait()
                if budget == QUANTUM_BYTES:
                    return AGAIN  # nothing was added: a flush would only wake this inlet again, without end
                count = AGAIN
                break
            count = channel.receive_into(room)
            if count <= 0:
                break
            if self.unanswered is not None:
                self._answer(self.unanswered)
            sender.payload_written(stream, prefix.for_length(count), count)
            self.bytes_written += count
            self._packet_counts[DATA] += 1
            budget -= count
            self._served_turn = self._loop.turns
        self._transport.touch()
        if count > 0:
            return MORE if channel.readable else AGAIN
        return count

    def write(self, view: memoryview) -> int:
        """Copy payload into frames and return how much found room. If not all did, the inlet waits."""
        sender, stream, prefix = self._sender, self._stream, self._prefix
        taken = 0
        while taken < len(view):
            room = sender.payload_room(stream, prefix.size)
            if room is None:
                self.wait()
                break
            count = min(len(room), len(view) - taken)
            room[:count] = view[taken : taken + count]
            if self.unanswered is not None:
                self._answer(self.unanswered)
            sender.payload_written(stream, prefix.for_length(count), count)
            self._packet_counts[DATA] += 1
            taken += count
        self.bytes_written += taken
        if taken:  # a flush of nothing would wake it at once, again and again
            self._served_turn = self._loop.turns
            self._transport.touch()
        return taken

    def _answer(self, own: TunnelStream) -> None:
        """Before the payload is committed: a later answer would go out behind it."""
        self.unanswered = None
        own.answer()

    def wait(self) -> None:
        """Queue up for room on the transport."""
        if not self.waiting:
            self.waiting = True
            if self._stream.plain and self._sender.is_shut(self._stream):
                self._transport.park(self._stream, self)
            else:
                self._transport.wait(self, first=self._loop.turns - self._served_turn > SPARSE_TURNS)

    def on_room(self) -> None:
        self.waiting = False
        self._owner.on_room(self)

    def on_crash(self, error: Exception) -> None:
        self._owner.on_crash(error)


DIRECT_BYTES: Final = 8 * 1024
"""Payload of this size is never gathered: copying costs more than another send."""


class Outlet:
    def __init__(self, channel: Channel) -> None:
        self._channel: Final = channel
        self._loop: Final = channel.loop
        self._buffer = bytearray()
        self._blocked = False
        self._sent_in_turn = -1
        self.broken = False

    def waiting_bytes(self) -> int:
        return len(self._buffer)

    def put(self, view: memoryview) -> bool:
        """Accept payload; True when `flush` must be called at the end of the turn.

        The first payload of a turn is sent at once; small ones after it are gathered.
        """
        size = len(view)
        turn = self._loop.turns
        if self._buffer or (self._sent_in_turn == turn and size < DIRECT_BYTES):
            self._buffer += view
            return not self._blocked
        self._sent_in_turn = turn
        sent = self._channel.send(view)
        if sent < 0:
            self.broken = True
        elif sent < size or self._channel.has_unsent():
            self._buffer += view[sent:]
            self._block()
        return False

    def hold(self, view: memoryview) -> None:
        """Keep payload until the next `flush`, whatever its size."""
        self._buffer += view

    def _block(self) -> None:
        self._blocked = True
        self._channel.ask_room()

    def flush(self) -> None:
        """Send what can be sent; then see `is_empty` and `broken`."""
        self._blocked = False
        channel = self._channel
        while self._buffer:
            sent = channel.send(self._buffer)
            if sent < 0:
                self.broken = True
                self._buffer.clear()
                return
            if sent == 0:
                self._block()
                return
            del self._buffer[:sent]
        if not channel.push():
            self.broken = True
        elif channel.has_unsent():
            self._block()

    def is_empty(self) -> bool:
        """Every byte has reached the socket."""
        return not self._buffer and not self._channel.has_unsent()
