"""Our client and our server: control ahead, order where it matters, payload straight into the outgoing frame."""

from itertools import cycle
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.http2.ends import BLOCK_BYTES, Ours, one_stream, open_stream, our_pair, pump, split
from tests.wire.http2.traffic import TUNNELS, Traffic, carried, messages

from umbilical.wire import packets
from umbilical.wire.grpc import OK, RESPONSE_HEADERS, trailers
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import BlockPool
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.sender import CONTROL_RESERVE_BYTES, MAX_BACKLOG_BYTES
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import DataPrefix
from umbilical.wire.packets import decode_packet

NARROW = ConnectionLimits(stream_window_bytes=65_535, connection_window_bytes=65_535)


def random_bytes(count: int) -> bytes:
    return Random(count).randbytes(count)


def test_a_message_goes_ahead_of_payload_and_an_ordered_one_behind_it() -> None:
    client, server, stream, _ = one_stream()
    client.write(stream, DataPrefix(1, 7), b"payload")
    client.connection.sender.send_ordered(stream, packets.encode_close_request(7))
    client.connection.sender.send_message(stream, packets.encode_dial_request("tcp", "a:1", 9))
    pump(client, server)
    kinds = [decode_packet(message, 0, len(message)).kind for message in messages(server.received[1])]
    assert kinds == [packets.DIAL_REQ, packets.DATA, packets.CLOSE_REQ]


def test_a_large_frame_size_is_used_when_the_peer_allows_it() -> None:
    client, server, stream, _ = one_stream(server_limits=ConnectionLimits(frame_bytes=BLOCK_BYTES - 9))
    prefix = DataPrefix(1, 1)
    room = client.connection.sender.payload_room(stream, prefix.size)
    assert room is not None
    assert len(room) == BLOCK_BYTES - prefix.size
    client.write(stream, prefix, bytes(len(room)))
    assert client.connection.sender.payload_room(stream, prefix.size) is None, "the block is full"
    pump(client, server)
    assert carried(server.received[1], 1) == bytes(BLOCK_BYTES - prefix.size)


def test_payload_leaves_a_reserve_of_the_window_to_control_packets() -> None:
    client, server, stream, _ = one_stream(NARROW, NARROW)
    server.gives_credit = False
    prefix = DataPrefix(1, 1)
    while client.write(stream, prefix, bytes(65_536)):
        pump(client, server)
    assert CONTROL_RESERVE_BYTES <= stream.send_window < CONTROL_RESERVE_BYTES + 1024
    before = len(server.received[1])
    client.connection.sender.send_message(stream, packets.encode_close_request(1))
    pump(client, server)
    assert len(server.received[1]) > before


def test_the_closed_window_of_one_stream_does_not_stall_another() -> None:
    client, server = our_pair(server_limits=ConnectionLimits(stream_window_bytes=65_535))
    server.gives_credit = False
    stuck, _ = open_stream(client, server)
    while client.write(stuck, DataPrefix(1, 1), bytes(65_536)):
        pump(client, server)
    other, _ = open_stream(client, server)
    assert client.write(other, DataPrefix(3, 1), b"payload") == 7
    pump(client, server)
    assert carried(server.received[3], 1) == b"payload"


def test_all_streams_together_observe_the_connection_window() -> None:
    client, server = our_pair(NARROW, ConnectionLimits(stream_window_bytes=1 << 20, connection_window_bytes=65_535))
    streams = [open_stream(client, server)[0] for _ in range(4)]
    for stream in streams:
        while client.write(stream, DataPrefix(stream.stream_id, 1), bytes(BLOCK_BYTES)):
            client.take()
    assert CONTROL_RESERVE_BYTES <= client.connection.sender.window < CONTROL_RESERVE_BYTES + 1024
    for stream in streams:
        client.connection.sender.send_message(stream, bytes(2_000))
    assert 0 <= client.connection.sender.window < 512
    assert client.connection.sender._backlogged
    client.give(frames.window_update_frame(0, 10_000))
    assert not client.connection.sender._backlogged
    assert not any(stream.backlog for stream in streams)


@pytest.mark.parametrize("size", [49_000, 65_530, 65_531, 300_000, 3 * 1024 * 1024])
@pytest.mark.parametrize("already", [0, 16_000])
def test_a_message_larger_than_the_window_arrives_in_pieces(size: int, already: int) -> None:
    """A window that fits all of it may never open: a peer grants only what it has consumed."""
    client, server, stream, _ = one_stream(NARROW, NARROW)
    if already:
        client.connection.sender.send_message(stream, bytes(already))
    large, small = random_bytes(size), b"small"
    client.connection.sender.send_message(stream, large)
    client.connection.sender.send_message(stream, small)
    pump(client, server)
    assert messages(server.received[1])[-2:] == [large, small]
    assert not stream.backlog
    assert stream.backlog_bytes == 0


@pytest.mark.parametrize("window", [1, 100, 5_000, 16_384])
def test_tiny_windows_are_used_as_they_are(window: int) -> None:
    client, server, stream, _ = one_stream()
    client.give(frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, window)]))
    server.connection.streams.by_id[1].receive_window = window
    server.gives_credit = False
    for number in range(20):
        client.connection.sender.send_message(stream, bytes((number,)) * (number * 50))
    received = server.received.setdefault(1, bytearray())
    while stream.backlog:
        before = len(received)
        pump(client, server)
        assert stream.send_window == 0
        client.give(frames.window_update_frame(1, len(received) - before or 512))
        server.connection.streams.by_id[1].receive_window += len(received) - before or 512
    pump(client, server)
    assert messages(received) == [bytes((number,)) * (number * 50) for number in range(20)]


def test_payload_never_splits_a_message_that_waits_in_pieces() -> None:
    client, server, stream, _ = one_stream(NARROW, NARROW)
    client.connection.sender.send_message(stream, bytes(100_000))
    assert stream.backlog
    assert client.connection.sender.payload_room(stream, DataPrefix(1, 1).size) is None
    pump(client, server)
    assert client.write(stream, DataPrefix(1, 1), b"payload") == 7


def test_the_end_of_a_call_waits_for_what_was_sent_before_it() -> None:
    client, server, stream, answer = one_stream(NARROW, NARROW)
    server.connection.sender.send_headers(answer, RESPONSE_HEADERS)
    for end, side in ((client, stream), (server, answer)):
        end.connection.sender.send_message(side, bytes(100_000))
    server.connection.sender.finish(answer, trailers(OK, "done"))
    client.connection.sender.close_sending(stream)
    for end, side in ((client, stream), (server, answer)):
        end.connection.sender.send_message(side, b"too late")
        assert end.connection.sender.payload_room(side, DataPrefix(1, 1).size) is None
    pump(client, server)
    assert messages(server.received[1]) == [bytes(100_000)]
    assert messages(client.received[1]) == [bytes(100_000)]
    assert client.last("headers").end_stream
    assert server.last("data").end_stream
    assert not client.connection.streams.by_id
    assert not server.connection.streams.by_id


def fill_block(end: Ours, stream: Stream, prefix: DataPrefix) -> None:
    while end.write(stream, prefix, bytes(BLOCK_BYTES)):
        pass
    assert end.connection.outbox.free_bytes() == 0


def test_ordered_messages_that_do_not_fit_the_block_follow_after_the_flush() -> None:
    client, server, stream, _ = one_stream()
    fill_block(client, stream, DataPrefix(1, 7))
    window = stream.send_window
    client.connection.sender.send_ordered(stream, b"x" * 1_000)
    assert stream.send_window == window, "what waits is not charged yet"
    client.connection.sender.send_ordered(stream, packets.encode_close_request(7))
    pump(client, server)
    assert messages(server.received[1])[-2:] == [b"x" * 1_000, packets.encode_close_request(7)]


def test_the_end_of_a_call_that_does_not_fit_the_block_follows_after_the_flush() -> None:
    client, server, stream, answer = one_stream()
    fill_block(client, stream, DataPrefix(1, 7))
    fill_block(server, answer, DataPrefix(1, 7))
    server.connection.sender.finish(answer, trailers(OK, ""))
    client.connection.sender.close_sending(stream)
    assert stream.finish is not None
    assert answer.finish is not None
    client.give(frames.window_update_frame(0, 1))
    assert stream.finish is not None, "a larger window does not free the block"
    pump(client, server)
    assert not client.connection.streams.by_id
    assert not server.connection.streams.by_id


def test_a_reset_stays_behind_the_frames_of_its_stream() -> None:
    client, _, stream, _ = one_stream()
    client.write(stream, DataPrefix(1, 1), b"payload")
    client.connection.sender.reset(stream, frames.CANCEL)
    assert [one.kind for one in split(client.take())] == [frames.DATA, frames.RST_STREAM]


def test_a_reset_follows_the_payload_that_fills_the_block() -> None:
    client, server, stream, _ = one_stream()
    fill_block(client, stream, DataPrefix(1, 1))
    client.connection.sender.reset(stream, frames.CANCEL)
    pump(client, server)
    assert server.last("reset").code == frames.CANCEL
    assert server.connection.sender.failure is None, "no DATA came behind the reset"


def test_a_reset_drops_what_waited_for_a_window() -> None:
    client, server, stream, _ = one_stream(NARROW, NARROW)
    client.connection.sender.send_message(stream, bytes(100_000))
    client.connection.sender.reset(stream, frames.CANCEL)
    pump(client, server)
    assert not client.connection.streams.by_id
    assert client.connection.outbox.is_empty()


def test_a_peer_that_grants_no_window_for_control_packets_fails_once() -> None:
    client, _, stream, _ = one_stream(NARROW, NARROW)
    for _ in range(MAX_BACKLOG_BYTES // 60_000 + 10):
        client.connection.sender.send_message(stream, bytes(60_000))
    assert client.connection.sender.failure is not None
    assert [one.kind for one in split(client.take())].count(frames.GOAWAY) == 1
    client.give(frames.ping_frame(bytes(8), 0))
    assert client.names().count("failed") == 1
    assert client.last("failed").code == frames.ENHANCE_YOUR_CALM
    client.give(frames.ping_frame(bytes(8), 0))
    assert client.names().count("failed") == 1


def test_queued_bytes_counts_both_lanes() -> None:
    client, _, stream, _ = one_stream()
    assert client.connection.outbox.queued_bytes() == 0
    client.connection.sender.ping(bytes(8))
    client.write(stream, DataPrefix(1, 1), b"payload")
    assert client.connection.outbox.queued_bytes() == 17 + DataPrefix(1, 1).size + 7
    assert not client.connection.outbox.is_empty()


def test_an_idle_connection_holds_no_block() -> None:
    pool = BlockPool(BLOCK_BYTES, 4)
    client = Ours(True, pool=pool)
    server = Ours(False)
    stream, _ = open_stream(client, server)
    client.write(stream, DataPrefix(1, 1), b"payload")
    pump(client, server)
    client.connection.sender.payload_room(stream, DataPrefix(1, 1).size)
    pump(client, server)
    assert len(pool._free) == 1


@settings(max_examples=40)
@given(st.data())
def test_whatever_is_sent_arrives_in_order_however_it_is_cut(data: st.DataObject) -> None:
    client, server, stream, answer = one_stream(NARROW, NARROW)
    server.connection.sender.send_headers(answer, RESPONSE_HEADERS)
    ways = [(client, server, Traffic(client, stream)), (server, client, Traffic(server, answer))]
    for _ in range(data.draw(st.integers(1, 25))):
        sender, receiver, traffic = ways[data.draw(st.integers(0, 1))]
        action = data.draw(st.sampled_from(["message", "ordered", "payload", "pump", "trickle"]))
        if action == "payload":
            traffic.payload(data.draw(st.sampled_from(TUNNELS)), data.draw(st.integers(1, 30_000)))
        elif action == "message":
            traffic.message(data.draw(st.sampled_from([0, 100, 70_000])))
        elif action == "ordered":
            traffic.ordered(data.draw(st.sampled_from(TUNNELS)))
        elif action == "trickle":
            receiver.give(sender.take(data.draw(st.integers(1, 20_000))))
        else:
            pump(client, server, cycle([data.draw(st.integers(100, 70_000))]))
    pump(client, server)
    for _, receiver, traffic in ways:
        traffic.assert_arrived(receiver.received.get(1, b""))
