"""Packets as others write them, lawful or not: read as `protobuf` reads them."""

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tests.support import packet_messages as reference
from tests.wire.packet_samples import PAYLOAD_OF, UNKNOWN_FIELDS, assert_equal, decode, encode_unknown, messages, parse

from umbilical.wire import packets, protobuf
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.packets import Packet


@given(messages())
def test_what_protobuf_writes_is_read(message: Any) -> None:
    assert_equal(decode(message.SerializeToString()), message)


@given(messages(), UNKNOWN_FIELDS, UNKNOWN_FIELDS)
def test_unknown_fields_are_ignored(message: Any, before: list[Any], behind: list[Any]) -> None:
    encoded = encode_unknown(before) + message.SerializeToString() + encode_unknown(behind)
    assert parse(encoded).type == message.type
    assert_equal(decode(encoded), message)


@given(messages(), UNKNOWN_FIELDS)
def test_unknown_fields_inside_the_payload_are_ignored(message: Any, unknown: list[Any]) -> None:
    payload_name = PAYLOAD_OF[message.type]
    number = message.DESCRIPTOR.fields_by_name[payload_name].number
    content = getattr(message, payload_name).SerializeToString() + encode_unknown(unknown)
    kind = protobuf.encode_integer(0x08, message.type)
    encoded = kind + protobuf.encode_bytes(number << 3 | protobuf.LENGTH_DELIMITED, content)
    assert_equal(decode(encoded), parse(encoded))
    assert_equal(decode(encoded), message)


@given(st.integers(-(2**31), 2**31 - 1), st.none() | messages())
def test_unknown_types_are_no_fault_with_or_without_payload(kind: int, message: Any) -> None:
    if 0 <= kind <= packets.DRAIN or kind in (packets.PAUSE, packets.RESUME):
        kind = 7
    message = message or reference.Packet()
    message.type = kind
    ours = decode(message.SerializeToString())
    assert type(ours) is Packet
    assert_equal(ours, message)


@given(messages(), messages())
def test_a_message_behind_another_is_merged_as_protobuf_merges(first: Any, second: Any) -> None:
    encoded = first.SerializeToString() + second.SerializeToString()
    merged = parse(encoded)
    if merged.WhichOneof("payload") == PAYLOAD_OF[merged.type]:
        assert_equal(decode(encoded), merged)
    else:
        with pytest.raises(ProtocolViolation, match="without its payload"):
            decode(encoded)


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x12\x0d\x0a\x83\x00tcp\x12\x03a:1\x18\x07",  # a length in two bytes where one is enough
        b"\x12\x0c\x18\x07\x0a\x03tcp\x12\x03a:1",  # the last field first
        b"\x12\x0e\x0a\x03tcp\x12\x03a:1\x18\x06\x18\x07",  # a field twice
        b"\x12\x07\x12\x03a:1\x18\x07",  # no protocol
        b"\x12\x09\x0a\x00\x12\x03a:1\x18\x07",  # an empty one
        b"\x08\x00\x12\x0c\x0a\x03tcp\x12\x03a:1\x18\x07",  # the type although it is 0
        b"\x88\x00\x00\x12\x0c\x0a\x03tcp\x12\x03a:1\x18\x07",  # the type's tag in two bytes
        b"\x12\x0c\x0a\x03tcp\x12\x03a:1\x18\x07\x08\x00",  # the type behind the payload
        b"\x08\x01\x1a\x04\x10\x05\x18\x07",
        b"\x08\x01\x1a\x07\x0a\x01e\x10\x05\x18\x07",  # both an error and an identifier
        b"\x08\x01\x1a\x02\x18\x07",
        b"\x08\x01\x1a\x02\x10\x07",
        b"\x08\x01\x1a\x04\x0a\x02\x18\x07",  # an error text that looks like a field
        b"\x08\x02\x2a\x02\x08\x00",
        b"\x08\x02\x2a\x02\x0a\x00",  # a text where the identifier belongs
        b"\x08\x03\x32\x03\x0a\x01e",
        b"\x08\x03\x32\x05\x0a\x01e\x10\x00",
        b"\x08\x05\x3a\x00",
        b"\x08\x05\x3a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
)
def test_unusual_shapes_are_read_as_protobuf_reads_them(encoded: bytes) -> None:
    assert_equal(decode(encoded), parse(encoded))


@given(st.sampled_from(sorted(PAYLOAD_OF)), messages())
def test_the_type_decides_and_its_payload_must_be_there(kind: int, message: Any) -> None:
    agrees = kind == message.type
    message.type = kind
    encoded = message.SerializeToString()
    if agrees:
        assert decode(encoded).kind == kind
        return
    with pytest.raises(ProtocolViolation, match="packet without its payload") as refused:
        decode(encoded)
    assert refused.value.code == protobuf.INVALID_ARGUMENT


@pytest.mark.parametrize("kind", [*PAYLOAD_OF, packets.PAUSE, packets.RESUME])
def test_a_bare_type_is_the_peers_fault_and_no_crash(kind: int) -> None:
    with pytest.raises(ProtocolViolation, match="without its payload"):
        decode(protobuf.encode_integer(0x08, kind))


def test_an_empty_message_is_a_dial_request_without_its_payload() -> None:
    with pytest.raises(ProtocolViolation, match="DIAL_REQ packet without its payload"):
        decode(b"")


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x12\x03\x0a\x01\xff",  # protocol of a dial request
        b"\x08\x01\x1a\x03\x0a\x01\xff",  # error of a dial response
        b"\x08\x03\x32\x03\x0a\x01\xff",  # error of a close response
        b"\x08\x04\x22\x03\x12\x01\xff",  # error of data
        b"\x12\x06\x0a\x01\xff\x0a\x01a",  # a good value behind the bad one
        b"\x12\x03\x0a\x01\xff\x08\x06\x42\x00",  # in a payload that another replaces
    ],
)
def test_text_that_is_not_utf8_is_refused(encoded: bytes) -> None:
    with pytest.raises(DecodeError):
        parse(encoded)
    with pytest.raises(ProtocolViolation, match="UTF-8"):
        decode(encoded)


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x08\x06\x42\x00\x12\x01\x08",  # ends with a dial request that is cut short
        b"\x12\x01\x18\x12\x01\x05",  # two halves that only together are a dial request
        b"\x08\x63\x12\x01\x08",  # of a type that nobody knows
    ],
)
def test_a_malformed_payload_is_refused_even_where_nobody_would_look(encoded: bytes) -> None:
    """Verbatim it would reach a peer that looks, and end the stream that carries everyone's tunnels."""
    with pytest.raises(DecodeError):
        parse(encoded)
    with pytest.raises(ProtocolViolation, match="malformed"):
        decode(encoded)


@given(
    kind=st.integers(0, 6),
    fields=st.lists(st.tuples(st.sampled_from([0x08, 0x0A, 0x10, 0x12, 0x18, 0x1A]), st.integers(0, 300)), max_size=4),
)
def test_the_short_way_to_decode_a_control_packet_agrees_with_protobuf(
    kind: int, fields: list[tuple[int, int]]
) -> None:
    body = b"".join(
        bytes((tag,)) + (protobuf.encode_varint(value) if tag & 7 == 0 else bytes((value % 5,)) + b"abcd"[: value % 5])
        for tag, value in fields
    )
    tag = (0x12, 0x1A, 0x2A, 0x32, 0x22, 0x3A, 0x42)[kind]
    message = (bytes((8, kind)) if kind else b"") + protobuf.encode_bytes(tag, body)
    try:
        ours = decode(message)
    except ProtocolViolation:
        return
    assert_equal(ours, parse(message))
