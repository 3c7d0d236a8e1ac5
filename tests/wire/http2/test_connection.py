"""What one connection does with each frame, lawful or not, and what it refuses to be asked for."""

import hpack
import pytest
from tests.wire.http2.ends import (
    REQUEST,
    Event,
    Frame,
    Ours,
    frame,
    goaway_code,
    greeting,
    open_stream,
    our_pair,
    pump,
    settings_frame,
    split,
)

from umbilical.wire.buffer import Block, BlockPool
from umbilical.wire.errors import MisuseError
from umbilical.wire.grpc import OK, RESPONSE_HEADERS, trailers
from umbilical.wire.http2 import connection as http2
from umbilical.wire.http2 import frames
from umbilical.wire.http2.connection import Connection, Profile
from umbilical.wire.http2.headers import encode_headers
from umbilical.wire.packet_data import DataPrefix

BLOCK = encode_headers(REQUEST)
HEADERS = frame(frames.HEADERS, frames.END_HEADERS, 1, BLOCK)


def greeted_server(*more: bytes, profile: Profile | None = None) -> Ours:
    """A server that a client has greeted; what it said so far is taken away."""
    server = Ours(False, profile)
    server.give(greeting() + b"".join(more))
    server.take()
    return server


def greeted_client() -> Ours:
    client = Ours(True)
    client.give(settings_frame())
    client.take()
    return client


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(frames.WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))


# ---------------------------------------------------------------- greeting


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


def test_settings_are_acknowledged() -> None:
    server = Ours(False)
    server.take()
    server.give(greeting())
    assert server.take() == frames.SETTINGS_ACK
    assert server.names() == ["settings"]


@pytest.mark.parametrize("octets", [b"GET / HTTP/1.1\r\n", frames.PREFACE[:-1] + b"x", b"\x16\x03\x01"])
def test_who_does_not_speak_http2_is_told_so(octets: bytes) -> None:
    server = Ours(False)
    server.give(octets)
    assert server.names() == ["failed"]
    assert goaway_code(server.take()) == frames.PROTOCOL_ERROR


def test_a_wrong_preface_is_noticed_before_it_is_whole() -> None:
    server = Ours(False)
    server.give(b"PRI * HTTP/1")
    assert server.names() == ["failed"]


@pytest.mark.parametrize("first", [frame(frames.PING, 0, 0, bytes(8)), frame(frames.DATA, 0, 1, b"x"), HEADERS])
def test_the_first_frame_must_be_settings(first: bytes) -> None:
    server = Ours(False)
    server.give(frames.PREFACE + first)
    assert server.last("failed").text == "the first frame must be SETTINGS"


# ---------------------------------------------------------------- credit


@pytest.mark.parametrize("padding", [None, 9])
def test_a_stream_may_be_credited_as_bytes_arrive(padding: int | None) -> None:
    profile = Profile(stream_window_bytes=65_535, credits_on_arrival=True)
    server = Ours(False, profile, gives_credit=False)
    server.give(greeting() + HEADERS)
    flags = 0 if padding is None else frames.PADDED
    payload = bytes(8_000) if padding is None else bytes((padding,)) + bytes(8_000 - 1)
    for _ in range(50):
        server.give(frame(frames.DATA, flags, 1, payload))
    granted = sum(int.from_bytes(one.payload, "big") for one in split(server.take()) if one.stream_id == 1)
    assert 400_000 - 20_000 <= granted <= 400_000
    assert server.stream(1).receive_window == 65_535 - 400_000 + granted
    server.give(frame(frames.DATA, flags | frames.END_STREAM, 1, payload) + window_update(1, 1))
    assert server.events[-2].end_stream
    assert server.take() == b"", "who sends no more needs no credit"


def test_credit_on_arrival_can_be_held_back_and_released() -> None:
    profile = Profile(stream_window_bytes=65_535, credits_on_arrival=True)
    server = Ours(False, profile, gives_credit=False)
    server.give(greeting() + HEADERS)
    stream = server.stream(1)
    server.connection.hold_credit(stream)
    server.take()
    server.give(frame(frames.DATA, 0, 1, bytes(10_000)) * 6)
    assert server.take() == b""
    server.connection.release_credit(stream)
    assert split(server.take()) == [Frame(frames.WINDOW_UPDATE, 0, 1, (60_000).to_bytes(4, "big"))]
    server.connection.release_credit(stream)
    assert server.take() == b"", "there is nothing to give"


def test_credit_is_given_in_quarters_of_the_window() -> None:
    server = Ours(False, Profile(stream_window_bytes=80_000), gives_credit=False)
    server.give(greeting() + HEADERS + frame(frames.DATA, 0, 1, bytes(16_000)) * 2)
    server.take()
    stream = server.stream(1)
    server.connection.credit(stream, 19_999)
    assert server.take() == b""
    server.connection.credit(stream, 1)
    assert split(server.take()) == [Frame(frames.WINDOW_UPDATE, 0, 1, (20_000).to_bytes(4, "big"))]
    assert stream.receive_window == 80_000 - 12_000


# ---------------------------------------------------------------- what is lawful


@pytest.mark.parametrize("octets", [frame(0xEE, 0xFF, 77, b"grease"), frame(frames.PRIORITY, 0, 9, bytes(5))])
def test_what_we_do_not_know_or_need_is_ignored(octets: bytes) -> None:
    server = greeted_server(octets, frame(frames.SETTINGS, frames.ACK, 0), settings_frame([(0xAB, 7)]))
    assert server.names() == ["settings", "settings"]


@pytest.mark.parametrize("padding", [0, 1, 255])
def test_padding_is_taken_off_and_credited_at_once(padding: int) -> None:
    server = Ours(False, Profile(stream_window_bytes=65_535), gives_credit=False)
    server.give(greeting() + HEADERS)
    padded = bytes((padding,)) + b"payload" + bytes(padding)
    server.give(frame(frames.DATA, frames.PADDED, 1, padded))
    assert server.events[-1] == Event("data", 1, b"payload")
    stream = server.stream(1)
    assert stream.receive_window + stream.uncredited == 65_535 - len(b"payload")


def test_padding_and_priority_of_headers_are_taken_off() -> None:
    payload = b"\x04" + bytes(5) + BLOCK + bytes(4)
    flags = frames.END_HEADERS | frames.PADDED | frames.HAS_PRIORITY
    server = greeted_server(frame(frames.HEADERS, flags, 1, payload))
    assert server.last("headers").headers == tuple(REQUEST)


def test_a_header_block_may_come_in_many_frames() -> None:
    pieces = [BLOCK[i : i + 9] for i in range(0, len(BLOCK), 9)]
    octets = frame(frames.HEADERS, frames.END_STREAM, 1, pieces[0])
    octets += b"".join(frame(frames.CONTINUATION, 0, 1, piece) for piece in pieces[1:])
    octets += frame(frames.CONTINUATION, frames.END_HEADERS, 1)
    server = greeted_server(octets)
    assert server.last("headers") == Event("headers", 1, end_stream=True, headers=tuple(REQUEST))


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


def test_goaway_with_an_error_names_the_last_stream_that_was_served() -> None:
    client, server = our_pair()
    open_stream(client, server)
    server.connection.goaway(frames.ENHANCE_YOUR_CALM, "too_many_pings")
    pump(client, server)
    assert client.events[-1] == Event("goaway", 1, code=frames.ENHANCE_YOUR_CALM, text="too_many_pings")


def test_streams_past_the_limit_are_refused_and_others_go_on() -> None:
    server = greeted_server(HEADERS, profile=Profile(max_streams=1))
    server.give(frame(frames.HEADERS, frames.END_HEADERS, 3, BLOCK))
    assert split(server.take()) == [Frame(frames.RST_STREAM, 0, 3, frames.REFUSED_STREAM.to_bytes(4, "big"))]
    server.connection.reset(server.stream(1), frames.CANCEL)
    server.give(frame(frames.HEADERS, frames.END_HEADERS, 5, BLOCK))
    assert server.events[-1].stream_id == 5


def test_a_reset_is_told_with_its_code() -> None:
    client, server = our_pair()
    stream, _ = open_stream(client, server)
    client.connection.reset(stream, frames.CANCEL)
    pump(client, server)
    assert server.events[-1] == Event("reset", 1, code=frames.CANCEL, text="reset by the peer")
    assert not client.connection.streams
    assert not server.connection.streams


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


def test_a_small_header_table_is_announced_in_every_block() -> None:
    """A block may wait behind payload while others overtake it, so whichever comes first must say it."""
    server = greeted_server(settings_frame([(frames.HEADER_TABLE_SIZE, 0)]), HEADERS)
    server.connection.send_headers(server.stream(1), RESPONSE_HEADERS)
    server.connection.finish(server.stream(1), trailers(OK, ""))
    for one in split(server.take()):
        decoder = hpack.Decoder()
        decoder.max_allowed_table_size = 0
        decoder.decode(one.payload)


# ---------------------------------------------------------------- misuse by us


def test_a_server_opens_no_streams() -> None:
    with pytest.raises(MisuseError):
        Ours(False).connection.open_stream(REQUEST)


def test_stream_numbers_run_out_before_they_overflow() -> None:
    client = greeted_client()
    client.connection._next_own_stream = 0x7FFFFFFF
    assert client.connection.open_stream(REQUEST).stream_id == 0x7FFFFFFF
    with pytest.raises(MisuseError):
        client.connection.open_stream(REQUEST)


def test_a_receive_block_must_hold_the_largest_frame() -> None:
    with pytest.raises(MisuseError):
        Connection(False, Profile(frame_bytes=16_384), BlockPool(64, 1), Block(16_384 + 8), shared_block=False)
    Connection(False, Profile(frame_bytes=16_384), BlockPool(64, 1), Block(16_384 + 9), shared_block=False)


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


def test_events_are_numbered_apart() -> None:
    numbers = {http2.NEED_DATA, http2.DATA, http2.HEADERS, http2.RESET, http2.WINDOW_OPENED, http2.GOAWAY}
    assert len(numbers | {http2.PING_ANSWERED, http2.SETTINGS_RECEIVED, http2.FAILED}) == 9
