"""Varints, tags and skipping, against `protobuf`'s own idea of them."""

import pytest
from google.protobuf.wrappers_pb2 import UInt64Value
from hypothesis import given
from hypothesis import strategies as st

from umbilical.wire import protobuf
from umbilical.wire.errors import ProtocolViolation

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.integers(1, 2**64 - 1))
def test_varints_are_the_reference_encoders(value: int) -> None:
    assert b"\x08" + protobuf.encode_varint(value) == UInt64Value(value=value).SerializeToString()


@given(st.integers(0, 2**64 - 1), st.binary(max_size=5), st.binary(max_size=5))
def test_a_varint_is_read_back_wherever_it_stands(value: int, before: bytes, behind: bytes) -> None:
    source = before + protobuf.encode_varint(value) + behind
    assert protobuf.read_varint(source, len(before), len(source)) == (value, len(source) - len(behind))


@given(INT64)
def test_negative_integers_travel_as_their_twos_complement(value: int) -> None:
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
def test_a_bad_varint_is_the_peers_fault(encoded: bytes, why: str) -> None:
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
def test_every_unknown_field_is_stepped_over(wire_type: int, content: bytes) -> None:
    assert protobuf.skip_field(content + b"rest", 0, len(content) + 4, 9, wire_type) == len(content)
    for end in range(len(content)):
        with pytest.raises(ProtocolViolation):
            protobuf.skip_field(content, 0, end, 9, wire_type)


@pytest.mark.parametrize("wire_type", [protobuf.END_GROUP, 6, 7])
def test_wire_types_that_begin_nothing_are_refused(wire_type: int) -> None:
    with pytest.raises(ProtocolViolation, match="wire type"):
        protobuf.skip_field(b"\x01", 0, 1, 9, wire_type)


def test_a_group_must_be_ended_by_its_own_number() -> None:
    with pytest.raises(ProtocolViolation, match="was not open"):
        protobuf.skip_field(b"\x54", 0, 1, 9, protobuf.START_GROUP)


def test_groups_nest_only_so_deep() -> None:
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


def test_a_text_that_is_no_unicode_is_still_sent() -> None:
    assert protobuf.encode_text(0x0A, "no \udcff") == b"\x0a\x04no ?"
