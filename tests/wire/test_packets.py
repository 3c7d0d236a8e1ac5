"""Konnectivity packets, both ways, against `protobuf`."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tests.support import packet_messages as reference

from umbilical.wire import packets, protobuf
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.packets import Packet, decode_packet

INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
PAYLOAD = st.binary(max_size=300)

# Our names of the fields, in the order of the .proto files, by the name of the payload.
FIELDS = {
    "dialRequest": ("protocol", "address", "dial_id"),
    "dialResponse": ("error", "connection_id", "dial_id"),
    "closeRequest": ("connection_id",),
    "closeResponse": ("error", "connection_id"),
    "data": ("connection_id", "error", "payload"),
    "closeDial": ("dial_id",),
    "drain": (),
}
PAYLOAD_OF = {
    packets.DIAL_REQ: "dialRequest",
    packets.DIAL_RSP: "dialResponse",
    packets.CLOSE_REQ: "closeRequest",
    packets.CLOSE_RSP: "closeResponse",
    packets.DATA: "data",
    packets.DIAL_CLS: "closeDial",
    packets.DRAIN: "drain",
}


def parse(encoded: bytes) -> Any:
    message = reference.Packet()
    message.ParseFromString(encoded)
    return message


def decode(encoded: bytes) -> Packet:
    # What surrounds the message belongs to other messages and must not be looked at.
    surrounded = b"\xff\xff" + encoded + b"\x08\x01"
    return decode_packet(surrounded, 2, 2 + len(encoded))


def assert_equal(ours: Packet, theirs: Any) -> None:
    assert ours.kind == theirs.type & 0xFFFFFFFF
    if ours.kind not in PAYLOAD_OF:
        assert type(ours) is Packet
        return
    payload = getattr(theirs, PAYLOAD_OF[ours.kind])
    for field, name in zip(payload.DESCRIPTOR.fields, FIELDS[PAYLOAD_OF[ours.kind]], strict=True):
        assert getattr(ours, name) == getattr(payload, field.name)


KINDS = tuple(PAYLOAD_OF)
CONTROL_KINDS = tuple(kind for kind in KINDS if kind != packets.DATA)


@st.composite
def messages(draw: st.DrawFn, kinds: tuple[int, ...] = KINDS) -> Any:
    """A message whose type and payload agree."""
    kind = draw(st.sampled_from(kinds))
    message = reference.Packet(type=kind)
    payload = getattr(message, PAYLOAD_OF[kind])
    payload.SetInParent()
    for field in payload.DESCRIPTOR.fields:
        values: st.SearchStrategy[object] = {
            field.TYPE_INT64: INT64,
            field.TYPE_STRING: TEXT,
            field.TYPE_BYTES: PAYLOAD,
        }[field.type]
        setattr(payload, field.name, draw(values))
    return message


# Well-formed fields that no .proto of ours names; 15 is where our own extension lives.
UNKNOWN_FIELDS = st.lists(
    st.tuples(st.sampled_from([9, 15, 16, 200, 0x1FFFFFFF]), st.integers(0, 5), st.binary(max_size=20)), max_size=4
)


def encode_unknown(fields: list[tuple[int, int, bytes]]) -> bytes:
    encoded = b""
    for number, wire_type, value in fields:
        tag = protobuf.encode_varint(number << 3 | wire_type)
        if wire_type == protobuf.VARINT:
            encoded += tag + protobuf.encode_varint(int.from_bytes(value[:8], "big"))
        elif wire_type == protobuf.LENGTH_DELIMITED:
            encoded += tag + protobuf.encode_varint(len(value)) + value
        elif wire_type == protobuf.FIXED64:
            encoded += tag + value[:8].ljust(8, b"\0")
        elif wire_type == protobuf.FIXED32:
            encoded += tag + value[:4].ljust(4, b"\0")
        elif wire_type == protobuf.START_GROUP:
            encoded += tag + b"\x0a" + protobuf.encode_varint(len(value)) + value
            encoded += protobuf.encode_varint(number << 3 | protobuf.END_GROUP)
    return encoded


# ---------------------------------------------------------------- ours to theirs


@given(TEXT, TEXT, INT64)
def test_dial_request_is_read_by_protobuf(protocol: str, address: str, dial_id: int) -> None:
    message = parse(packets.encode_dial_request(protocol, address, dial_id))
    assert message == reference.dial_request(address, dial_id, protocol)


@given(TEXT, INT64, INT64)
def test_dial_response_is_read_by_protobuf(error: str, connection_id: int, dial_id: int) -> None:
    message = parse(packets.encode_dial_response(error, connection_id, dial_id))
    assert message == reference.dial_response(dial_id, connection_id, error)


@given(INT64)
def test_close_request_is_read_by_protobuf(connection_id: int) -> None:
    assert parse(packets.encode_close_request(connection_id)) == reference.close_request(connection_id)


@given(TEXT, INT64)
def test_close_response_is_read_by_protobuf(error: str, connection_id: int) -> None:
    assert parse(packets.encode_close_response(error, connection_id)) == reference.close_response(connection_id, error)


@given(INT64)
def test_close_dial_is_read_by_protobuf(dial_id: int) -> None:
    assert parse(packets.encode_close_dial(dial_id)) == reference.close_dial(dial_id)


@given(INT64, PAYLOAD)
def test_data_is_read_by_protobuf(connection_id: int, payload: bytes) -> None:
    assert parse(packets.encode_data(connection_id, payload)) == reference.data(connection_id, payload)


def test_drain_is_read_by_protobuf() -> None:
    assert parse(packets.encode_drain()) == reference.Packet(type=packets.DRAIN, drain={})


@given(messages())
def test_we_write_the_very_bytes_that_protobuf_writes(message: Any) -> None:
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
        message.data.error = ""  # nobody has ever set it, so we cannot
    assert encoders[message.type](getattr(message, PAYLOAD_OF[message.type])) == message.SerializeToString(
        deterministic=True
    )


@given(INT64)
def test_our_extension_is_an_unknown_type_to_others_and_whole_to_us(connection_id: int) -> None:
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


# ---------------------------------------------------------------- theirs to ours


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
