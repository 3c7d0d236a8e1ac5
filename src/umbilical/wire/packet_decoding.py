"""Packets read into objects: a short way for those that every encoder writes alike, and a general way for all."""

from typing import Final

from umbilical.wire import protobuf
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.packets import (
    CLOSE_REQ,
    CLOSE_RSP,
    DATA,
    DIAL_CLS,
    DIAL_REQ,
    DIAL_RSP,
    DRAIN,
    PAUSE,
    RESUME,
    TYPE_NAMES,
    CloseDial,
    CloseRequest,
    CloseResponse,
    Data,
    DialRequest,
    DialResponse,
    Drain,
    Packet,
    Pause,
    Resume,
)

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
_USUAL_TAGS: Final = (0x12, 0x1A, 0x2A, 0x32, 0x00, 0x3A)
"""Tags of the payloads by packet type; 0 for DATA, which does not come here."""
_USUAL_FIELDS: Final = (b"\x0a\x12\x18", b"\x0a\x10\x18", b"\x08", b"\x0a\x10", b"", b"\x08")
"""Tags of the fields within."""


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


def _type_name(kind: int) -> str:
    return TYPE_NAMES[kind] if kind < len(TYPE_NAMES) else str(kind)


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
