"""Konnectivity's `Packet`: one small class per type, encoders and a decoder.

`packet_data` is a faster encoder and decoder for DATA, which is most of the traffic.
`random` and `connectID` in the .proto files are called dial id and connection id here.
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
"""Our extension, sent only to peers that support it: stop reading the far end of this connection (docs/protocol.md)."""
RESUME: Final = 65

TYPE_NAMES: Final = ("DIAL_REQ", "DIAL_RSP", "CLOSE_REQ", "CLOSE_RSP", "DATA", "DIAL_CLS", "DRAIN")


class Packet:
    """Base class; an instance of this class itself has an unknown type and is ignored."""

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
    """A DATA packet in its shortest form; the data path uses `packet_data.DataPrefix` instead."""
    body = protobuf.encode_integer(0x08, connection_id) + (protobuf.encode_bytes(0x1A, payload) if payload else b"")
    return b"\x08\x04" + protobuf.encode_bytes(0x22, body)


_PAYLOAD_FIELD: Final = {
    DIAL_REQ: 2, DIAL_RSP: 3, DATA: 4, CLOSE_REQ: 5, CLOSE_RSP: 6, DIAL_CLS: 7, DRAIN: 8, PAUSE: 15, RESUME: 15,
}  # fmt: skip
_FIRST_PAYLOAD: Final = 2
_LAST_PAYLOAD: Final = 8
_EXTENSION: Final = 15
"""Not in the oneof of the .proto file; in packets of other types it is ignored as an unknown field."""
_NO_TEXT: Final = (0, 0)
_TEXT_FIELDS: Final = {2: (1, 2), 3: (1, 0), 4: (2, 0), 6: (1, 0)}
"""String fields of each payload; they must be valid UTF-8."""
_USUAL_TAGS: Final = (0x12, 0x1A, 0x2A, 0x32, 0x00, 0x3A)
"""Tag of the payload by packet type; 0 for DATA, which `packet_data` decodes."""
_USUAL_FIELDS: Final = (b"\x0a\x12\x18", b"\x0a\x10\x18", b"\x08", b"\x0a\x10", b"", b"\x08")
"""Tags of the fields in that payload."""


def decode_packet(source: bytes | bytearray, start: int, end: int) -> Packet:
    """Decode one message. Raises ProtocolViolation if it is malformed or has no payload (fault missing-payload).

    As in Go, the type counts, not the payload that is present. A later payload replaces an earlier one of another kind
    and is merged with one of the same kind. Replaced payloads must be well-formed, too: a peer to which these bytes
    are forwarded would refuse them and end its stream.
    """
    usual = _decode_usual(source, start, end)
    if usual is not None:
        return usual
    kind = DIAL_REQ  # enum 0 is absent on the wire
    payload = _NO_PAYLOAD
    extension: bytes | None = None
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
        elif field == _EXTENSION and wire_type == protobuf.LENGTH_DELIMITED:
            first, position = protobuf.read_length(source, position, end)
            extension = bytes(source[first:position])
        else:
            position = protobuf.skip_field(source, position, end, field, wire_type)
    kind &= 0xFFFFFFFF  # enums are 32 bits wide
    expected = _PAYLOAD_FIELD.get(kind, 0)
    if expected == 0:
        return Packet(kind)
    if expected == _EXTENSION and extension is not None:
        payload = _Payload(_EXTENSION)
        payload.read(extension, 0, len(extension))
    if payload.number != expected:
        raise ProtocolViolation(protobuf.INVALID_ARGUMENT, f"{_type_name(kind)} packet without its payload")
    return _packet_of(kind, payload)


def _type_name(kind: int) -> str:
    return TYPE_NAMES[kind] if kind < len(TYPE_NAMES) else str(kind)


def _decode_usual(source: bytes | bytearray, start: int, end: int) -> Packet | None:
    """Decode a dial or close packet in its usual form: type, one short payload, known fields, each once, in order.

    None for anything else. A dial needs four such packets; decoding each generally takes three times as long.
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


def _usual_packet(
    kind: int, last_field: int, first_text: str, text: str, number: int, last_number: int
) -> Packet | None:
    """None if fields are missing that the type usually has: the general decoder handles those."""
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


class _Payload:
    """The fields of one payload. The last value of a repeated field counts, which merges payloads of the same kind."""

    def __init__(self, number: int) -> None:
        self.number: Final = number
        """Its field number in the packet; 0: no payload."""
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
