"""Floods end the connection with the right code; legitimate traffic never does."""

from collections.abc import Callable

import hpack
import pytest
from tests.wire.http2.ends import (
    BLOCK,
    REQUEST,
    Ours,
    frame,
    goaway_code,
    greeted_server,
    one_stream,
    open_stream,
    our_pair,
    pump,
    settings_frame,
    split,
)

from umbilical.wire.grpc import OK, RESPONSE_HEADERS, UNIMPLEMENTED, trailers, unknown_method
from umbilical.wire.http2 import flood_guard, frames
from umbilical.wire.http2.flood_guard import MAX_ANSWER_BYTES
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.sender import FINISHED_KEPT
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import DataPrefix

BDP_PING = frame(frames.PING, 0, 0, bytes((2, 4, 16, 16, 9, 14, 7, 7)))
UNSERVED = ConnectionLimits().unserved_streams
WEEK_SECONDS = 7 * 24 * 3600


def headers(stream_id: int, flags: int = 0) -> bytes:
    return frame(frames.HEADERS, frames.END_HEADERS | flags, stream_id, BLOCK)


def reset(stream_id: int) -> bytes:
    return frame(frames.RST_STREAM, 0, stream_id, frames.CANCEL.to_bytes(4, "big"))


def server_with(*more: bytes) -> Ours:
    return greeted_server(*more, limits=ConnectionLimits(max_streams=100))


def flood(server: Ours, *octets: bytes, times: int = 30_000) -> int:
    """Repeat these frames until the connection fails; return how often they were sent."""
    for count in range(times):
        server.give(octets[count % len(octets)])
        if server.connection.sender.failure is not None:
            return count
    return times


@pytest.mark.parametrize(
    "fault",
    [
        reset,
        lambda number: frame(frames.WINDOW_UPDATE, 0, number, bytes(4)),
        lambda number: frame(frames.PRIORITY, 0, number, bytes(3)),
        headers,
        lambda number: frame(frames.WINDOW_UPDATE, 0, number, b"\x7f\xff\xff\xff"),
    ],
    ids=["rapid reset", "window of 0", "short priority", "second headers", "window overflow"],
)
def test_too_many_reset_streams_end_the_connection_whichever_side_resets(fault: Callable[[int], bytes]) -> None:
    server = server_with()
    count = flood(server, *(headers(number) + fault(number) for number in range(1, 8_000, 2)))
    assert count == UNSERVED + 1
    assert server.last("failed").code == goaway_code(server.take()) == frames.ENHANCE_YOUR_CALM
    assert len(server.connection.streams.by_id) <= 1


def test_a_flood_of_streams_past_the_limit_ends_the_connection() -> None:
    server = server_with(*(headers(number) for number in range(1, 201, 2)))
    count = flood(server, *(headers(number) for number in range(201, 8_000, 2)))
    assert count == UNSERVED + 1
    assert server.last("failed").code == frames.ENHANCE_YOUR_CALM
    assert len(server.connection.streams.by_id) == 100


def test_a_settings_flood_ends_the_connection() -> None:
    server = server_with()
    assert flood(server, settings_frame([(frames.INITIAL_WINDOW_SIZE, 70_000)])) < flood_guard.SETTINGS_BURST
    assert goaway_code(server.take()) == frames.ENHANCE_YOUR_CALM


def test_a_ping_flood_ends_the_connection() -> None:
    server = server_with(headers(1))
    assert flood(server, BDP_PING) == flood_guard.CONTROL_BURST
    assert server.last("failed").text == "flood of PING frames"
    assert goaway_code(server.take()) == frames.ENHANCE_YOUR_CALM


def test_a_trickle_of_data_does_not_excuse_a_ping_flood() -> None:
    server = server_with(headers(1))
    assert flood(server, BDP_PING * 20 + frame(frames.DATA, 0, 1, b"x")) < 1_000
    assert server.last("failed").code == frames.ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    "empty",
    [
        frame(frames.DATA, 0, 1),
        frame(frames.DATA, frames.PADDED, 1, b"\x00"),
        frame(frames.DATA, frames.PADDED, 1, b"\x02ab"),
        frame(frames.SETTINGS, frames.ACK, 0),
        frame(frames.PRIORITY, 0, 3, bytes(5)),
        frame(frames.WINDOW_UPDATE, 0, 0, b"\0\0\0\x01"),
        frame(frames.WINDOW_UPDATE, 0, 1, b"\0\0\0\x01"),
        frame(frames.WINDOW_UPDATE, 0, 3, b"\0\0\0\x01"),
        frame(0xEE, 0, 0, b"grease"),
        reset(3),
    ],
    ids=["empty", "padded", "all padding", "ack", "priority", "window", "own window", "late window", "unknown", "late"],
)
def test_a_flood_of_frames_that_move_nothing_ends_the_connection_and_uses_no_memory(empty: bytes) -> None:
    server = server_with(headers(1), headers(3), reset(3))
    assert flood(server, empty) == flood_guard.CONTROL_BURST
    assert server.last("failed").code == frames.ENHANCE_YOUR_CALM
    assert server.connection.outbox.queued_bytes() < 100


@pytest.mark.parametrize("piece", [b"", b"x", bytes(16_384)], ids=["empty", "tiny", "large"])
def test_endless_continuation_frames_end_the_connection(piece: bytes) -> None:
    server = server_with(frame(frames.HEADERS, 0, 1, BLOCK))
    assert flood(server, frame(frames.CONTINUATION, 0, 1, piece)) < 40
    assert server.last("failed").code == frames.ENHANCE_YOUR_CALM
    assert goaway_code(server.take()) == frames.ENHANCE_YOUR_CALM


def test_a_header_list_that_decodes_to_a_huge_size_ends_the_connection() -> None:
    entry = hpack.Encoder().encode([(b"x-bomb", b"0" * 4_000)])
    server = server_with()
    server.give(frame(frames.HEADERS, frames.END_HEADERS, 1, entry + b"\xbe" * 100))
    assert server.last("failed").code == frames.ENHANCE_YOUR_CALM


def test_answers_that_the_peer_does_not_read_are_bounded() -> None:
    """DATA refills the budget for pings, so a peer may send both, unless it never reads the answers."""
    server = server_with(headers(1))
    round_trip = BDP_PING * 4 + frame(frames.DATA, 0, 1, bytes(1_000))
    assert flood(server, round_trip, times=30_000) < 30_000
    assert server.last("failed").code == frames.ENHANCE_YOUR_CALM
    assert server.connection.outbox.queued_bytes() < MAX_ANSWER_BYTES + 1_000


def test_answers_that_the_peer_reads_do_not_count_as_a_flood() -> None:
    server = server_with(headers(1))
    for _ in range(20_000):
        server.give(BDP_PING * 4 + frame(frames.DATA, 0, 1, b"x"))
        server.take()
    assert server.connection.sender.failure is None


def test_calls_that_are_refused_end_the_connection_however_they_end() -> None:
    """Also with a path of 4 KB that each HEADERS frame refers to with one byte, and answers that nobody reads."""
    encoder = hpack.Encoder()
    path = (b":path", b"/" + b"x" * 3_000)
    server = server_with(frame(frames.HEADERS, frames.END_HEADERS, 1, encoder.encode([*REQUEST[:2], path])))
    for number in range(3, 8_000, 2):
        stream = server.connection.streams.by_id.get(number - 2)
        if server.connection.sender.failure is not None or stream is None:
            break
        server.connection.sender.finish(stream, RESPONSE_HEADERS + trailers(UNIMPLEMENTED, unknown_method(path[1])))
        server.give(frame(frames.HEADERS, frames.END_HEADERS, number, encoder.encode([*REQUEST[:2], path])))
    assert server.last("failed").code == frames.ENHANCE_YOUR_CALM
    assert server.connection.streams.highest_of_peer // 2 == UNSERVED + 1
    assert server.connection.outbox.queued_bytes() < 300_000
    assert len(server.connection.streams.by_id) <= FINISHED_KEPT + 1


def test_refusals_that_the_peer_does_not_read_are_bounded() -> None:
    server = server_with()
    server.connection.outbox.add_control(bytes(MAX_ANSWER_BYTES + 1))
    server.give(headers(1))
    server.connection.sender.finish(server.stream(1), RESPONSE_HEADERS + trailers(UNIMPLEMENTED, "no"))
    server.give(BDP_PING)
    assert server.last("failed").code == frames.ENHANCE_YOUR_CALM


def test_streams_that_we_asked_for_may_end_unserved() -> None:
    """Clients that leave before their dial is answered must not cost an agent its connection."""
    server = server_with()
    for _ in range(5_000):
        server.connection.expect_stream()
    assert flood(server, *(headers(number) + reset(number) for number in range(1, 10_001, 2)), times=5_000) == 5_000
    assert server.connection.sender.failure is None


def test_streams_that_were_asked_for_and_came_leave_no_budget_for_a_flood() -> None:
    server = server_with()
    for _ in range(5_000):
        server.connection.expect_stream()
        server.connection.expected_stream_came()
    assert flood(server, *(headers(number) + reset(number) for number in range(1, 8_000, 2))) == UNSERVED + 1


def test_ten_thousand_served_then_reset_streams_are_allowed() -> None:
    server = server_with()
    for number in range(1, 20_001, 2):
        server.give(headers(number) + frame(frames.DATA, 0, number, b"\0\0\0\0\0"))
        server.stream(number).served = True
        server.connection.sender.send_headers(server.stream(number), RESPONSE_HEADERS)
        server.give(reset(number))
        server.take()
    assert server.names().count("reset") == 10_000
    assert not server.connection.streams.by_id


def test_ten_thousand_calls_that_end_as_grpc_go_ends_them() -> None:
    """Its client resets with NO_ERROR when the server finished first."""
    server = server_with()
    for number in range(1, 20_001, 2):
        server.give(headers(number))
        server.stream(number).served = True
        server.connection.sender.finish(server.stream(number), RESPONSE_HEADERS + trailers(OK, ""))
        server.give(frame(frames.RST_STREAM, 0, number, bytes(4)))
        server.take()
    assert server.connection.sender.failure is None
    assert not server.connection.streams.by_id


def test_a_client_allows_any_number_of_resets_of_its_own_streams() -> None:
    client, server = our_pair()
    for _ in range(5_000):
        _, answer = open_stream(client, server)
        answer.served = True
        server.connection.sender.reset(answer, frames.REFUSED_STREAM)
        pump(client, server)
    assert client.names().count("reset") == 5_000
    assert client.connection.sender.failure is None


def test_the_budget_for_cancelled_dials_refills_over_time() -> None:
    server = server_with()
    for number in range(1, 20_001, 2):
        server.now += 0.01
        server.give(headers(number) + reset(number))
    assert server.connection.sender.failure is None


@pytest.mark.parametrize(
    "send",
    [
        lambda server, answer: server.write(answer, DataPrefix(1, 1), b"payload"),
        lambda server, answer: server.connection.sender.send_message(answer, b"dial"),
        lambda server, answer: server.connection.sender.send_ordered(answer, b"close"),
    ],
    ids=["payload", "message", "ordered message"],
)
def test_pings_of_grpc_go_during_downloads_are_allowed(send: Callable[[Ours, Stream], object]) -> None:
    client, server, _, answer = one_stream()
    server.connection.sender.send_headers(answer, RESPONSE_HEADERS)
    for _ in range(2_500):
        send(server, answer)
        pump(client, server)
        server.give(BDP_PING)
    assert server.connection.sender.failure is None


@pytest.mark.parametrize(
    ("octets", "every_seconds"),
    [(BDP_PING, 10), (settings_frame([(frames.INITIAL_WINDOW_SIZE, 70_000)]), 60)],
    ids=["keepalive", "settings"],
)
def test_occasional_control_frames_are_allowed_for_a_week(octets: bytes, every_seconds: int) -> None:
    server = server_with()
    for second in range(0, WEEK_SECONDS, every_seconds):
        server.now = float(second)
        server.give(octets)
        server.take()
    assert server.connection.sender.failure is None


def test_growing_windows_of_grpc_go_are_allowed() -> None:
    """Its estimator sends SETTINGS and WINDOW_UPDATE each time the window doubles, within milliseconds."""
    _, server, _, answer = one_stream()
    window = 65_535
    while window < 16 * 1024 * 1024:
        server.give(settings_frame([(frames.INITIAL_WINDOW_SIZE, window)]) + frames.window_update_frame(0, window))
        window *= 2
    assert server.connection.sender.failure is None
    assert answer.send_window == window // 2
    assert [one.kind for one in split(server.take())] == [frames.SETTINGS] * 9
