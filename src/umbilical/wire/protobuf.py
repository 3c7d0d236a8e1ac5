"""The part of the protobuf wire format that Konnectivity's messages need: varints, tags, skipping unknown fields."""

from typing import Final

from umbilical.wire.errors import ProtocolViolation

VARINT: Final = 0
FIXED64: Final = 1
LENGTH_DELIMITED: Final = 2
START_GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5

MAX_VARINT_BYTES: Final = 10
MAX_TAG_BYTES: Final = 5
MAX_GROUP_DEPTH: Final = 100
"""Nesting limit for groups of unknown fields; Google's parsers have the same."""

INVALID_ARGUMENT: Final = 3
"""The gRPC status for a malformed message."""

_SIGN_BIT: Final = 1 << 63
_MASK_64: Final = (1 << 64) - 1
_ONE_BYTE: Final = [bytes((value,)) for value in range(0x80)]
"""Encodings of all varints below 128."""


def malformed(why: str) -> ProtocolViolation:
    return ProtocolViolation(INVALID_ARGUMENT, f"malformed protobuf: {why}")


def read_varint(source: bytes | bytearray, position: int, end: int) -> tuple[int, int]:
    """Return the value (unsigned, 64 bits) and the position behind it."""
    value = 0
    shift = 0
    while True:
        if position >= end:
            raise malformed("varint cut short")
        byte = source[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 7 * MAX_VARINT_BYTES:
            raise malformed("varint longer than ten bytes")
    if shift == 63 and byte > 1:
        raise malformed("varint overflows 64 bits")
    return value, position


def read_length(source: bytes | bytearray, position: int, end: int) -> tuple[int, int]:
    """Read a length prefix; return where its content begins and ends."""
    length, start = read_varint(source, position, end)
    if length > end - start:
        raise malformed(f"field of {length} bytes, {end - start} left")
    return start, start + length


def read_tag(source: bytes | bytearray, position: int, end: int) -> tuple[int, int, int]:
    """Return field number, wire type and the position behind the tag."""
    tag, behind = read_varint(source, position, end)
    if behind - position > MAX_TAG_BYTES:
        raise malformed(f"tag of {behind - position} bytes")
    field = tag >> 3
    if field == 0 or field > 0x1FFFFFFF:
        raise malformed(f"field number {field}")
    return field, tag & 7, behind


def skip_field(source: bytes | bytearray, position: int, end: int, field: int, wire_type: int) -> int:
    """Skip one unknown field whose tag was just read; return the position behind it."""
    if wire_type == START_GROUP:
        return _skip_group(source, position, end, field)
    return _skip_scalar(source, position, end, wire_type)


def _skip_scalar(source: bytes | bytearray, position: int, end: int, wire_type: int) -> int:
    if wire_type == VARINT:
        return read_varint(source, position, end)[1]
    if wire_type == LENGTH_DELIMITED:
        return read_length(source, position, end)[1]
    if wire_type == FIXED64:
        position += 8
    elif wire_type == FIXED32:
        position += 4
    else:
        raise malformed(f"wire type {wire_type}")
    if position > end:
        raise malformed("fixed-width field cut short")
    return position


def _skip_group(source: bytes | bytearray, position: int, end: int, field: int) -> int:
    open_groups = [field]
    while open_groups:
        inner, wire_type, position = read_tag(source, position, end)
        if wire_type == START_GROUP:
            if len(open_groups) == MAX_GROUP_DEPTH:
                raise malformed("groups nested too deeply")
            open_groups.append(inner)
        elif wire_type == END_GROUP:
            if open_groups.pop() != inner:
                raise malformed(f"group {inner} ended but was not open")
        else:
            position = _skip_scalar(source, position, end, wire_type)
    return position


def signed(value: int) -> int:
    """Convert the two's complement in which an int64 field is sent."""
    return value - (1 << 64) if value & _SIGN_BIT else value


def encode_varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    value &= _MASK_64
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_integer(tag: int, value: int) -> bytes:
    """An int64 field with a one-byte tag; omitted when zero, as in proto3."""
    return _ONE_BYTE[tag] + encode_varint(value) if value else b""


def encode_bytes(tag: int, value: bytes) -> bytes:
    """A length-delimited field with a one-byte tag, present even when empty."""
    return _ONE_BYTE[tag] + encode_varint(len(value)) + value


def encode_text(tag: int, value: str) -> bytes:
    """A string field with a one-byte tag; omitted when empty, as in proto3."""
    return encode_bytes(tag, value.encode("utf-8", "replace")) if value else b""
