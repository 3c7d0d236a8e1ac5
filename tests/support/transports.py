"""Two transports of ours on one loop and one socket pair, with streams that carry raw payload."""

from typing import Final

from tests.support.socket_pairs import unix_pair

from umbilical.tunnel.channel import Channel
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.transport import RoomWaiter, Transport
from umbilical.wire.grpc import request_headers
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import Block, BlockPool
from umbilical.wire.http2.connection import Connection
from umbilical.wire.http2.events import ConnectionEvent, DataReceived
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import read_packets
from umbilical.wire.packets import Packet

BLOCK_BYTES: Final = 64 * 1024
GAP: Final = frames.FRAME_HEADER_BYTES
REQUEST: Final = request_headers(b"/ProxyService/Proxy", b"localhost", b"http", b"test")


class Line(Transport):
    """Keeps what arrives, stream by stream, and gives credit for it unless told not to."""

    def __init__(self, loop: Loop, channel: Channel, connection: Connection) -> None:
        super().__init__(loop, channel, connection)
        self.received: dict[int, bytearray] = {}
        self.events: list[type[ConnectionEvent]] = []
        self.reasons: list[str] = []
        self.opened = 0
        self.gives_credit = True
        self.fails_on_data = False
        self.reads_packets = False
        self.packets = 0

    def on_open(self) -> None:
        self.opened += 1
        self.touch()

    def on_data(self, event: DataReceived) -> None:
        if self.fails_on_data:
            raise RuntimeError("dropped it")
        if self.reads_packets:
            self.connection.frames_left -= read_packets(event, self)
            return
        payload = event.view[event.start : event.end]
        self.received.setdefault(event.stream.stream_id, bytearray()).extend(payload)
        if self.gives_credit:
            self.connection.credit(event.stream, len(payload))

    def accepts_packets(self) -> bool:
        return True

    def on_payload(self, connection_id: int, view: memoryview) -> None:
        self.packets += 1

    def on_packet(self, packet: Packet) -> None:
        self.packets += 1

    def on_event(self, event: ConnectionEvent) -> None:
        self.events.append(type(event))

    def on_closed(self, reason: str) -> None:
        self.reasons.append(reason)

    def size_of(self, stream: Stream) -> int:
        return len(self.received.get(stream.stream_id, b""))


def connection(is_client: bool, limits: ConnectionLimits | None = None, block_bytes: int = BLOCK_BYTES) -> Connection:
    return Connection(
        is_client, limits or ConnectionLimits(), BlockPool(block_bytes, 1), Block(BLOCK_BYTES), shared_block=False
    )


class Source(RoomWaiter):
    """Payload of one stream, handed over one quantum per turn of its own."""

    def __init__(self, line: Line, stream: Stream, payload: bytes, quantum: int = 4096) -> None:
        self.line = line
        self.stream = stream
        self.rest = memoryview(payload)
        self.turns = 0
        self._quantum = quantum

    def on_room(self) -> None:
        self.pump()

    def pump(self) -> None:
        """One quantum, then to the end of the line."""
        self.turns += 1
        connection = self.line.connection
        room = connection.sender.payload_room(self.stream, GAP)
        if room is not None:
            count = min(len(room), len(self.rest), self._quantum)
            room[:count] = self.rest[:count]
            connection.sender.payload_written(
                self.stream, frames.frame_header(count, frames.DATA, 0, self.stream.stream_id), count
            )
            self.rest = self.rest[count:]
            self.line.touch()
        if self.rest:
            self.line.wait(self)


def joined(plane: Loop, client: Connection, server: Connection) -> tuple[Line, Line]:
    """Start both ends of a Unix socket pair; the client's first."""
    ours, peer = unix_pair()
    peer.setblocking(False)
    lines = Line(plane, Channel(plane, ours), client), Line(plane, Channel(plane, peer), server)
    for line in lines:
        line.start()
    return lines


def is_greeted(*lines: Line) -> bool:
    return all(line.connection._settings_seen for line in lines)
