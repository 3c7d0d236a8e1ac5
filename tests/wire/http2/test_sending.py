"""What a connection says of itself, how calls begin and end, and what it refuses to be asked for."""

import pytest
from tests.wire.http2.ends import (
    REQUEST,
    Event,
    Frame,
    Ours,
    greeted_client,
    open_stream,
    our_pair,
    pump,
    split,
)

from umbilical.wire.errors import MisuseError
from umbilical.wire.grpc import OK, RESPONSE_HEADERS, trailers
from umbilical.wire.http2 import frames
from umbilical.wire.http2.connection import Profile
from umbilical.wire.http2.streams import CLOSED
from umbilical.wire.packet_data import DataPrefix
from umbilical.wire.tunnel_frames import PlainPrefix


def test_a_client_says_preface_settings_and_its_window_before_it_is_asked() -> None:
    profile = Profile(frame_bytes=32_768, stream_window_bytes=70_000, connection_window_bytes=100_000)
    greeted = Ours(True, profile).take()
    assert greeted.startswith(frames.PREFACE)
    settings, window = split(greeted)
    assert dict(frames.parse_settings(settings.payload)) == {
        frames.MAX_FRAME_SIZE: 32_768,
        frames.INITIAL_WINDOW_SIZE: 70_000,
        frames.MAX_HEADER_LIST_SIZE: 65_536,
        frames.ENABLE_PUSH: 0,
    }
    assert window == Frame(frames.WINDOW_UPDATE, 0, 0, (100_000 - 65_535).to_bytes(4, "big"))


def test_a_server_limits_streams_and_leaves_a_small_connection_window_alone() -> None:
    (settings,) = split(Ours(False, Profile(max_streams=7, connection_window_bytes=65_535)).take())
    assert dict(frames.parse_settings(settings.payload))[frames.MAX_CONCURRENT_STREAMS] == 7


def test_a_call_that_both_sides_ended_leaves_no_stream_behind() -> None:
    client, server = our_pair()
    stream, answer = open_stream(client, server)
    server.connection.send_headers(answer, RESPONSE_HEADERS)
    server.connection.finish(answer, trailers(OK, ""))
    pump(client, server)
    assert client.events[-1] == Event("headers", 1, end_stream=True, headers=((b"grpc-status", b"0"),))
    client.connection.close_sending(stream)
    pump(client, server)
    assert server.events[-1] == Event("data", 1, end_stream=True)
    assert not client.connection.streams
    assert not server.connection.streams


def test_goaway_with_an_error_names_the_last_stream_that_was_served() -> None:
    client, server = our_pair()
    open_stream(client, server)
    server.connection.goaway(frames.ENHANCE_YOUR_CALM, "too_many_pings")
    pump(client, server)
    assert client.events[-1] == Event("goaway", 1, code=frames.ENHANCE_YOUR_CALM, text="too_many_pings")


def test_a_server_opens_no_streams() -> None:
    with pytest.raises(MisuseError):
        Ours(False).connection.open_stream(REQUEST)


def test_stream_numbers_run_out_before_they_overflow() -> None:
    client = greeted_client()
    client.connection._next_own_stream = 0x7FFFFFFF
    assert client.connection.open_stream(REQUEST).stream_id == 0x7FFFFFFF
    with pytest.raises(MisuseError):
        client.connection.open_stream(REQUEST)


def test_what_is_sent_on_an_ended_stream_goes_nowhere() -> None:
    client, server = our_pair()
    stream, answer = open_stream(client, server)
    server.connection.finish(answer, trailers(OK, ""))
    client.connection.close_sending(stream)
    pump(client, server)
    for connection, ended in ((client.connection, stream), (server.connection, answer)):
        connection.send_message(ended, b"late")
        connection.send_ordered(ended, b"late")
        connection.send_headers(ended, RESPONSE_HEADERS)
        connection.finish(ended, trailers(OK, ""))
        connection.close_sending(ended)
        connection.reset(ended, frames.CANCEL)
        assert connection.payload_room(ended, DataPrefix(1, 1).size) is None
        assert not connection.has_pending()


def test_no_payload_follows_the_end_of_a_stream() -> None:
    client, server = our_pair()
    stream, _ = open_stream(client, server)
    client.connection.close_sending(stream)
    assert client.connection.payload_room(stream, DataPrefix(1, 1).size) is None


def test_a_connection_that_is_over_has_nothing_to_send_and_gives_its_block_back() -> None:
    client, server = our_pair()
    stream, _ = open_stream(client, server)
    assert client.write(stream, DataPrefix(1, 1), b"payload") == 7
    client.connection.ping(bytes(8))
    client.connection.release()
    assert client.connection.pending() is None
    assert client.connection.queued_bytes() == 0
    assert len(client.pool._free) == 1


def test_an_end_both_ways_stands_behind_the_payload_and_leaves_no_stream_behind() -> None:
    client, server = our_pair()
    stream, answer = open_stream(client, server)
    server.connection.send_headers(answer, RESPONSE_HEADERS)
    assert server.write(answer, PlainPrefix(1), b"last words") == 10
    server.connection.close_both(answer)
    pump(client, server)
    assert client.names()[-3:] == ["data", "data", "reset"]
    assert bytes(client.received[1]) == b"last words"
    assert client.events[-2] == Event("data", 1, end_stream=True)
    assert client.last("reset").code == frames.NO_ERROR
    assert not client.connection.streams
    assert not server.connection.streams
    assert stream.state == CLOSED


@pytest.mark.parametrize("ends", ["close_sending", "close_both", "abort"])
def test_an_end_that_finds_the_block_full_follows_when_there_is_room(ends: str) -> None:
    client, server = our_pair()
    stream, _ = open_stream(client, server)
    prefix = PlainPrefix(stream.stream_id)
    written = 0
    while taken := client.write(stream, prefix, bytes(16_384)):
        written += taken
    client.connection._outbox._end = client.pool.block_bytes  # not one more byte fits
    full = client.connection._outbox._end
    end = {
        "close_sending": lambda: client.connection.close_sending(stream),
        "close_both": lambda: client.connection.close_both(stream),
        "abort": lambda: client.connection.abort(stream, frames.CONNECT_ERROR),
    }
    end[ends]()
    assert client.connection._outbox._end == full
    assert stream.finish is not None
    assert client.connection.payload_room(stream, prefix.size) is None, "nothing may follow"
    client.connection.sent(len(client.connection.pending() or b""))  # as if the socket took it all
    client.connection.after_flush()
    sent = split(client.take())
    kinds = {"close_sending": [frames.DATA], "close_both": [frames.DATA, frames.RST_STREAM]}
    assert [frame.kind for frame in sent] == kinds.get(ends, [frames.RST_STREAM])
    assert (stream.stream_id in client.connection.streams) == (ends == "close_sending")


def test_a_peers_limit_of_streams_is_kept() -> None:
    client, server = our_pair(server_profile=Profile(max_streams=2))
    assert client.connection.can_open_stream()
    open_stream(client, server)
    client.connection.open_stream(REQUEST)
    assert not client.connection.can_open_stream()


def test_a_stream_without_credit_is_told_from_a_full_connection() -> None:
    client, server = our_pair(server_profile=Profile(stream_window_bytes=70_000))
    server.gives_credit = False
    stream, _ = open_stream(client, server)
    assert not client.connection.is_shut(stream)
    while client.write(stream, PlainPrefix(stream.stream_id), bytes(16_384)):
        pump(client, server)
    assert client.connection.is_shut(stream)
    other, _ = open_stream(client, server)
    assert not client.connection.is_shut(other)
