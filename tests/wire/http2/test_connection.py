"""How a connection handles received frames."""

import hpack
import pytest
from tests.wire.http2.ends import (
    BLOCK,
    HEADERS,
    REQUEST,
    Frame,
    Ours,
    RecordedEvent,
    frame,
    goaway_code,
    greeted_client,
    greeted_server,
    greeting,
    settings_frame,
    split,
    window_update,
)

from umbilical.wire.errors import MisuseError
from umbilical.wire.grpc import RESPONSE_HEADERS
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import Block, BlockPool
from umbilical.wire.http2.connection import Connection
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.headers import encode_headers
from umbilical.wire.http2.streams import RESETS_REMEMBERED


@pytest.mark.parametrize(
    "octets", [b"GET / HTTP/1.1\r\n", frames.PREFACE[:-1] + b"x", b"\x16\x03\x01", b"PRI * HTTP/1"]
)
def test_a_client_of_another_protocol_is_refused_before_the_preface_is_complete(octets: bytes) -> None:
    server = Ours(False)
    server.give(octets)
    assert server.names() == ["failed"]
    assert goaway_code(server.take()) == frames.PROTOCOL_ERROR


@pytest.mark.parametrize("first", [frame(frames.PING, 0, 0, bytes(8)), frame(frames.DATA, 0, 1, b"x"), HEADERS])
def test_the_first_frame_must_be_settings(first: bytes) -> None:
    server = Ours(False)
    server.give(frames.PREFACE + first)
    assert server.last("failed").text == "the first frame must be SETTINGS"


@pytest.mark.parametrize("padding", [None, 9])
def test_a_stream_may_be_credited_as_bytes_arrive(padding: int | None) -> None:
    limits = ConnectionLimits(stream_window_bytes=65_535, credits_on_arrival=True)
    server = Ours(False, limits, gives_credit=False)
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
    limits = ConnectionLimits(stream_window_bytes=65_535, credits_on_arrival=True)
    server = Ours(False, limits, gives_credit=False)
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
    server = Ours(False, ConnectionLimits(stream_window_bytes=80_000), gives_credit=False)
    server.give(greeting() + HEADERS + frame(frames.DATA, 0, 1, bytes(16_000)) * 2)
    server.take()
    stream = server.stream(1)
    server.connection.credit(stream, 19_999)
    assert server.take() == b""
    server.connection.credit(stream, 1)
    assert split(server.take()) == [Frame(frames.WINDOW_UPDATE, 0, 1, (20_000).to_bytes(4, "big"))]
    assert stream.receive_window == 80_000 - 12_000


@pytest.mark.parametrize("octets", [frame(0xEE, 0xFF, 77, b"grease"), frame(frames.PRIORITY, 0, 9, bytes(5))])
def test_unknown_and_unneeded_frames_are_ignored(octets: bytes) -> None:
    server = greeted_server(octets, frame(frames.SETTINGS, frames.ACK, 0), settings_frame([(0xAB, 7)]))
    assert server.names() == ["settings", "settings"]


@pytest.mark.parametrize("padding", [0, 1, 255])
def test_padding_is_removed_and_credited_at_once(padding: int) -> None:
    server = Ours(False, ConnectionLimits(stream_window_bytes=65_535), gives_credit=False)
    server.give(greeting() + HEADERS)
    padded = bytes((padding,)) + b"payload" + bytes(padding)
    server.give(frame(frames.DATA, frames.PADDED, 1, padded))
    assert server.events[-1] == RecordedEvent("data", 1, b"payload")
    stream = server.stream(1)
    assert stream.receive_window + stream.uncredited == 65_535 - len(b"payload")


def test_padding_and_priority_of_headers_are_removed() -> None:
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
    assert server.last("headers") == RecordedEvent("headers", 1, end_stream=True, headers=tuple(REQUEST))


def test_streams_past_the_limit_are_refused_and_others_continue() -> None:
    server = greeted_server(HEADERS, limits=ConnectionLimits(max_streams=1))
    server.give(frame(frames.HEADERS, frames.END_HEADERS, 3, BLOCK))
    assert split(server.take()) == [Frame(frames.RST_STREAM, 0, 3, frames.REFUSED_STREAM.to_bytes(4, "big"))]
    server.connection.sender.reset(server.stream(1), frames.CANCEL)
    server.give(frame(frames.HEADERS, frames.END_HEADERS, 5, BLOCK))
    assert server.events[-1].stream_id == 5


def test_a_receive_block_must_hold_the_largest_frame() -> None:
    with pytest.raises(MisuseError):
        Connection(False, ConnectionLimits(frame_bytes=16_384), BlockPool(64, 1), Block(16_384 + 8), shared_block=False)
    Connection(False, ConnectionLimits(frame_bytes=16_384), BlockPool(64, 1), Block(16_384 + 9), shared_block=False)


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        (frame(frames.DATA, 0, 0, b"x"), frames.PROTOCOL_ERROR),
        (frame(frames.DATA, 0, 3, b"x"), frames.PROTOCOL_ERROR),
        (frame(frames.DATA, 0, 2, b"x"), frames.PROTOCOL_ERROR),
        (frame(frames.DATA, frames.PADDED, 1), frames.PROTOCOL_ERROR),
        (frame(frames.DATA, frames.PADDED, 1, b"\x03ab"), frames.PROTOCOL_ERROR),
        (frame(frames.DATA, 0, 1, bytes(16_385)), frames.FRAME_SIZE_ERROR),
        (frame(frames.HEADERS, frames.END_HEADERS, 0, BLOCK), frames.PROTOCOL_ERROR),
        (frame(frames.HEADERS, frames.END_HEADERS, 2, BLOCK), frames.PROTOCOL_ERROR),
        (frame(frames.HEADERS, frames.END_HEADERS, 3, b"\xff\xff\xff"), frames.COMPRESSION_ERROR),
        (frame(frames.HEADERS, frames.END_HEADERS, 3, b"\xbf"), frames.COMPRESSION_ERROR),
        (frame(frames.HEADERS, frames.END_HEADERS | frames.HAS_PRIORITY, 3, b"1234"), frames.FRAME_SIZE_ERROR),
        (frame(frames.CONTINUATION, frames.END_HEADERS, 1, BLOCK), frames.PROTOCOL_ERROR),
        (frame(frames.HEADERS, 0, 3, BLOCK) + frame(frames.DATA, 0, 1, b"x"), frames.PROTOCOL_ERROR),
        (frame(frames.HEADERS, 0, 3, BLOCK) + frame(frames.CONTINUATION, 0, 5, b""), frames.PROTOCOL_ERROR),
        (frame(frames.HEADERS, 0, 3, BLOCK) + frame(0xEE, 0, 0), frames.PROTOCOL_ERROR),
        (frame(frames.PRIORITY, 0, 0, bytes(5)), frames.PROTOCOL_ERROR),
        (frame(frames.RST_STREAM, 0, 1, b"123"), frames.FRAME_SIZE_ERROR),
        (frame(frames.RST_STREAM, 0, 0, b"1234"), frames.PROTOCOL_ERROR),
        (frame(frames.RST_STREAM, 0, 3, b"1234"), frames.PROTOCOL_ERROR),
        (frame(frames.SETTINGS, 0, 0, b"12345"), frames.FRAME_SIZE_ERROR),
        (frame(frames.SETTINGS, frames.ACK, 0, b"123456"), frames.FRAME_SIZE_ERROR),
        (frame(frames.SETTINGS, 0, 1), frames.PROTOCOL_ERROR),
        (settings_frame([(frames.ENABLE_PUSH, 2)]), frames.PROTOCOL_ERROR),
        (settings_frame([(frames.INITIAL_WINDOW_SIZE, 1 << 31)]), frames.FLOW_CONTROL_ERROR),
        (
            window_update(1, 0x7FFFFFFF - 65_535) + settings_frame([(frames.INITIAL_WINDOW_SIZE, 65_536)]),
            frames.FLOW_CONTROL_ERROR,
        ),
        (settings_frame([(frames.MAX_FRAME_SIZE, 16_383)]), frames.PROTOCOL_ERROR),
        (settings_frame([(frames.MAX_FRAME_SIZE, 1 << 24)]), frames.PROTOCOL_ERROR),
        (frame(frames.PUSH_PROMISE, frames.END_HEADERS, 1, bytes(4) + BLOCK), frames.PROTOCOL_ERROR),
        (frame(frames.PING, 0, 0, bytes(7)), frames.FRAME_SIZE_ERROR),
        (frame(frames.PING, 0, 1, bytes(8)), frames.PROTOCOL_ERROR),
        (frame(frames.GOAWAY, 0, 0, bytes(7)), frames.FRAME_SIZE_ERROR),
        (frame(frames.GOAWAY, 0, 1, bytes(8)), frames.PROTOCOL_ERROR),
        (frame(frames.WINDOW_UPDATE, 0, 0, bytes(3)), frames.FRAME_SIZE_ERROR),
        (window_update(0, 0), frames.PROTOCOL_ERROR),
        (window_update(0, 0x7FFFFFFF), frames.FLOW_CONTROL_ERROR),
        (window_update(3, 1), frames.PROTOCOL_ERROR),
        (window_update(3, 0), frames.PROTOCOL_ERROR),
        (frame(frames.PRIORITY, 0, 9, bytes(4)), frames.FRAME_SIZE_ERROR),
        (frame(frames.PRIORITY, 0, 9, b"\0\0\0\x09\0"), frames.PROTOCOL_ERROR),
        (
            frame(frames.HEADERS, frames.END_HEADERS | frames.HAS_PRIORITY, 3, b"\0\0\0\x03\0" + BLOCK),
            frames.PROTOCOL_ERROR,
        ),
        (frame(frames.RST_STREAM, 0, 1, bytes(4)) + frame(frames.DATA, 0, 1, b"x"), frames.STREAM_CLOSED),
        (frame(frames.RST_STREAM, 0, 1, bytes(4)) + HEADERS, frames.STREAM_CLOSED),
        (
            frame(frames.HEADERS, frames.END_HEADERS, 5, BLOCK) + frame(frames.HEADERS, frames.END_HEADERS, 3, BLOCK),
            frames.STREAM_CLOSED,
        ),
    ],
)
def test_a_violation_ends_the_connection_with_the_right_code(octets: bytes, code: int) -> None:
    server = greeted_server(HEADERS)
    server.give(octets)
    assert server.events[-1].name == "failed"
    assert server.events[-1].code == code
    assert goaway_code(server.take()) == code


def test_after_a_failure_all_input_is_discarded_and_goaway_waits() -> None:
    server = greeted_server(HEADERS)
    server.give(frame(frames.DATA, 0, 0, b"x") + HEADERS + frame(frames.PING, 0, 0, bytes(8)))
    before = list(server.events)
    assert before[-1].name == "failed"
    for _ in range(20):
        server.give(frame(frames.PING, 0, 0, bytes(8)) + b"\xff" * 30_000)
    assert server.events == before
    (goaway,) = split(server.take())
    assert goaway.payload[:4] == (1).to_bytes(4, "big"), "the last stream that we looked at"
    assert goaway.payload[8:] == b"DATA on idle stream 0"


def test_the_connection_window_may_not_be_overrun() -> None:
    limits = ConnectionLimits(stream_window_bytes=1 << 20, connection_window_bytes=65_535)
    server = Ours(False, limits, gives_credit=False)
    server.give(greeting() + HEADERS)
    server.connection._receive_window = 10_000
    server.give(frame(frames.DATA, 0, 1, bytes(10_001)))
    assert server.last("failed").code == frames.FLOW_CONTROL_ERROR


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        (window_update(1, 0), frames.PROTOCOL_ERROR),
        (window_update(1, 0x7FFFFFFF), frames.FLOW_CONTROL_ERROR),
        (frame(frames.PRIORITY, 0, 1, bytes(4)), frames.FRAME_SIZE_ERROR),
        (frame(frames.HEADERS, frames.END_HEADERS, 1, BLOCK), frames.PROTOCOL_ERROR),
        (frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, BLOCK), frames.PROTOCOL_ERROR),
        (frame(frames.DATA, frames.END_STREAM, 1) + frame(frames.DATA, 0, 1, b"x"), frames.STREAM_CLOSED),
        (
            frame(frames.DATA, frames.END_STREAM, 1)
            + frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, BLOCK),
            frames.STREAM_CLOSED,
        ),
    ],
)
def test_a_violation_on_one_stream_resets_only_that_stream(octets: bytes, code: int) -> None:
    server = greeted_server(HEADERS)
    server.give(octets)
    assert (server.events[-1].name, server.events[-1].stream_id, server.events[-1].code) == ("reset", 1, code)
    assert split(server.take())[-1] == Frame(frames.RST_STREAM, 0, 1, code.to_bytes(4, "big"))
    server.give(frame(frames.HEADERS, frames.END_HEADERS, 3, BLOCK))
    assert server.events[-1].name == "headers"


def test_a_streams_window_may_not_be_overrun() -> None:
    server = Ours(False, ConnectionLimits(stream_window_bytes=65_535), gives_credit=False)
    server.give(greeting() + HEADERS + frame(frames.DATA, 0, 1, bytes(16_384)) * 4)
    assert (server.events[-1].name, server.events[-1].code) == ("reset", frames.FLOW_CONTROL_ERROR)


@pytest.mark.parametrize("name", [b"Authorization", b"x-Upper"])
def test_a_header_name_with_capitals_resets_the_stream(name: bytes) -> None:
    """RFC 9113 section 8.2.1; such a name would not match in any comparison."""
    server = greeted_server()
    block = encode_headers([*REQUEST, (name, b"value")])
    server.give(frame(frames.HEADERS, frames.END_HEADERS, 1, block))
    assert server.names() == ["settings"], "no event for the stream yet"
    assert split(server.take()) == [Frame(frames.RST_STREAM, 0, 1, frames.PROTOCOL_ERROR.to_bytes(4, "big"))]


def test_a_response_with_capitals_resets_the_stream() -> None:
    client = greeted_client()
    client.connection.sender.open_stream(REQUEST)
    block = encode_headers([*RESPONSE_HEADERS, (b"Serverid", b"1")])
    client.give(frame(frames.HEADERS, frames.END_HEADERS, 1, block))
    assert (client.events[-1].name, client.events[-1].code) == ("reset", frames.PROTOCOL_ERROR)


def test_late_frames_on_a_stream_that_we_reset_are_allowed() -> None:
    server = greeted_server(HEADERS)
    server.connection.sender.reset(server.stream(1), frames.CANCEL)
    server.take()
    server.give(
        frame(frames.DATA, 0, 1, b"late")
        + window_update(1, 5)
        + frame(frames.PRIORITY, 0, 1, bytes(5))
        + frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, BLOCK)
        + frame(frames.RST_STREAM, 0, 1, bytes(4))
    )
    assert server.names() == ["settings", "headers"]
    assert server.take() == b""


def test_late_data_still_counts_for_the_connection_window() -> None:
    server = Ours(False, ConnectionLimits(connection_window_bytes=100_000, stream_window_bytes=65_535))
    server.give(greeting() + HEADERS)
    server.connection.sender.reset(server.stream(1), frames.CANCEL)
    server.take()
    server.give(frame(frames.DATA, 0, 1, bytes(16_000)) * 10)
    granted = sum(int.from_bytes(one.payload, "big") for one in split(server.take()) if one.stream_id == 0)
    assert 160_000 - 25_000 <= granted <= 160_000


def test_late_frames_on_streams_reset_long_ago_are_allowed() -> None:
    server = greeted_server()
    last = 2 * RESETS_REMEMBERED + 100
    for number in range(1, last, 2):
        server.give(frame(frames.HEADERS, frames.END_HEADERS, number, BLOCK))
        server.stream(number).served = True
        server.connection.sender.reset(server.stream(number), frames.CANCEL)
    server.give(frame(frames.DATA, 0, 1, b"late") + frame(frames.DATA, 0, last - 1, b"late"))
    assert server.connection.sender.failure is None


@pytest.mark.parametrize(
    ("length", "data", "is_right"),
    [(b"4", [b"test"], True), (b"4", [b"te", b"st"], True), (b"3", [b"test"], False), (b"9", [b"te", b"st"], False)],
)
def test_data_must_match_content_length(length: bytes, data: list[bytes], is_right: bool) -> None:
    block = encode_headers([*REQUEST, (b"content-length", length)])
    server = greeted_server(frame(frames.HEADERS, frames.END_HEADERS, 1, block))
    for piece in data[:-1]:
        server.give(frame(frames.DATA, 0, 1, piece))
    server.give(frame(frames.DATA, frames.END_STREAM, 1, data[-1]))
    assert server.events[-1].name == ("data" if is_right else "reset")


@pytest.mark.parametrize("length", [b"5", b"x", b"-1"])
def test_a_request_with_a_wrong_content_length_and_no_data_is_refused(length: bytes) -> None:
    block = encode_headers([*REQUEST, (b"content-length", length)])
    server = greeted_server(frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, block))
    assert server.names() == ["settings"]


def test_trailers_of_a_closed_stream_still_update_the_header_table() -> None:
    encoder = hpack.Encoder()
    server = greeted_server(frame(frames.HEADERS, frames.END_HEADERS, 1, encoder.encode(REQUEST)))
    server.connection.sender.reset(server.stream(1), frames.CANCEL)
    late = encoder.encode([(b"x-late", b"value")])
    server.give(frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, late))
    again = encoder.encode([*REQUEST, (b"x-late", b"value")])
    server.give(frame(frames.HEADERS, frames.END_HEADERS, 3, again))
    assert server.last("headers").headers == (*REQUEST, (b"x-late", b"value"))
