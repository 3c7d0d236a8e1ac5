"""What one connection does with what it receives."""

import pytest
from tests.wire.http2.ends import (
    BLOCK,
    HEADERS,
    REQUEST,
    Event,
    Frame,
    Ours,
    frame,
    goaway_code,
    greeted_server,
    greeting,
    settings_frame,
    split,
    window_update,
)

from umbilical.wire.buffer import Block, BlockPool
from umbilical.wire.errors import MisuseError
from umbilical.wire.http2 import connection as http2
from umbilical.wire.http2 import frames
from umbilical.wire.http2.connection import Connection, Profile

# ---------------------------------------------------------------- greeting


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


def test_streams_past_the_limit_are_refused_and_others_go_on() -> None:
    server = greeted_server(HEADERS, profile=Profile(max_streams=1))
    server.give(frame(frames.HEADERS, frames.END_HEADERS, 3, BLOCK))
    assert split(server.take()) == [Frame(frames.RST_STREAM, 0, 3, frames.REFUSED_STREAM.to_bytes(4, "big"))]
    server.connection.reset(server.stream(1), frames.CANCEL)
    server.give(frame(frames.HEADERS, frames.END_HEADERS, 5, BLOCK))
    assert server.events[-1].stream_id == 5


# ---------------------------------------------------------------- misuse by us


def test_a_receive_block_must_hold_the_largest_frame() -> None:
    with pytest.raises(MisuseError):
        Connection(False, Profile(frame_bytes=16_384), BlockPool(64, 1), Block(16_384 + 8), shared_block=False)
    Connection(False, Profile(frame_bytes=16_384), BlockPool(64, 1), Block(16_384 + 9), shared_block=False)


def test_events_are_numbered_apart() -> None:
    numbers = {http2.NEED_DATA, http2.DATA, http2.HEADERS, http2.RESET, http2.WINDOW_OPENED, http2.GOAWAY}
    assert len(numbers | {http2.PING_ANSWERED, http2.SETTINGS_RECEIVED, http2.FAILED}) == 9
