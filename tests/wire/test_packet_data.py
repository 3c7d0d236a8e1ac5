"""DATA packets, found where they lie and written in place: the data path's half of the codec."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import packet_messages as reference
from tests.wire.packet_samples import (
    CONTROL_KINDS,
    INT64,
    PAYLOAD,
    UNKNOWN_FIELDS,
    decode,
    encode_unknown,
    messages,
    parse,
)

from umbilical.wire import packets, protobuf
from umbilical.wire.packet_data import DataPrefix, find_data, padded_length

# ---------------------------------------------------------------- DATA in place


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
def test_find_data_leaves_control_packets_alone(message: Any) -> None:
    encoded = message.SerializeToString()
    assert find_data(encoded, 0, len(encoded)) == (0, -1)


def test_data_without_payload_is_left_to_the_decoder() -> None:
    encoded = packets.encode_data(7, b"")
    assert find_data(encoded, 0, len(encoded)) == (0, -1)
    packet = decode(encoded)
    assert isinstance(packet, packets.Data)
    assert (packet.connection_id, packet.payload) == (7, b"")


# ---------------------------------------------------------------- DATA in one frame


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
    # Only the prefix is looked at, so a view that pretends to have a payload is enough for any length.
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
