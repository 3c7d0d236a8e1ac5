"""Packets of several tunnels on one stream, written so that any loss or wrong order shows at the other end."""

from random import Random
from typing import Final

from tests.wire.http2.ends import Ours

from umbilical.wire import packets
from umbilical.wire.grpc import PREFIX_BYTES
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import DataPrefix
from umbilical.wire.packets import decode_packet

TUNNELS: Final = (1, 2, 300)
_NOISE: Final = Random(0).randbytes(200_000)


def messages(received: bytes | bytearray) -> list[bytes]:
    """Cut the payload of a stream into its gRPC messages."""
    found = []
    while received:
        end = PREFIX_BYTES + int.from_bytes(received[1:PREFIX_BYTES], "big")
        assert end <= len(received), "a message is cut short"
        found.append(bytes(received[PREFIX_BYTES:end]))
        received = received[end:]
    return found


def carried(received: bytes | bytearray, connection_id: int) -> bytes:
    """The payload of one connection, out of its DATA packets."""
    decoded = [decode_packet(message, 0, len(message)) for message in messages(received)]
    return b"".join(p.payload for p in decoded if isinstance(p, packets.Data) and p.connection_id == connection_id)


class Traffic:
    """What one end of ours sends on one stream."""

    def __init__(self, end: Ours, stream: Stream) -> None:
        self._end = end
        self._stream = stream
        self._written = dict.fromkeys(TUNNELS, b"")
        self._messages = 0

    def payload(self, tunnel: int, size: int) -> None:
        """As much as there is room for."""
        start = len(self._written[tunnel]) % 1_000
        piece = _NOISE[start : start + size]
        count = self._end.write(self._stream, DataPrefix(self._stream.stream_id, tunnel), piece)
        self._written[tunnel] += piece[:count]

    def message(self, padding: int = 0) -> None:
        """A control packet that may overtake payload; numbered, since its kind stays in order."""
        self._messages += 1
        text = "x" * padding
        self._end.connection.sender.send_message(self._stream, packets.encode_dial_response(text, 0, self._messages))

    def ordered(self, tunnel: int) -> None:
        """A control packet that contains how much payload of its tunnel was sent before it."""
        size = str(len(self._written[tunnel]))
        self._end.connection.sender.send_ordered(self._stream, packets.encode_close_response(size, tunnel))

    def assert_arrived(self, received: bytes | bytearray) -> None:
        arrived = dict.fromkeys(TUNNELS, b"")
        numbers = []
        for message in messages(received):
            packet = decode_packet(message, 0, len(message))
            if isinstance(packet, packets.Data):
                arrived[packet.connection_id] += packet.payload
            elif isinstance(packet, packets.CloseResponse):
                assert len(arrived[packet.connection_id]) == int(packet.error), "a close overtook payload"
            elif isinstance(packet, packets.DialResponse):
                numbers.append(packet.dial_id)
        assert arrived == self._written
        assert numbers == list(range(1, self._messages + 1))
