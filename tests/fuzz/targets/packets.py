"""One packet: refused and read as `protobuf` does, and what we encode is read as the same packet by both.

Input: the packet.
"""

from typing import Any

from google.protobuf.message import DecodeError
from tests.support import packet_messages as reference
from tests.wire.packet_samples import assert_equal

from umbilical.wire import packets
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.packet_data import find_data
from umbilical.wire.packets import PAUSE, RESUME, Data, Packet, Pause, Resume, decode_packet

STRICTER = ("without its payload", "overflows 64 bits", "field number 0")
"""Go refuses the last, too; `protobuf` overlooks it within a group."""


def target(data: bytes) -> None:
    ours, theirs = _ours(data), _theirs(data)
    connection_id, start = find_data(data, 0, len(data))
    if start >= 0:
        assert isinstance(ours, Data), "the data path took what the decoder refuses"
        assert (connection_id, data[start:]) == (ours.connection_id, ours.payload)
    if isinstance(ours, Packet):
        _check_equal(ours, theirs)
        _check_encoder(ours)
    elif theirs is not None and theirs.type not in (PAUSE, RESUME):
        assert any(reason in ours.message for reason in STRICTER), f"we refused what protobuf takes: {ours.message}"


def _theirs(encoded: bytes) -> Any:
    message = reference.Packet()
    try:
        message.ParseFromString(encoded)
    except DecodeError:
        return None
    return message


def _ours(encoded: bytes) -> Packet | ProtocolViolation:
    """Decode it among bytes of other messages, which must not be read."""
    try:
        return decode_packet(b"\x08\xff" + encoded + b"\x08\x01", 2, 2 + len(encoded))
    except ProtocolViolation as violation:
        return violation


def _check_encoder(packet: Packet) -> None:
    encoded = _encoded(packet)
    if encoded is None:
        return
    again = _ours(encoded)
    assert isinstance(again, Packet)
    assert (type(again), _encoded(again)) == (type(packet), encoded)
    _check_equal(packet, _theirs(encoded))


def _check_equal(ours: Packet, theirs: Any) -> None:
    assert theirs is not None, "we took what protobuf refuses"
    if isinstance(ours, Pause | Resume):
        assert ours.kind == theirs.type  # of our extension the reference knows no more
    else:
        assert_equal(ours, theirs)


def _encoded(packet: Packet) -> bytes | None:
    """None for a packet that nobody encodes: of an unknown type, or DATA with an error."""
    match packet:
        case packets.DialRequest():
            return packets.encode_dial_request(packet.protocol, packet.address, packet.dial_id)
        case packets.DialResponse():
            return packets.encode_dial_response(packet.error, packet.connection_id, packet.dial_id)
        case packets.CloseRequest():
            return packets.encode_close_request(packet.connection_id)
        case packets.CloseResponse():
            return packets.encode_close_response(packet.error, packet.connection_id)
        case packets.Data() if not packet.error:
            return packets.encode_data(packet.connection_id, packet.payload)
        case packets.CloseDial():
            return packets.encode_close_dial(packet.dial_id)
        case packets.Pause():
            return packets.encode_pause(packet.connection_id)
        case packets.Resume():
            return packets.encode_resume(packet.connection_id)
        case packets.Drain():
            return packets.encode_drain()
    return None
