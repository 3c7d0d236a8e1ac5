"""Konnectivity's `Packet`, both directions, by hand.

Control packets become small objects; DATA is only located inside the receive buffer (`find_data`), because it
is most of the traffic. `random` and `connectID` of the .proto files are called dial id and connection id here.
"""

from typing import Final

from umbilical.wire import protobuf
from umbilical.wire.errors import ProtocolViolation

DIAL_REQ: Final = 0
DIAL_RSP: Final = 1
CLOSE_REQ: Final = 2
CLOSE_RSP: Final = 3
DATA: Final = 4
DIAL_CLS: Final = 5
DRAIN: Final = 6
PAUSE: Final = 64
"""Ours, sent only to peers that announced it: stop reading this connection's far end (docs/protocol.md)."""
RESUME: Final = 65

TYPE_NAMES: Final = ("DIAL_REQ", "DIAL_RSP", "CLOSE_REQ", "CLOSE_RSP", "DATA", "DIAL_CLS", "DRAIN")

_PAYLOAD_FIELD: Final = {
    DIAL_REQ: 2,
    DIAL_RSP: 3,
    DATA: 4,
    CLOSE_REQ: 5,
    CLOSE_RSP: 6,
    DIAL_CLS: 7,
    DRAIN: 8,
    PAUSE: 15,
    RESUME: 15,
}
_FIRST_PAYLOAD: Final = 2
_LAST_PAYLOAD: Final = 8
_EXTENSION: Final = 15
"""Outside the .proto's oneof: beside another payload it is an unknown field, and ignored."""
_NO_TEXT: Final = (0, 0)
_TEXT_FIELDS: Final = {2: (1, 2), 3: (1, 0), 4: (2, 0), 6: (1, 0)}
"""By payload: its string fields, which must be UTF-8 wherever they appear."""


class Packet:
    """Any packet; a bare one is of a type that we do not know and ignore."""

    def __init__(self, kind: int) -> None:
        self.kind = kind


class DialRequest(Packet):
    def __init__(self, protocol: str, address: str, dial_id: int) -> None:
        super().__init__(DIAL_REQ)
        self.protocol = protocol
        self.address = address
        self.dial_id = dial_id


class DialResponse(Packet):
    def __init__(self, error: str, connection_id: int, dial_id: int) -> None:
        super().__init__(DIAL_RSP)
        self.error = error
        self.connection_id = connection_id
        self.dial_id = dial_id


class CloseRequest(Packet):
    def __init__(self, connection_id: int) -> None:
        super().__init__(CLOSE_REQ)
        self.connection_id = connection_id


class CloseResponse(Packet):
    def __init__(self, error: str, connection_id: int) -> None:
        super().__init__(CLOSE_RSP)
        self.error = error
        self.connection_id = connection_id


class Data(Packet):
    def __init__(self, connection_id: int, error: str, payload: bytes) -> None:
        super().__init__(DATA)
        self.connection_id = connection_id
        self.error = error
        self.payload = payload


class CloseDial(Packet):
    def __init__(self, dial_id: int) -> None:
        super().__init__(DIAL_CLS)
        self.dial_id = dial_id


class Drain(Packet):
    def __init__(self) -> None:
        super().__init__(DRAIN)


class Pause(Packet):
    def __init__(self, connection_id: int) -> None:
        super().__init__(PAUSE)
        self.connection_id = connection_id


class Resume(Packet):
    def __init__(self, connection_id: int) -> None:
        super().__init__(RESUME)
        self.connection_id = connection_id


def find_data(source: bytes | bytearray, start: int, end: int) -> tuple[int, int]:
    """Locate the payload of a DATA packet in its usual shape: connection id and payload start; it ends at `end`.

    (0, -1) when the message has any other shape, which `decode_packet` then judges. Lengths may be padded.
    """
    if end - start < 8 or source[start] != 0x08 or source[start + 1] != DATA or source[start + 2] != 0x22:
        return 0, -1
    # Lengths of three bytes are ours and of two are Go's; the loop of `_length_at` would cost as much as all the rest.
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
    """A varint of at most five bytes; -1 for a longer one or one cut short."""
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


def decode_packet(source: bytes | bytearray, start: int, end: int) -> Packet:
    """Decode one message; `ProtocolViolation` when it is malformed or its payload is missing (fault P4).

    As in Go, the type decides, not which payload is there; later payloads replace earlier ones of another kind
    and are merged with those of the same kind. Every payload must be well-formed, also one that is replaced: a
    peer that is sent these bytes as they are would refuse them and end its stream.
    """
    usual = _decode_usual(source, start, end)
    if usual is not None:
        return usual
    kind = DIAL_REQ  # enum 0 is absent on the wire
    payload = extension = _NO_PAYLOAD
    position = start
    while position < end:
        field, wire_type, position = protobuf.read_tag(source, position, end)
        if field == 1 and wire_type == protobuf.VARINT:
            kind, position = protobuf.read_varint(source, position, end)
        elif _FIRST_PAYLOAD <= field <= _LAST_PAYLOAD and wire_type == protobuf.LENGTH_DELIMITED:
            first, position = protobuf.read_length(source, position, end)
            if payload.number != field:
                payload = _Payload(field)
            payload.read(source, first, position)
        elif field == _EXTENSION and wire_type == protobuf.LENGTH_DELIMITED and kind in (PAUSE, RESUME):
            # We write the type first, and nobody else writes this.
            first, position = protobuf.read_length(source, position, end)
            extension = _Payload(field)
            extension.read(source, first, position)
        else:
            position = protobuf.skip_field(source, position, end, field, wire_type)
    kind &= 0xFFFFFFFF  # enums are 32 bits wide
    expected = _PAYLOAD_FIELD.get(kind, 0)
    if expected == 0:
        return Packet(kind)
    found = extension if expected == _EXTENSION else payload
    if found.number != expected:
        raise ProtocolViolation(protobuf.INVALID_ARGUMENT, f"{_type_name(kind)} packet without its payload")
    return _packet_of(kind, found)


def _decode_usual(source: bytes | bytearray, start: int, end: int) -> Packet | None:
    """A dial or close packet as every encoder writes it: type, one short payload, known fields, each once, in order.

    None for anything else. A dial costs four such packets; the general way takes three times as long.
    """
    if end - start < 4 or end - start > 120:
        return None
    kind = DIAL_REQ
    position = start
    if source[position] == 0x08:
        kind = source[position + 1]
        position += 2
    if kind > DIAL_CLS or source[position] != _USUAL_TAGS[kind] or source[position + 1] != end - position - 2:
        return None
    position += 2
    fields = _USUAL_FIELDS[kind]
    last_field = 0
    first_text = second_text = ""
    number = last_number = 0
    while position < end - 1:
        tag = source[position]
        if tag >> 3 <= last_field or tag not in fields:
            return None
        last_field = tag >> 3
        if tag & 7 == protobuf.VARINT:
            number = last_number
            last_number, position = protobuf.read_varint(source, position + 1, end)
        else:
            length = source[position + 1]
            position += 2
            if length >= 0x80 or position + length > end:
                return None
            first_text = second_text
            try:
                second_text = source[position : position + length].decode()
            except UnicodeDecodeError:
                return None
            position += length
    if position != end or last_number >> 63 or number >> 63:
        return None
    return _usual_packet(kind, last_field, first_text, second_text, number, last_number)


_USUAL_TAGS: Final = (0x12, 0x1A, 0x2A, 0x32, 0x00, 0x3A)
"""Tags of the payloads by packet type; 0 for DATA, which does not come here."""
_USUAL_FIELDS: Final = (b"\x0a\x12\x18", b"\x0a\x10\x18", b"\x08", b"\x0a\x10", b"", b"\x08")
"""Tags of the fields within."""


def _usual_packet(
    kind: int, last_field: int, first_text: str, text: str, number: int, last_number: int
) -> Packet | None:
    """Only with all fields that the type has when it is in use; fewer are told apart by the general way."""
    if kind == DIAL_REQ:
        return DialRequest(first_text, text, last_number) if last_field == 3 and first_text else None
    if kind == DIAL_RSP:
        if last_field != 3 or first_text or (text and number) or not (text or number):
            return None
        return DialResponse(text, number, last_number)
    if kind == CLOSE_REQ:
        return CloseRequest(last_number) if last_field == 1 and not text else None
    if kind == CLOSE_RSP:
        return CloseResponse(text, last_number) if last_field == 2 and last_number and not first_text else None
    return CloseDial(last_number) if last_field == 1 and not text else None


def _type_name(kind: int) -> str:
    return TYPE_NAMES[kind] if kind < len(TYPE_NAMES) else str(kind)


class _Payload:
    """The fields of one payload; the last of a repeated field wins, so what is read behind it is merged."""

    def __init__(self, number: int) -> None:
        self.number: Final = number
        """Its field in the packet; 0: there is none."""
        self._integers: dict[int, int] = {}
        self._chunks: dict[int, bytes] = {}
        self._texts: dict[int, str] = {}

    def read(self, source: bytes | bytearray, position: int, end: int) -> None:
        text_fields = _TEXT_FIELDS.get(self.number, _NO_TEXT)
        while position < end:
            field, wire_type, position = protobuf.read_tag(source, position, end)
            if wire_type == protobuf.VARINT:
                self._integers[field], position = protobuf.read_varint(source, position, end)
            elif wire_type == protobuf.LENGTH_DELIMITED:
                first, position = protobuf.read_length(source, position, end)
                chunk = bytes(source[first:position])
                if field in text_fields:
                    self._texts[field] = _utf8(field, chunk)
                else:
                    self._chunks[field] = chunk
            else:
                position = protobuf.skip_field(source, position, end, field, wire_type)

    def integer(self, field: int) -> int:
        return protobuf.signed(self._integers.get(field, 0))

    def raw(self, field: int) -> bytes:
        return self._chunks.get(field, b"")

    def text(self, field: int) -> str:
        return self._texts.get(field, "")


_NO_PAYLOAD: Final = _Payload(0)


def _utf8(field: int, chunk: bytes) -> str:
    try:
        return chunk.decode()
    except UnicodeDecodeError as error:
        raise protobuf.malformed(f"field {field} is not UTF-8") from error


def _packet_of(kind: int, payload: _Payload) -> Packet:
    if kind == DIAL_REQ:
        return DialRequest(payload.text(1), payload.text(2), payload.integer(3))
    if kind == DIAL_RSP:
        return DialResponse(payload.text(1), payload.integer(2), payload.integer(3))
    if kind == CLOSE_REQ:
        return CloseRequest(payload.integer(1))
    if kind == CLOSE_RSP:
        return CloseResponse(payload.text(1), payload.integer(2))
    if kind == DATA:
        return Data(payload.integer(1), payload.text(2), payload.raw(3))
    if kind == DIAL_CLS:
        return CloseDial(payload.integer(1))
    if kind == PAUSE:
        return Pause(payload.integer(1))
    if kind == RESUME:
        return Resume(payload.integer(1))
    return Drain()


def encode_dial_request(protocol: str, address: str, dial_id: int) -> bytes:
    body = (
        protobuf.encode_text(0x0A, protocol)
        + protobuf.encode_text(0x12, address)
        + protobuf.encode_integer(0x18, dial_id)
    )
    return protobuf.encode_bytes(0x12, body)


def encode_dial_response(error: str, connection_id: int, dial_id: int) -> bytes:
    body = (
        protobuf.encode_text(0x0A, error)
        + protobuf.encode_integer(0x10, connection_id)
        + protobuf.encode_integer(0x18, dial_id)
    )
    return b"\x08\x01" + protobuf.encode_bytes(0x1A, body)


def encode_close_request(connection_id: int) -> bytes:
    return b"\x08\x02" + protobuf.encode_bytes(0x2A, protobuf.encode_integer(0x08, connection_id))


def encode_close_response(error: str, connection_id: int) -> bytes:
    body = protobuf.encode_text(0x0A, error) + protobuf.encode_integer(0x10, connection_id)
    return b"\x08\x03" + protobuf.encode_bytes(0x32, body)


def encode_close_dial(dial_id: int) -> bytes:
    return b"\x08\x05" + protobuf.encode_bytes(0x3A, protobuf.encode_integer(0x08, dial_id))


def encode_drain() -> bytes:
    return b"\x08\x06\x42\x00"


def encode_pause(connection_id: int) -> bytes:
    return b"\x08\x40" + protobuf.encode_bytes(0x7A, protobuf.encode_integer(0x08, connection_id))


def encode_resume(connection_id: int) -> bytes:
    return b"\x08\x41" + protobuf.encode_bytes(0x7A, protobuf.encode_integer(0x08, connection_id))


def encode_data(connection_id: int, payload: bytes) -> bytes:
    """A DATA packet in its shortest form; the data path uses `DataPrefix` instead."""
    body = protobuf.encode_integer(0x08, connection_id) + (protobuf.encode_bytes(0x1A, payload) if payload else b"")
    return b"\x08\x04" + protobuf.encode_bytes(0x22, body)


class DataPrefix:
    """All that stands before the payload of one connection's DATA packets when each travels in one HTTP/2 frame.

    Frame header, gRPC prefix and packet fields have a fixed width (lengths are padded varints), so the payload
    can be received behind the gap first and the prefix written when its length is known. The last one is kept:
    bulk transfers and request loops send the same size again and again.
    """

    def __init__(self, stream_id: int, connection_id: int) -> None:
        self._stream_bytes: Final = stream_id.to_bytes(4, "big")
        self._connection_field: Final = b"\x08" + protobuf.encode_varint(connection_id)
        # 9 frame header, 5 gRPC prefix, 2 type, 1 + 3 Data's tag and length, id field, 1 + 3 data's tag and length
        self.size: Final = 9 + 5 + 2 + 4 + len(self._connection_field) + 4
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
    """A varint of exactly three bytes; enough for two MiB."""
    return bytes((0x80 | length & 0x7F, 0x80 | (length >> 7) & 0x7F, length >> 14 & 0x7F))
