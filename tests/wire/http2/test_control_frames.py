"""Frames that steer, as they are understood and answered; faults and floods of them stand beside the connection."""

import hpack
from tests.wire.http2.ends import (
    HEADERS,
    Event,
    Frame,
    Ours,
    frame,
    greeted_server,
    greeting,
    open_stream,
    our_pair,
    pump,
    settings_frame,
    split,
)

from umbilical.wire.grpc import OK, RESPONSE_HEADERS, trailers
from umbilical.wire.http2 import frames


def test_settings_are_acknowledged() -> None:
    server = Ours(False)
    server.take()
    server.give(greeting())
    assert server.take() == frames.SETTINGS_ACK
    assert server.names() == ["settings"]


def test_a_small_header_table_is_announced_in_every_block() -> None:
    """A block may wait behind payload while others overtake it, so whichever comes first must say it."""
    server = greeted_server(settings_frame([(frames.HEADER_TABLE_SIZE, 0)]), HEADERS)
    server.connection.send_headers(server.stream(1), RESPONSE_HEADERS)
    server.connection.finish(server.stream(1), trailers(OK, ""))
    for one in split(server.take()):
        decoder = hpack.Decoder()
        decoder.max_allowed_table_size = 0
        decoder.decode(one.payload)


def test_a_ping_is_answered_with_its_payload() -> None:
    server = greeted_server()
    server.give(frame(frames.PING, 0, 0, b"abcdefgh"))
    assert split(server.take()) == [Frame(frames.PING, frames.ACK, 0, b"abcdefgh")]
    assert server.names() == ["settings"]


def test_the_answer_to_our_ping_is_told() -> None:
    client, server = our_pair()
    client.connection.ping(b"\x01\x02\x03\x04\x05\x06\x07\x08")
    pump(client, server)
    assert client.events[-1] == Event("ping answered", text="0102030405060708")


def test_goaway_is_told_with_code_last_stream_and_text() -> None:
    client, server = our_pair()
    server.connection.goaway(frames.NO_ERROR, "going")
    pump(client, server)
    assert client.events[-1] == Event("goaway", frames.LARGEST_WINDOW_BYTES, code=frames.NO_ERROR, text="going")


def test_a_reset_is_told_with_its_code() -> None:
    client, server = our_pair()
    stream, _ = open_stream(client, server)
    client.connection.reset(stream, frames.CANCEL)
    pump(client, server)
    assert server.events[-1] == Event("reset", 1, code=frames.CANCEL, text="reset by the peer")
    assert not client.connection.streams
    assert not server.connection.streams
