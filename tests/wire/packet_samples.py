"""Sample packets for the codecs, and `protobuf` as the reference."""

from typing import Any

from hypothesis import strategies as st
from tests.support import packet_messages as reference

from umbilical.wire import packets, protobuf
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
    # The surrounding bytes belong to other messages and must not be read.
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
    """A message with matching type and payload."""
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


# Well-formed fields that are in no .proto file; 15 is the field of our extension.
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
