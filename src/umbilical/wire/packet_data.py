"""The data path's encoder and decoder for payload: in DATA packets, or in plain DATA frames.

Plain DATA frames are for tunnels with a stream of their own (docs/protocol.md). Nothing here creates an object per
packet or copies payload. DATA packets in an unusual form are left to `packets.decode_packet`.
"""

from typing import Final, Protocol

from umbilical.wire import protobuf
from umbilical.wire.grpc import PREFIX_BYTES
from umbilical.wire.http2.events import DataReceived
from umbilical.wire.http2.frames import FRAME_HEADER_BYTES
from umbilical.wire.packets import DATA, Packet, decode_packet


class PacketSink(Protocol):
    def on_payload(self, connection_id: int, view: memoryview) -> None:
        """A DATA packet; the view is valid during this call."""

    def on_packet(self, packet: Packet) -> None:
        """Any other packet, or DATA in an unusual form."""

    def accepts_packets(self) -> bool:
        """False once a packet has ended the stream: the rest of its frame is dropped."""
        ...


def read_packets(event: DataReceived, sink: PacketSink) -> int:
    """Give the sink each packet that a DATA frame completes, and count those behind the first. Raises ProtocolViolation
    as `decode_packet` does.

    Most frames hold exactly one message and are read in place.
    """
    reader = event.stream.reader
    data, end = event.data, event.end
    if reader.is_whole(data, event.start, end):
        start = event.start + PREFIX_BYTES
        connection_id, payload = find_data(data, start, end)
        if payload >= 0:
            sink.on_payload(connection_id, event.view[payload:end])
        else:
            sink.on_packet(decode_packet(data, start, end))
        return 0
    reader.feed(data, event.view, event.start, end)
    count = -1
    while sink.accepts_packets() and reader.next_message():
        connection_id, payload = find_data(reader.source, reader.start, reader.end)
        if payload >= 0:
            sink.on_payload(connection_id, reader.view[payload : reader.end])
        else:
            sink.on_packet(decode_packet(reader.source, reader.start, reader.end))
        count += 1
    return max(count, 0)


def find_data(source: bytes | bytearray, start: int, end: int) -> tuple[int, int]:
    """Return the connection id and the start of the payload of a DATA packet; the payload ends at `end`.

    (0, -1) if the message is anything else or has an unusual form: call `decode_packet`. Lengths may be padded.
    """
    if end - start < 8 or source[start] != 0x08 or source[start + 1] != DATA or source[start + 2] != 0x22:
        return 0, -1
    # We write lengths of three bytes, Go writes two. For these, `_length_at` would double the cost of this function.
    first, second, third = source[start + 3], source[start + 4], source[start + 5]
    if first >= 0x80 and second >= 0x80 and third < 0x80:
        inner = first & 0x7F | (second & 0x7F) << 7 | third << 14
        position = start + 6
    elif first >= 0x80 and second < 0x80:
        inner = first & 0x7F | second << 7
        position = start + 5
    else:
        inner, position = _length_at(source, start + 3, end)
    if inner != end - position or inner < 4 or source[position] != 0x08:
        return 0, -1
    connection_id = source[position + 1]
    position += 2
    if connection_id >= 0x80:
        connection_id, position = _length_at(source, position - 1, end)
    if position + 3 >= end or source[position] != 0x1A:
        return _find_tail(source, position, end, connection_id)
    first, second, third = source[position + 1], source[position + 2], source[position + 3]
    if first >= 0x80 and second >= 0x80 and third < 0x80:
        length = first & 0x7F | (second & 0x7F) << 7 | third << 14
        position += 4
    elif first >= 0x80 and second < 0x80:
        length = first & 0x7F | second << 7
        position += 3
    else:
        return _find_tail(source, position, end, connection_id)
    if length != end - position:
        return 0, -1
    return connection_id, position


def _find_tail(source: bytes | bytearray, position: int, end: int, connection_id: int) -> tuple[int, int]:
    if position >= end or source[position] != 0x1A:
        return 0, -1
    length, position = _length_at(source, position + 1, end)
    if length != end - position:
        return 0, -1
    return connection_id, position


def _length_at(source: bytes | bytearray, position: int, end: int) -> tuple[int, int]:
    """Read a varint of at most five bytes; -1 if it is longer or incomplete."""
    value = 0
    shift = 0
    while position < end and shift < 35:
        byte = source[position]
        position += 1
        if byte < 0x80:
            return value | byte << shift, position
        value |= (byte & 0x7F) << shift
        shift += 7
    return -1, end


class PayloadPrefix:
    """The bytes before a payload in its frame; of fixed size, so the payload can be received first, behind a gap."""

    def __init__(self, size: int) -> None:
        self.size: Final = size

    def for_length(self, length: int) -> bytes:
        raise NotImplementedError


class DataPrefix(PayloadPrefix):
    """The bytes before the payload of a DATA packet of one connection, if one HTTP/2 frame holds the whole packet.

    Frame header, gRPC prefix and packet fields have a fixed width (lengths are padded varints). The last prefix is
    kept, because bulk transfers and request loops repeat the same size.
    """

    def __init__(self, stream_id: int, connection_id: int) -> None:
        self._stream_bytes: Final = stream_id.to_bytes(4, "big")
        self._connection_field: Final = b"\x08" + protobuf.encode_varint(connection_id)
        # 9 frame header, 5 gRPC prefix, 2 type, 1 + 3 Data's tag and length, id field, 1 + 3 data's tag and length
        super().__init__(9 + 5 + 2 + 4 + len(self._connection_field) + 4)
        self._last_length = -1
        self._last = b""

    def for_length(self, length: int) -> bytes:
        if length == self._last_length:
            return self._last
        inner = len(self._connection_field) + 4 + length
        message = 2 + 4 + inner
        self._last = b"".join(
            (
                (message + 5).to_bytes(3, "big"),
                b"\x00\x00",  # DATA, no flags
                self._stream_bytes,
                b"\x00",  # not compressed
                message.to_bytes(4, "big"),
                b"\x08\x04\x22",
                padded_length(inner),
                self._connection_field,
                b"\x1a",
                padded_length(length),
            )
        )
        self._last_length = length
        return self._last


def padded_length(length: int) -> bytes:
    """A varint of exactly three bytes, enough for 2 MiB."""
    return bytes((0x80 | length & 0x7F, 0x80 | (length >> 7) & 0x7F, length >> 14 & 0x7F))


TUNNEL_PATH: Final = b"/umbilical.Tunnel/Carry"

OPENING_HEADERS: Final = [
    (b":method", b"POST"),
    (b":scheme", b"https"),
    (b":path", TUNNEL_PATH),
    (b":authority", b"umbilical"),
]
"""Equal for all tunnels, so that both ends encode and decode them once; the stream number identifies the tunnel."""
ANSWER_HEADERS: Final = [(b":status", b"200")]


class PlainPrefix(PayloadPrefix):
    """The header of a DATA frame that carries only payload of one tunnel. The last header is kept."""

    def __init__(self, stream_id: int) -> None:
        super().__init__(FRAME_HEADER_BYTES)
        self._stream_bytes: Final = b"\x00\x00" + stream_id.to_bytes(4, "big")  # DATA, no flags
        self._last_length = -1
        self._last = b""

    def for_length(self, length: int) -> bytes:
        if length != self._last_length:
            self._last_length = length
            self._last = length.to_bytes(3, "big") + self._stream_bytes
        return self._last
