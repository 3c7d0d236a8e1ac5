"""Konnectivity packets as we write them, read by `protobuf`."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from tests.support import packet_messages as reference
from tests.wire.packet_samples import INT64, PAYLOAD, PAYLOAD_OF, TEXT, decode, messages, parse

from umbilical.wire import packets


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
