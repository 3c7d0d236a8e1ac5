"""Konnectivity packets as we write them, read by `protobuf`."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import UInt64Value
from hypothesis import given
from hypothesis import strategies as st
from tests.support import packet_messages as reference
from tests.wire.packet_samples import (
    CONTROL_KINDS,
    INT64,
    PAYLOAD,
    PAYLOAD_OF,
    UNKNOWN_FIELDS,
    assert_equal,
    decode,
    encode_unknown,
    messages,
    parse,
)

from umbilical.wire import packets, protobuf
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.packet_data import DataPrefix, find_data, padded_length
from umbilical.wire.packets import Packet


@given(messages())
def test_we_write_the_same_bytes_as_protobuf(message: Any) -> None:
    encoders: dict[int, Callable[[Any], bytes]] = {
        packets.DIAL_REQ: lambda p: packets.encode_dial_request(p.protocol, p.address, p.random),
        packets.DIAL_RSP: lambda p: packets.encode_dial_response(p.error, p.connectID, p.random),
        packets.CLOSE_REQ: lambda p: packets.encode_close_request(p.connectID),
        packets.CLOSE_RSP: lambda p: packets.encode_close_response(p.error, p.connectID),
        packets.DATA: lambda p: packets.encode_data(p.connectID, p.data),
        packets.DIAL_CLS: lambda p: packets.encode_close_dial(p.random),
        packets.DRAIN: lambda _: packets.encode_drain(),
    }
    if message.type == packets.DATA:
        message.data.error = ""  # no implementation sets it, and we have no field for it
    assert encoders[message.type](getattr(message, PAYLOAD_OF[message.type])) == message.SerializeToString(
        deterministic=True
    )


@given(INT64)
def test_our_extension_is_an_unknown_type_to_others_and_decoded_by_us(connection_id: int) -> None:
    for kind, encoded in (
        (packets.PAUSE, packets.encode_pause(connection_id)),
        (packets.RESUME, packets.encode_resume(connection_id)),
    ):
        theirs = parse(encoded)
        assert theirs.type == kind
        assert theirs.WhichOneof("payload") is None
        ours = decode(encoded)
        assert isinstance(ours, packets.Pause | packets.Resume)
        assert (ours.kind, ours.connection_id) == (kind, connection_id)


@given(st.integers(1, 2**35 - 1), PAYLOAD.filter(bool))
def test_data_in_its_usual_shape_is_found_in_place(connection_id: int, payload: bytes) -> None:
    encoded = reference.data(connection_id, payload).SerializeToString()
    surrounded = bytearray(b"\x08\x04\x22" + encoded + b"\xff")
    found, start = find_data(surrounded, 3, 3 + len(encoded))
    assert found == connection_id
    assert surrounded[start : 3 + len(encoded)] == payload


@pytest.mark.parametrize("size", [1, 100, 122, 127, 128, 4_096, 16_370, 16_384, 32_768, 65_000, 2_200_000])
@pytest.mark.parametrize("connection_id", [1, 127, 128, 70_000, 2**35 - 1])
def test_data_of_every_size_is_found_in_every_form(size: int, connection_id: int) -> None:
    shortest = reference.data(connection_id, bytes(size)).SerializeToString()
    assert find_data(shortest, 0, len(shortest)) == (connection_id, len(shortest) - size)
    assert find_data(shortest, 0, len(shortest) - 1) == (0, -1)
    if size < 1 << 20:
        padded = DataPrefix(1, connection_id).for_length(size) + bytes(size)
        assert find_data(padded, 14, len(padded)) == (connection_id, len(padded) - size)
        assert find_data(padded, 14, len(padded) - 1) == (0, -1)


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x08\x04\x22\x88\x80\x00\x08\x01\x1a\x81\x80\x00xx",  # a byte behind the payload
        b"\x08\x04\x22\x07\x08\x01\x1a\x81\x00xx",
        b"\x08\x04\x22\x05\x08\x01\x1a\x03x",  # a byte too few
        b"\x08\x04\x22\x05\x08\x01\x12\x01x",  # an error text instead of the payload
        b"\x08\x04\x22\x05\x08\xff\xff\xff\xff",  # an identifier without end
    ],
)
def test_data_in_any_other_shape_is_left_to_the_decoder(encoded: bytes) -> None:
    assert find_data(encoded, 0, len(encoded)) == (0, -1)


def _assert_agrees(encoded: bytes) -> None:
    connection_id, start = find_data(b"\xff" + encoded + b"\xff", 1, 1 + len(encoded))
    if start < 0:
        return
    packet = decode(encoded)
    assert isinstance(packet, packets.Data)
    assert (packet.connection_id, packet.error, packet.payload) == (connection_id, "", encoded[start - 1 :])


@given(messages((packets.DATA,)), UNKNOWN_FIELDS)
def test_find_data_agrees_with_decode_packet(message: Any, unknown: list[Any]) -> None:
    _assert_agrees(message.SerializeToString())
    _assert_agrees(message.SerializeToString() + encode_unknown(unknown))


@given(st.data(), st.integers(0, 2**40), st.binary(max_size=12) | st.integers(100, 300).map(bytes))
def test_find_data_agrees_with_decode_packet_on_mutated_packets(
    data: st.DataObject, connection_id: int, payload: bytes
) -> None:
    padded = DataPrefix(1, connection_id).for_length(len(payload))[14:] + payload
    encoded = bytearray(data.draw(st.sampled_from([padded, packets.encode_data(connection_id, payload)])))
    for _ in range(data.draw(st.integers(0, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    _assert_agrees(bytes(encoded[: data.draw(st.integers(0, len(encoded)))]))


@given(messages(CONTROL_KINDS))
def test_find_data_ignores_control_packets(message: Any) -> None:
    encoded = message.SerializeToString()
    assert find_data(encoded, 0, len(encoded)) == (0, -1)


def test_data_without_payload_is_left_to_the_decoder() -> None:
    encoded = packets.encode_data(7, b"")
    assert find_data(encoded, 0, len(encoded)) == (0, -1)
    packet = decode(encoded)
    assert isinstance(packet, packets.Data)
    assert (packet.connection_id, packet.payload) == (7, b"")


@given(st.integers(1, 2**31 - 1), INT64, PAYLOAD)
def test_a_data_prefix_makes_a_frame_that_protobuf_reads(stream_id: int, connection_id: int, payload: bytes) -> None:
    prefix = DataPrefix(stream_id, connection_id)
    frame = prefix.for_length(len(payload)) + payload
    assert len(frame) == prefix.size + len(payload)
    high, low, kind, flags, stream = struct.unpack(">BHBBI", frame[:9])
    assert (high << 16 | low, kind, flags, stream) == (len(frame) - 9, 0, 0, stream_id)
    assert (frame[9], int.from_bytes(frame[10:14], "big")) == (0, len(frame) - 14)
    assert parse(frame[14:]) == reference.data(connection_id, payload)


@given(st.integers(1, 2**35 - 1), st.integers(0, 2**21 - 64))
def test_a_data_prefix_is_found_by_our_own_reader(connection_id: int, length: int) -> None:
    # Only the prefix is read, so a view that pretends to have a payload is enough for any length.
    prefix = DataPrefix(1, connection_id).for_length(length)
    assert find_data(prefix, 14, len(prefix) + length) == (connection_id, len(prefix))


def test_a_data_prefix_has_one_size_for_all_lengths() -> None:
    prefix = DataPrefix(3, 1 << 40)
    assert {len(prefix.for_length(length)) for length in (0, 1, 127, 128, 16_384, 65_536, 1 << 20)} == {prefix.size}


def test_the_prefix_of_the_last_length_is_kept() -> None:
    prefix = DataPrefix(3, 5)
    assert prefix.for_length(100) is prefix.for_length(100)
    assert prefix.for_length(100) != prefix.for_length(101)


@given(st.integers(0, 2**21 - 1))
def test_a_padded_length_is_three_bytes_of_the_same_number(length: int) -> None:
    encoded = padded_length(length)
    assert protobuf.read_varint(encoded, 0, 3) == (length, 3)


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
def test_unknown_types_are_accepted_with_and_without_payload(kind: int, message: Any) -> None:
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
def test_a_type_without_payload_is_a_protocol_violation(kind: int) -> None:
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
        b"\x08\x63\x12\x01\x08",  # of an unknown type
    ],
)
def test_a_malformed_payload_is_refused_even_if_it_is_unused(encoded: bytes) -> None:
    """A peer to which it is forwarded would refuse it and end the stream of all tunnels."""
    with pytest.raises(DecodeError):
        parse(encoded)
    with pytest.raises(ProtocolViolation, match="malformed"):
        decode(encoded)


@given(
    kind=st.integers(0, 6),
    fields=st.lists(st.tuples(st.sampled_from([0x08, 0x0A, 0x10, 0x12, 0x18, 0x1A]), st.integers(0, 300)), max_size=4),
)
def test_the_fast_decoder_of_control_packets_agrees_with_protobuf(kind: int, fields: list[tuple[int, int]]) -> None:
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


@given(st.integers(1, 2**64 - 1))
def test_varints_are_the_reference_encoders(value: int) -> None:
    assert b"\x08" + protobuf.encode_varint(value) == UInt64Value(value=value).SerializeToString()


@given(st.integers(0, 2**64 - 1), st.binary(max_size=5), st.binary(max_size=5))
def test_a_varint_is_read_back_at_any_position(value: int, before: bytes, behind: bytes) -> None:
    source = before + protobuf.encode_varint(value) + behind
    assert protobuf.read_varint(source, len(before), len(source)) == (value, len(source) - len(behind))


@given(INT64)
def test_negative_integers_are_sent_as_their_twos_complement(value: int) -> None:
    encoded = protobuf.encode_varint(value)
    assert protobuf.signed(protobuf.read_varint(encoded, 0, len(encoded))[0]) == value


@pytest.mark.parametrize(
    ("encoded", "why"),
    [
        (b"", "cut short"),
        (b"\x80", "cut short"),
        (b"\x80" * 10 + b"\x00", "ten bytes"),
        (b"\xff" * 9 + b"\x02", "overflows"),
    ],
)
def test_a_bad_varint_is_a_protocol_violation(encoded: bytes, why: str) -> None:
    with pytest.raises(ProtocolViolation, match=why) as refused:
        protobuf.read_varint(encoded, 0, len(encoded))
    assert refused.value.code == protobuf.INVALID_ARGUMENT


def test_the_end_that_was_given_counts_not_the_end_of_the_buffer() -> None:
    with pytest.raises(ProtocolViolation, match="cut short"):
        protobuf.read_varint(b"\x80\x01", 0, 1)
    with pytest.raises(ProtocolViolation, match="3 bytes, 2 left"):
        protobuf.read_length(b"\x03abc", 0, 3)


@pytest.mark.parametrize("tag", [b"\x00", b"\x07", protobuf.encode_varint(0x20000000 << 3)])
def test_an_impossible_field_number_is_refused(tag: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="field number"):
        protobuf.read_tag(tag, 0, len(tag))


def test_a_tag_longer_than_five_bytes_is_refused_as_google_does() -> None:
    with pytest.raises(ProtocolViolation, match="tag"):
        protobuf.read_tag(b"\x88\x80\x80\x80\x80\x00", 0, 6)
    assert protobuf.read_tag(b"\x88\x80\x80\x80\x00", 0, 5) == (1, 0, 5)


@pytest.mark.parametrize(
    ("wire_type", "content"),
    [
        (protobuf.VARINT, b"\x96\x01"),
        (protobuf.FIXED64, b"12345678"),
        (protobuf.FIXED32, b"1234"),
        (protobuf.LENGTH_DELIMITED, b"\x03abc"),
        (protobuf.START_GROUP, b"\x08\x01\x13\x18\x05\x14\x2d1234\x4c"),
    ],
)
def test_every_unknown_field_is_skipped(wire_type: int, content: bytes) -> None:
    assert protobuf.skip_field(content + b"rest", 0, len(content) + 4, 9, wire_type) == len(content)
    for end in range(len(content)):
        with pytest.raises(ProtocolViolation):
            protobuf.skip_field(content, 0, end, 9, wire_type)


@pytest.mark.parametrize("wire_type", [protobuf.END_GROUP, 6, 7])
def test_invalid_wire_types_are_refused(wire_type: int) -> None:
    with pytest.raises(ProtocolViolation, match="wire type"):
        protobuf.skip_field(b"\x01", 0, 1, 9, wire_type)


def test_a_group_must_be_ended_by_its_own_number() -> None:
    with pytest.raises(ProtocolViolation, match="was not open"):
        protobuf.skip_field(b"\x54", 0, 1, 9, protobuf.START_GROUP)


def test_the_nesting_of_groups_is_limited() -> None:
    def nested(depth: int) -> bytes:
        return b"\x4b" * (depth - 1) + b"\x4c" * depth

    deepest = nested(protobuf.MAX_GROUP_DEPTH)
    assert protobuf.skip_field(deepest, 0, len(deepest), 9, protobuf.START_GROUP) == len(deepest)
    too_deep = nested(protobuf.MAX_GROUP_DEPTH + 1)
    with pytest.raises(ProtocolViolation, match="too deeply"):
        protobuf.skip_field(too_deep, 0, len(too_deep), 9, protobuf.START_GROUP)


def test_empty_values_are_absent_but_empty_messages_are_not() -> None:
    assert protobuf.encode_integer(0x08, 0) == b""
    assert protobuf.encode_text(0x0A, "") == b""
    assert protobuf.encode_bytes(0x0A, b"") == b"\x0a\x00"


def test_a_text_with_invalid_unicode_is_still_sent() -> None:
    assert protobuf.encode_text(0x0A, "no \udcff") == b"\x0a\x04no ?"
