"""Bytes that nobody meant: our packet decoder refuses what `protobuf` refuses, and never by another exception."""

from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import packet_messages as reference
from tests.wire.packet_samples import assert_equal, messages

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.packet_data import find_data
from umbilical.wire.packets import PAUSE, RESUME, Packet, decode_packet

# Bytes that mean something in a packet, so that garbage gets further than its first byte.
TELLING = st.binary(max_size=24) | st.lists(
    st.sampled_from([*range(0x30), 0x3A, 0x42, 0x78, 0x7A, 0x7F, 0x80, 0xFF]), max_size=24
).map(bytes)
STRICTER = ("without its payload", "overflows 64 bits")


def _theirs(encoded: bytes) -> Any:
    message = reference.Packet()
    try:
        message.ParseFromString(encoded)
    except DecodeError:
        return None
    return message


def _ours(encoded: bytes) -> Packet | ProtocolViolation:
    try:
        return decode_packet(encoded, 0, len(encoded))
    except ProtocolViolation as violation:
        return violation


def _compare(encoded: bytes) -> None:
    ours, theirs = _ours(encoded), _theirs(encoded)
    find_data(encoded, 0, len(encoded))
    if isinstance(ours, Packet):
        assert theirs is not None, "we took what protobuf refuses"
        assert_equal(ours, theirs)
    elif theirs is not None and theirs.type not in (PAUSE, RESUME):
        assert any(reason in ours.message for reason in STRICTER), f"we refused what protobuf takes: {ours.message}"


@settings(max_examples=1000)
@given(TELLING)
def test_random_bytes_are_judged_as_protobuf_judges(encoded: bytes) -> None:
    _compare(encoded)


@settings(max_examples=500)
@given(messages(), st.data())
def test_mutated_packets_are_judged_as_protobuf_judges(message: Any, data: st.DataObject) -> None:
    encoded = bytearray(message.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(encoded)))
        encoded[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    _compare(bytes(encoded))
