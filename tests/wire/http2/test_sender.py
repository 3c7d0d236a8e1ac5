"""The two lanes of an outbox switch only at frame boundaries and keep their order; streams are opened and ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.http2.ends import (
    REQUEST,
    Frame,
    Ours,
    RecordedEvent,
    greeted_client,
    one_stream,
    open_stream,
    our_pair,
    pump,
    split,
)

from umbilical.wire.errors import MisuseError
from umbilical.wire.grpc import OK, RESPONSE_HEADERS, trailers
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import BlockPool, Outbox
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.streams import CLOSED
from umbilical.wire.packet_data import DataPrefix, PlainPrefix

BLOCK_BYTES = 64


def outbox() -> tuple[Outbox, BlockPool]:
    pool = BlockPool(BLOCK_BYTES, 1)
    return Outbox(pool), pool


def put(box: Outbox, prefix: bytes, payload: bytes) -> None:
    room = box.room(len(prefix), len(payload))
    room[:] = payload
    box.commit(prefix, len(payload))


def send(box: Outbox, limit: int = 1 << 30) -> bytes:
    view = box.pending()
    if view is None:
        return b""
    piece = bytes(view[:limit])
    box.sent(len(piece))
    return piece


def send_all(box: Outbox) -> bytes:
    sent = b""
    for _ in range(1_000):
        if not (piece := send(box)):
            return sent
        sent += piece
    raise AssertionError("it never ends")


def outbox_of_two_sizes() -> tuple[Outbox, BlockPool, BlockPool]:
    small = BlockPool(16, 1)
    pool = BlockPool(BLOCK_BYTES, 1, small)
    return Outbox(pool), pool, small


def test_payload_that_outgrows_a_small_block_moves_to_a_large_one_in_its_order() -> None:
    box, pool, small = outbox_of_two_sizes()
    assert box.free_bytes() == BLOCK_BYTES
    put(box, b"<", b"some octets")
    assert send(box, 5) == b"<some"
    put(box, b"<", b"more of them")
    assert box.add_ordered(b"(close)")
    box.add_control(b"[now]")
    assert send_all(box) == b" octets<more of them(close)[now]"
    large, little = pool.take(), small.take()
    assert (large.size, little.size) == (BLOCK_BYTES, 16)
    assert bytes(little.data[:5]) == b"<some", "both went back to their pools"
    assert bytes(large.data[5:12]) == b" octets"


def test_an_ordered_frame_outgrows_a_small_block_too_but_not_a_large_one() -> None:
    box, _, _ = outbox_of_two_sizes()
    put(box, b"<", b"some octets")
    assert box.add_ordered(b"(" * 20)
    assert not box.add_ordered(b"(" * 40)
    assert send_all(box) == b"<some octets" + b"(" * 20


def test_a_connection_gets_large_blocks_from_its_first_bulk_until_it_sends_little() -> None:
    box, pool, small = outbox_of_two_sizes()
    for payload, is_large in ((b"x", False), (b"x" * 20, True), (b"x", True), (b"x", False)):
        kept = pool.take()
        pool.give(kept)
        put(box, b"<", payload)
        assert (pool.take() is not kept) is is_large
        assert send_all(box) == b"<" + payload
        box.release()
    assert small.take().size == 16


def test_a_later_payload_never_overtakes_control_that_was_queued_before_it() -> None:
    """Otherwise the first DATA of a connection would arrive before its DIAL_RSP."""
    box, _ = outbox()
    put(box, b"<", b"old")
    assert send(box, 2) == b"<o"
    box.add_control(b"[dial response]")
    put(box, b"<", b"new")
    assert box.add_ordered(b"(close)")
    assert send_all(box) == b"ld[dial response]<new(close)"


def test_control_at_a_frame_boundary_is_sent_next() -> None:
    box, _ = outbox()
    put(box, b"<", b"one")
    send(box, 1)
    box.add_control(b"[1]")
    put(box, b"<", b"two")
    assert send(box) == b"one"
    box.add_control(b"[2]")
    assert send(box, 4) == b"[1][", "what is queued at the boundary is sent together"
    box.add_control(b"[3]")
    assert send_all(box) == b"2][3]<two"


def test_ordered_frames_that_do_not_fit_are_refused() -> None:
    box, _ = outbox()
    put(box, b"<", bytes(60))
    assert not box.add_ordered(b"(close)")
    assert len(send_all(box)) == 61
    assert box.add_ordered(b"(close)" * 100), "an empty data lane has no limit"


def test_a_block_is_held_only_while_payload_waits() -> None:
    box, pool = outbox()
    block = pool.take()
    pool.give(block)
    put(box, b"<", b"payload")
    assert pool.take() is not block
    send_all(box)
    assert pool.take() is block


def test_unused_room_is_returned_at_the_next_flush() -> None:
    box, pool = outbox()
    block = pool.take()
    pool.give(block)
    box.room(4, 10)
    assert box.pending() is None
    assert pool.take() is block


def test_byte_counts_match_the_queued_frames() -> None:
    box, _ = outbox()
    assert box.is_empty()
    assert box.free_bytes() == BLOCK_BYTES
    box.add_control(b"[control]")
    put(box, b"<", b"payload")
    assert (box.control_bytes(), box.data_bytes(), box.free_bytes()) == (9, 8, BLOCK_BYTES - 8)
    send(box, 4)
    assert (box.control_bytes(), box.is_empty()) == (5, False)
    send_all(box)
    assert (box.control_bytes(), box.data_bytes(), box.is_empty()) == (0, 0, True)


def test_a_released_outbox_is_empty_and_can_be_used_again() -> None:
    box, _ = outbox()
    put(box, b"<", b"payload")
    box.add_control(b"[control]")
    send(box, 3)
    box.add_control(b"[more]")
    box.release()
    assert box.pending() is None
    assert (box.control_bytes(), box.data_bytes()) == (0, 0)
    box.add_control(b"[again]")
    assert send_all(box) == b"[again]"


@given(st.lists(st.sampled_from("cop") | st.integers(1, 30), max_size=60))
def test_no_frame_is_split_lost_or_overtaken_by_a_later_ordered_one(steps: list[str | int]) -> None:
    """Frames are `kind + number + filling + .`; a number among the steps sends so many bytes."""
    box, _ = outbox()
    queued: list[str] = []
    sent = b""
    for number, step in enumerate(steps):
        frame = f"{step}{number}:{'x' * (number % 7)}."
        if step == "c":
            box.add_control(frame.encode())
        elif step == "o":
            if not box.add_ordered(frame.encode()):
                continue
        elif step == "p":
            if box.free_bytes() < len(frame):
                continue
            put(box, frame[:2].encode(), frame[2:].encode())
        else:
            sent += send(box, int(step))
            continue
        queued.append(frame)
    sent += send_all(box)
    arrived = [f"{frame}." for frame in sent.decode().split(".")[:-1]]
    assert sorted(arrived) == sorted(queued)
    # Control may overtake; payload and ordered frames overtake nothing.
    for frame in arrived:
        if frame[0] in "op":
            earlier = queued[: queued.index(frame)]
            assert set(earlier) <= set(arrived[: arrived.index(frame)])
    control = [frame for frame in arrived if frame[0] == "c"]
    assert control == [frame for frame in queued if frame[0] == "c"]


def test_a_client_starts_with_preface_settings_and_its_window() -> None:
    limits = ConnectionLimits(frame_bytes=32_768, stream_window_bytes=70_000, connection_window_bytes=100_000)
    greeted = Ours(True, limits).take()
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
    (settings,) = split(Ours(False, ConnectionLimits(max_streams=7, connection_window_bytes=65_535)).take())
    assert dict(frames.parse_settings(settings.payload))[frames.MAX_CONCURRENT_STREAMS] == 7


def test_goaway_with_an_error_names_the_last_stream_that_was_served() -> None:
    client, server, _, _ = one_stream()
    server.connection.sender.goaway(frames.ENHANCE_YOUR_CALM, "too_many_pings")
    pump(client, server)
    assert client.events[-1] == RecordedEvent("goaway", 1, code=frames.ENHANCE_YOUR_CALM, text="too_many_pings")


def test_streams_behind_the_last_goaway_are_refused_and_earlier_ones_go_on() -> None:
    client, server, stream, _ = one_stream()
    server.connection.sender.goaway(frames.NO_ERROR, "leaving")
    crossing = client.connection.sender.open_stream(REQUEST)
    pump(client, server)
    assert client.connection.sender.can_open_stream()
    server.connection.sender.last_goaway("leaving")
    refused = client.connection.sender.open_stream(REQUEST)
    server.give(client.take())
    client.connection.sender.send_message(stream, b"go on")
    pump(client, server)
    goaways = [event.stream_id for event in client.events if event.name == "goaway"]
    assert goaways == [frames.LARGEST_STREAM_ID, crossing.stream_id]
    assert client.last("reset").stream_id == refused.stream_id
    assert client.last("reset").code == frames.REFUSED_STREAM
    assert server.received[stream.stream_id].endswith(b"go on")
    assert not client.connection.sender.can_open_stream()


def test_a_server_cannot_open_streams() -> None:
    with pytest.raises(MisuseError):
        Ours(False).connection.sender.open_stream(REQUEST)


def test_stream_numbers_run_out_before_they_overflow() -> None:
    client = greeted_client()
    client.connection.streams.next_own = 0x7FFFFFFF
    assert client.connection.sender.open_stream(REQUEST).stream_id == 0x7FFFFFFF
    with pytest.raises(MisuseError):
        client.connection.sender.open_stream(REQUEST)


def test_what_is_sent_on_an_ended_stream_is_discarded() -> None:
    client, server, stream, answer = one_stream()
    server.connection.sender.finish(answer, trailers(OK, ""))
    client.connection.sender.close_sending(stream)
    pump(client, server)
    for connection, ended in ((client.connection, stream), (server.connection, answer)):
        connection.sender.send_message(ended, b"late")
        connection.sender.send_ordered(ended, b"late")
        connection.sender.send_headers(ended, RESPONSE_HEADERS)
        connection.sender.finish(ended, trailers(OK, ""))
        connection.sender.close_sending(ended)
        connection.sender.reset(ended, frames.CANCEL)
        assert connection.sender.payload_room(ended, DataPrefix(1, 1).size) is None
        assert connection.outbox.is_empty()


def test_no_payload_follows_the_end_of_a_stream() -> None:
    client, _, stream, _ = one_stream()
    client.connection.sender.close_sending(stream)
    assert client.connection.sender.payload_room(stream, DataPrefix(1, 1).size) is None


def test_a_released_connection_has_nothing_to_send_and_returns_its_block() -> None:
    client, _, stream, _ = one_stream()
    assert client.write(stream, DataPrefix(1, 1), b"payload") == 7
    client.connection.sender.ping(bytes(8))
    client.connection.outbox.release()
    assert client.connection.outbox.pending() is None
    assert client.connection.outbox.queued_bytes() == 0
    assert len(client.pool._free) == 1


def test_closing_both_sides_follows_the_payload_and_removes_the_stream() -> None:
    client, server, stream, answer = one_stream()
    server.connection.sender.send_headers(answer, RESPONSE_HEADERS)
    assert server.write(answer, PlainPrefix(1), b"last words") == 10
    server.connection.sender.close_both(answer)
    pump(client, server)
    assert client.names()[-3:] == ["data", "data", "reset"]
    assert bytes(client.received[1]) == b"last words"
    assert client.events[-2] == RecordedEvent("data", 1, end_stream=True)
    assert client.last("reset").code == frames.NO_ERROR
    assert not client.connection.streams.by_id
    assert not server.connection.streams.by_id
    assert stream.state == CLOSED


@pytest.mark.parametrize("ends", ["close_sending", "close_both", "abort"])
def test_the_end_of_a_stream_waits_while_the_block_is_full(ends: str) -> None:
    client, _, stream, _ = one_stream()
    prefix = PlainPrefix(stream.stream_id)
    written = 0
    while taken := client.write(stream, prefix, bytes(16_384)):
        written += taken
    client.connection.outbox._end = client.pool.block_bytes  # not one more byte fits
    full = client.connection.outbox._end
    end = {
        "close_sending": lambda: client.connection.sender.close_sending(stream),
        "close_both": lambda: client.connection.sender.close_both(stream),
        "abort": lambda: client.connection.sender.abort(stream, frames.CONNECT_ERROR),
    }
    end[ends]()
    assert client.connection.outbox._end == full
    assert stream.finish is not None
    assert client.connection.sender.payload_room(stream, prefix.size) is None, "nothing may follow"
    client.connection.outbox.sent(len(client.connection.outbox.pending() or b""))  # as if the socket took it all
    client.connection.sender.after_flush()
    sent = split(client.take())
    kinds = {"close_sending": [frames.DATA], "close_both": [frames.DATA, frames.RST_STREAM]}
    assert [frame.kind for frame in sent] == kinds.get(ends, [frames.RST_STREAM])
    assert (stream.stream_id in client.connection.streams.by_id) == (ends == "close_sending")


def test_the_stream_limit_of_the_peer_is_observed() -> None:
    client, server = our_pair(server_limits=ConnectionLimits(max_streams=2))
    assert client.connection.sender.can_open_stream()
    open_stream(client, server)
    client.connection.sender.open_stream(REQUEST)
    assert not client.connection.sender.can_open_stream()


def test_a_stream_without_credit_differs_from_a_connection_without_credit() -> None:
    client, server = our_pair(server_limits=ConnectionLimits(stream_window_bytes=70_000))
    server.gives_credit = False
    stream, _ = open_stream(client, server)
    assert not client.connection.sender.is_shut(stream)
    while client.write(stream, PlainPrefix(stream.stream_id), bytes(16_384)):
        pump(client, server)
    assert client.connection.sender.is_shut(stream)
    other, _ = open_stream(client, server)
    assert not client.connection.sender.is_shut(other)
