"""`h2` at the other end, in both roles: each accepts what the other sends."""

from collections.abc import Callable, Iterable
from itertools import cycle, repeat
from random import Random

import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import pytest
from tests.wire.http2.ends import REQUEST, Ours, RecordedEvent, Theirs, pump
from tests.wire.http2.traffic import Traffic

from umbilical.wire.grpc import OK, RESPONSE_HEADERS, message_prefix, trailers
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import BlockPool
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.streams import Stream

SETTING = h2.settings.SettingCodes
CUTS: dict[str, Callable[[], Iterable[int]]] = {
    "whole": lambda: repeat(1 << 30),
    "one byte": lambda: repeat(1),
    "random": lambda: cycle(Random(7).choices([1, 5, 9, 10, 100, 5_000], k=50)),
    "odd": lambda: cycle([3, 11, 16_393]),
}
TEXT_REQUEST = [(name.decode(), value.decode()) for name, value in REQUEST]


def grpc_message(message: bytes) -> bytes:
    return message_prefix(len(message)) + message


def server_against_h2(
    limits: ConnectionLimits | None = None, settings: dict[int, int] | None = None
) -> tuple[Theirs, Ours]:
    client, server = Theirs(True, settings), Ours(False, limits)
    pump(client, server)
    return client, server


def answering(settings: dict[int, int] | None = None, *, gives_credit: bool = True) -> tuple[Theirs, Ours, Stream]:
    """A call of h2 that our server has answered with headers."""
    client, server = server_against_h2(settings=settings)
    client.gives_credit = gives_credit
    client.http2.send_headers(1, TEXT_REQUEST)
    pump(client, server)
    stream = server.stream(1)
    server.connection.sender.send_headers(stream, RESPONSE_HEADERS)
    return client, server, stream


def client_against_h2(
    limits: ConnectionLimits | None = None, settings: dict[int, int] | None = None
) -> tuple[Ours, Theirs]:
    client, server = Ours(True, limits), Theirs(False, settings)
    pump(client, server)
    return client, server


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_a_call_from_h2_is_served(cuts: Callable[[], Iterable[int]]) -> None:
    client, server = Theirs(True), Ours(False)
    pump(client, server, cuts())
    client.http2.send_headers(1, TEXT_REQUEST)
    client.http2.send_data(1, grpc_message(b"question"))
    pump(client, server, cuts())
    assert server.last("headers").headers == tuple(REQUEST)
    assert server.received[1] == grpc_message(b"question")
    stream = server.stream(1)
    server.connection.sender.send_headers(stream, RESPONSE_HEADERS)
    server.connection.sender.send_message(stream, b"answer")
    server.connection.sender.finish(stream, trailers(OK, "äh"))
    pump(client, server, cuts())
    assert client.received[1] == grpc_message(b"answer")
    (answered,) = client.of(h2.events.ResponseReceived)
    assert list(answered.headers) == RESPONSE_HEADERS
    (trailed,) = client.of(h2.events.TrailersReceived)
    assert list(trailed.headers) == [(b"grpc-status", b"0"), (b"grpc-message", b"%C3%A4h")]
    client.http2.end_stream(1)
    pump(client, server, cuts())
    assert server.events[-1] == RecordedEvent("data", 1, end_stream=True)
    assert not server.connection.streams.by_id


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_a_call_to_h2_is_answered(cuts: Callable[[], Iterable[int]]) -> None:
    client, server = Ours(True), Theirs(False)
    stream = client.connection.sender.open_stream(REQUEST)
    client.connection.sender.send_message(stream, b"question")
    pump(client, server, cuts())
    (requested,) = server.of(h2.events.RequestReceived)
    assert list(requested.headers) == REQUEST
    assert server.received[1] == grpc_message(b"question")
    server.http2.send_headers(1, RESPONSE_HEADERS)
    server.http2.send_data(1, grpc_message(b"answer"))
    server.http2.send_headers(1, trailers(OK, "done"), end_stream=True)
    pump(client, server, cuts())
    assert client.names()[-3:] == ["headers", "data", "headers"]
    assert client.events[-1] == RecordedEvent("headers", 1, end_stream=True, headers=tuple(trailers(OK, "done")))
    client.connection.sender.close_sending(stream)
    pump(client, server, cuts())
    assert server.of(h2.events.StreamEnded)
    assert not client.connection.streams.by_id


def test_sending_stops_at_the_peers_window_and_continues_when_it_opens() -> None:
    client, server, stream = answering(gives_credit=False)
    server.connection.sender.send_message(stream, bytes(100_000))
    pump(client, server)
    assert len(client.received[1]) == 65_535
    client.http2.increment_flow_control_window(20_000)
    pump(client, server)
    assert len(client.received[1]) == 65_535
    client.http2.increment_flow_control_window(60_000, 1)
    pump(client, server)
    assert len(client.received[1]) == 85_535
    assert [event.stream_id for event in server.events if event.name == "window opened"] == [0, 1]
    client.http2.increment_flow_control_window(60_000)
    pump(client, server)
    assert len(client.received[1]) == 100_005


def test_a_shrinking_initial_window_may_make_a_window_negative() -> None:
    client, server, stream = answering(gives_credit=False)
    server.connection.sender.send_message(stream, bytes(49_995))
    pump(client, server)
    client.http2.update_settings({SETTING.INITIAL_WINDOW_SIZE: 20_000})
    pump(client, server)
    assert stream.send_window == 20_000 - 50_000
    server.connection.sender.send_message(stream, b"late")
    pump(client, server)
    assert len(client.received[1]) == 50_000
    client.http2.increment_flow_control_window(30_001, 1)
    pump(client, server)
    assert stream.send_window == 1, "one byte is not worth a frame"
    client.http2.update_settings({SETTING.INITIAL_WINDOW_SIZE: 40_000})
    pump(client, server)
    assert bytes(client.received[1][-9:]) == grpc_message(b"late")
    assert stream.send_window == 20_001 - 9


def test_a_growing_initial_window_releases_waiting_messages() -> None:
    client, server, stream = answering({SETTING.INITIAL_WINDOW_SIZE: 0})
    server.connection.sender.send_message(stream, b"answer")
    pump(client, server)
    assert client.received == {}
    assert client.of(h2.events.ResponseReceived), "headers need no window"
    client.http2.update_settings({SETTING.INITIAL_WINDOW_SIZE: 100})
    pump(client, server)
    assert client.received[1] == grpc_message(b"answer")
    assert server.names()[-1] == "settings"


@pytest.mark.parametrize("size", [16_384, 20_000, 65_536])
def test_frames_observe_the_frame_size_of_the_peer(size: int) -> None:
    client, server = client_against_h2(settings={SETTING.MAX_FRAME_SIZE: size})
    stream = client.connection.sender.open_stream(REQUEST)
    client.connection.sender.send_message(stream, bytes(50_000))
    pump(client, server)
    assert max(len(event.data) for event in server.of(h2.events.DataReceived)) == min(size, 50_005)


@pytest.mark.parametrize("is_full", [False, True])
def test_narrower_settings_are_acknowledged_behind_what_wider_ones_allowed(is_full: bool) -> None:
    client = Ours(True, pool=BlockPool(30_000 if is_full else 60_000, 1))
    server = Theirs(False, {SETTING.MAX_FRAME_SIZE: 40_000})
    pump(client, server)
    stream = client.connection.sender.open_stream(REQUEST)
    traffic = Traffic(client, stream)
    traffic.payload(1, 40_000)
    server.http2.update_settings({SETTING.MAX_FRAME_SIZE: 16_384, SETTING.INITIAL_WINDOW_SIZE: 0})
    client.give(server.take())
    pump(client, server)
    assert len(server.of(h2.events.SettingsAcknowledged)) == 2
    traffic.assert_arrived(server.received[1])


def test_wider_settings_are_acknowledged_ahead_of_what_they_allow() -> None:
    client, server = client_against_h2()
    stream = client.connection.sender.open_stream(REQUEST)
    traffic = Traffic(client, stream)
    traffic.payload(1, 10)
    server.http2.update_settings({SETTING.MAX_FRAME_SIZE: 40_000})
    client.give(server.take())
    traffic.message(30_000)
    pump(client, server)
    traffic.assert_arrived(server.received[1])


@pytest.mark.parametrize("size", [10_000, 16_384, 40_000, 60_000])
def test_large_header_lists_go_both_ways_in_continuation_frames(size: int) -> None:
    many = [(f"x-{number}", "v" * 80) for number in range(size // 120)]
    raw = [(name.encode(), value.encode()) for name, value in many]
    client, server = server_against_h2()
    client.http2.send_headers(1, TEXT_REQUEST + many)
    pump(client, server)
    assert server.last("headers").headers == (*REQUEST, *raw)
    server.connection.sender.send_headers(server.stream(1), RESPONSE_HEADERS + raw)
    pump(client, server)
    (answered,) = client.of(h2.events.ResponseReceived)
    assert list(answered.headers) == RESPONSE_HEADERS + raw


def test_header_tables_stay_in_step_over_many_calls() -> None:
    client, server = server_against_h2()
    for number in range(50):
        stream_id = 2 * number + 1
        extra = [(f"x-{number % 7}", f"value {number % 5}"), ("agentid", str(number))]
        client.http2.send_headers(stream_id, TEXT_REQUEST + extra, end_stream=True)
        pump(client, server)
        headers = [(name.decode(), value.decode()) for name, value in server.last("headers").headers]
        assert headers == TEXT_REQUEST + extra
        server.connection.sender.finish(server.stream(stream_id), RESPONSE_HEADERS + trailers(OK, str(number)))
    pump(client, server)
    assert len(client.of(h2.events.StreamEnded)) == 50
    assert not server.connection.streams.by_id


@pytest.mark.parametrize("size", [0, 100, 4_096, 65_536])
def test_a_peer_may_choose_its_header_table(size: int) -> None:
    client, server = server_against_h2(settings={SETTING.HEADER_TABLE_SIZE: size})
    for stream_id in (1, 3):
        client.http2.send_headers(stream_id, TEXT_REQUEST, end_stream=True)
        pump(client, server)
        server.connection.sender.finish(server.stream(stream_id), RESPONSE_HEADERS + trailers(OK, ""))
        pump(client, server)
    assert len(client.of(h2.events.ResponseReceived)) == 2


def test_a_reset_by_h2_is_reported_and_late_data_is_discarded() -> None:
    client, server = server_against_h2()
    client.http2.send_headers(1, TEXT_REQUEST)
    client.http2.send_data(1, b"data")
    client.http2.reset_stream(1, h2.errors.ErrorCodes.CANCEL)
    pump(client, server)
    assert server.events[-1] == RecordedEvent("reset", 1, code=frames.CANCEL, text="reset by the peer")
    client.http2.send_headers(3, TEXT_REQUEST)
    pump(client, server)
    assert server.events[-1].stream_id == 3


def test_pings_are_answered_both_ways() -> None:
    client, server = server_against_h2()
    client.http2.ping(b"12345678")
    server.connection.sender.ping(b"abcdefgh")
    pump(client, server)
    (answer,) = client.of(h2.events.PingAckReceived)
    assert answer.ping_data == b"12345678"
    assert server.events[-1] == RecordedEvent("ping answered", text=b"abcdefgh".hex())


def test_goaway_works_both_ways() -> None:
    client, server = server_against_h2()
    client.http2.send_headers(1, TEXT_REQUEST)
    pump(client, server)
    server.connection.sender.goaway(frames.NO_ERROR, "draining")
    pump(client, server)
    (goodbye,) = client.of(h2.events.ConnectionTerminated)
    assert (goodbye.error_code, goodbye.last_stream_id) == (frames.NO_ERROR, frames.LARGEST_STREAM_ID)
    assert goodbye.additional_data == b"draining"
    client, server = server_against_h2()
    client.http2.close_connection(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM, b"too_many_pings", 0)
    pump(client, server)
    assert server.events[-1] == RecordedEvent("goaway", 0, code=frames.ENHANCE_YOUR_CALM, text="too_many_pings")
