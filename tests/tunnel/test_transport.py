import socket
from collections.abc import Callable
from functools import partial

import pytest
from tests.support.data_plane import KIB, HandClock, Sleeper, patterned, settle, turn_until
from tests.support.socket_pairs import read_to_end, reset, tcp_pair, unix_pair
from tests.support.transports import REQUEST, Line, Source, connection, is_greeted, joined
from tests.wire.http2.ends import frame, goaway_code, greeting

from umbilical.tunnel.channel import Channel
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.transport import (
    FRAMES_PER_TURN,
    UNSERVED_STREAMS_OF_AGENTS,
    agent_side_connection,
    client_side_connection,
)
from umbilical.wire.grpc import message_prefix
from umbilical.wire.http2 import connection as http2
from umbilical.wire.http2 import frames
from umbilical.wire.http2.events import GoawayReceived, HeadersReceived
from umbilical.wire.http2.flood_guard import CONTROL_BURST, UNSERVED_FRAMES
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.headers import encode_headers
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packets import encode_drain

PAYLOAD = patterned(300_000)


def pair(plane: Loop, server_limits: ConnectionLimits | None = None, block_bytes: int = 64 * KIB) -> tuple[Line, Line]:
    """Client and server past the greeting."""
    client, server = joined(plane, connection(True, None, block_bytes), connection(False, server_limits, block_bytes))
    turn_until(plane, lambda: is_greeted(client, server))
    return client, server


def at_a_socket(plane: Loop, made: http2.Connection) -> tuple[Line, socket.socket]:
    """A line whose peer is a bare socket."""
    ours, peer = unix_pair()
    line = Line(plane, Channel(plane, ours), made)
    line.start()
    return line, peer


def opened(plane: Loop, client: Line, server: Line, count: int) -> list[Stream]:
    streams = [client.connection.sender.open_stream(REQUEST) for _ in range(count)]
    client.touch()
    turn_until(plane, lambda: server.events.count(HeadersReceived) == count)
    return streams


def sources(client: Line, streams: list[Stream], payload: bytes = PAYLOAD) -> list[Source]:
    return [Source(client, stream, payload) for stream in streams]


@pytest.mark.parametrize(
    ("window", "block_bytes"), [*((size, 64 * KIB) for size in (1, 100, 5_000, 65_535)), (1_000_000, 2_000)]
)
def test_nothing_is_lost_whatever_the_window_and_the_outgoing_block(plane: Loop, window: int, block_bytes: int) -> None:
    client, server = pair(plane, ConnectionLimits(stream_window_bytes=window), block_bytes)
    streams = opened(plane, client, server, 3)
    payload = PAYLOAD[: min(len(PAYLOAD), 300 * window)]
    for source in sources(client, streams, payload):
        source.pump()
    turn_until(plane, lambda: all(server.size_of(stream) == len(payload) for stream in streams), 30)
    assert all(server.received[stream.stream_id] == payload for stream in streams)


def test_two_clients_may_share_one_receive_block(plane: Loop) -> None:
    """Each frame arrives in two pieces, and between them the other client's piece uses the same memory."""
    lines, peers = zip(*(at_a_socket(plane, client_side_connection(plane)) for _ in range(2)), strict=True)
    octets = [greeting() + frame(frames.PING, 0, 0, bytes([number]) * 8) for number in (1, 2)]
    for cut in range(0, len(octets[0]), 7):
        for number, peer in enumerate(peers):
            peer.send(octets[number][cut : cut + 7])
        settle(plane, 2)
    assert all(line.reasons == [] for line in lines)
    for number, peer in enumerate(peers):
        assert frame(frames.PING, frames.ACK, 0, bytes([number + 1]) * 8) in peer.recv(65_536)


@pytest.mark.parametrize("chance", [4_096, 20_480])
def test_waiting_sources_take_turns_although_each_chance_is_enough_for_few(plane: Loop, chance: int) -> None:
    """Whoever was served goes behind whoever was not, or the first in line would take every chance."""
    client, server = pair(plane)
    streams = opened(plane, client, server, 4)
    hungry = sources(client, streams)
    client.connection.sender.window = 4096
    for source in hungry:
        source.pump()
    for _ in range(40):
        client.connection.sender.window = chance + 4096
        client.wake_waiting()
        settle(plane, 3)
    left = [len(source.rest) for source in hungry]
    assert max(left) < len(PAYLOAD)
    assert max(left) - min(left) <= 2 * 4096


def test_who_finds_no_room_does_not_keep_the_others_waiting(plane: Loop) -> None:
    client, server = pair(plane, ConnectionLimits(stream_window_bytes=20_000, connection_window_bytes=1_000_000))
    server.gives_credit = False
    stuck, free = opened(plane, client, server, 2)
    for source in sources(client, [stuck, free]):
        source.pump()

    def credit_only_the_free_one() -> bool:
        taken = server.connection.streams.by_id.get(free.stream_id)
        if taken is not None and taken.receive_window < 10_000:
            server.connection.credit(taken, 20_000 - taken.receive_window)
            server.touch()
        return server.size_of(free) == len(PAYLOAD)

    turn_until(plane, credit_only_the_free_one)
    assert server.size_of(stuck) <= 20_000


def test_everybody_in_line_is_woken_once_per_chance(plane: Loop) -> None:
    client, _ = pair(plane)
    woken: list[str] = []

    def note(name: str, sleeper: Sleeper) -> None:
        woken.append(name)
        client.wait(sleeper)

    for name in ("a", "b", "c"):
        client.wait(Sleeper(partial(note, name)))
    client.wake_waiting()
    assert woken == ["a", "b", "c"]
    client.wake_waiting()
    assert woken == ["a", "b", "c"] * 2


def test_a_line_that_is_cleared_while_it_is_served_ends(plane: Loop) -> None:
    client, _ = pair(plane)
    for _ in range(3):
        client.wait(Sleeper(lambda _: client.lose("by a source")))
    client.wake_waiting()
    assert client.reasons == ["by a source"]


def test_a_message_that_found_the_block_full_follows_without_another_event(plane: Loop) -> None:
    client, server = pair(plane, block_bytes=20_000)
    (stream,) = opened(plane, client, server, 1)
    for size in (16_000, 3_000):
        Source(client, stream, bytes(size), quantum=size).pump()
    message = b"m" * 2_000
    client.connection.sender.send_ordered(stream, message)
    assert stream.backlog, "it found room: the test shows nothing"
    client.touch()
    turn_until(plane, lambda: server.size_of(stream) == 19_000 + len(message_prefix(len(message))) + len(message))
    assert server.received[stream.stream_id].endswith(message)


def test_a_peer_that_takes_nothing_leaves_bytes_unsent_and_makes_no_progress(plane: Loop) -> None:
    line, peer = at_a_socket(plane, connection(True))
    settle(plane)
    assert not line.has_unsent()
    peer.send(frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, 1 << 30)]) + frames.window_update_frame(0, 1 << 29))
    turn_until(plane, lambda: is_greeted(line))
    stream = line.connection.sender.open_stream(REQUEST)
    source = Source(line, stream, PAYLOAD * 20, quantum=64 * KIB)
    source.pump()
    turn_until(plane, line.has_unsent)
    for _ in range(50):
        settle(plane)
        before = line.progress
    assert line.has_unsent()
    assert line.progress == before
    peer.setblocking(False)

    def read_on() -> bool:
        try:
            peer.recv(256 * KIB)
        except BlockingIOError:
            pass
        return line.progress > before + 3

    turn_until(plane, read_on)


def test_the_end_of_the_peer_is_told_once(plane: Loop) -> None:
    client, server = pair(plane)
    settle(plane)
    client.lose("we leave")
    client.lose("again")
    client.on_lost("and again")
    turn_until(plane, lambda: server.closed)
    settle(plane)
    assert client.reasons == ["we leave"]
    assert server.reasons == ["connection closed by the peer"]


def test_a_reset_is_told_with_its_cause(plane: Loop) -> None:
    ours, peer = tcp_pair()
    line = Line(plane, Channel(plane, ours), connection(False))
    line.start()
    settle(plane)
    reset(peer)
    turn_until(plane, lambda: line.closed)
    assert line.reasons == ["Connection reset by peer"]
    assert line.channel.closed


def test_a_loss_that_is_noticed_while_sending_is_told(plane: Loop) -> None:
    ours, peer = unix_pair()
    line = Line(plane, Channel(plane, ours), connection(True))
    peer.close()
    line.start()
    turn_until(plane, lambda: line.closed)
    settle(plane)
    assert len(line.reasons) == 1


def test_bytes_of_a_peer_that_left_at_once_are_dispatched_before_the_end(plane: Loop) -> None:
    line, peer = at_a_socket(plane, connection(False))
    settle(plane)
    assert peer.recv(65_536)
    peer.send(greeting() + frame(frames.GOAWAY, 0, 0, bytes(8) + b"bye"))
    peer.close()
    turn_until(plane, lambda: line.closed)
    assert line.events[-1:] == [GoawayReceived]


def test_a_violation_is_answered_with_a_goaway_before_the_end(plane: Loop) -> None:
    line, peer = at_a_socket(plane, connection(False))
    peer.send(greeting() + frame(frames.PING, 0, 0, b"short"))
    turn_until(plane, lambda: line.closed)
    assert line.reasons == ["protocol violation: PING of a wrong size"]
    assert goaway_code(read_to_end(peer)) == frames.FRAME_SIZE_ERROR


def test_a_peer_that_speaks_something_else_is_refused(plane: Loop) -> None:
    line, peer = at_a_socket(plane, connection(False))
    peer.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    turn_until(plane, lambda: line.closed)
    assert line.reasons == ["protocol violation: not an HTTP/2 client: connection preface missing"]


def test_a_bug_in_one_transport_ends_that_transport_alone(plane: Loop) -> None:
    client, server = pair(plane)
    other_client, other_server = pair(plane)
    server.fails_on_data = True
    for line, far in ((client, server), (other_client, other_server)):
        (stream,) = opened(plane, line, far, 1)
        Source(line, stream, b"x").pump()
    turn_until(plane, lambda: client.closed and other_server.received)
    assert server.reasons == ["internal error: RuntimeError('dropped it')"]
    assert (other_client.reasons, other_server.reasons) == ([], [])


def test_a_bug_of_one_that_waited_for_room_ends_that_one_alone(plane: Loop) -> None:
    client, _ = pair(plane)
    woken: list[Sleeper] = []

    def drop(_: Sleeper) -> None:
        raise RuntimeError("dropped it")

    broken, sound = Sleeper(drop), Sleeper(woken.append)
    client.wait(broken)
    client.wait(sound)
    client.touch()
    turn_until(plane, lambda: woken)
    assert [str(error) for error in broken.crashes] == ["dropped it"]
    assert woken == [sound]
    assert not client.closed


def test_a_lost_transport_sends_nothing_and_wakes_nobody(plane: Loop) -> None:
    client, _ = pair(plane)
    woken: list[str] = []
    client.wait(Sleeper(lambda _: woken.append("woken")))
    client.lose("we leave")
    client.touch()
    client.wake_waiting()
    client.on_flush()
    client.on_again()
    settle(plane)
    assert woken == []
    assert client.reasons == ["we leave"]


def test_a_call_that_was_not_answered_ends_with_headers_and_status_in_one(plane: Loop) -> None:
    client, server = pair(plane)
    streams = opened(plane, client, server, 2)
    first, second = (server.connection.streams.by_id[stream.stream_id] for stream in streams)
    server.finish(first, 7, "no")
    server.connection.sender.send_headers(second, [(b":status", b"200")])
    server.finish(second, 0, "")
    turn_until(plane, lambda: client.events.count(HeadersReceived) == 3)
    assert client.reasons == []


def flood(line: Line, peer: socket.socket, plane: Loop, octets: bytes) -> list[int]:
    """Send as fast as the socket takes it; how much payload each turn delivered on the first stream."""
    peer.setblocking(False)
    rest = memoryview(octets)
    steps: list[int] = []
    while rest or not steps or steps[-1]:
        try:
            rest = rest[peer.send(rest) :]
        except BlockingIOError:
            pass
        before = len(line.received.get(1, b""))
        plane.turn(0.0)
        steps.append(len(line.received.get(1, b"")) - before)
    return steps


@pytest.mark.parametrize("made", [agent_side_connection, client_side_connection], ids=["an agent", "a client"])
def test_a_flood_of_small_frames_gets_a_bounded_number_of_them_handled_in_a_turn(
    plane: Loop, made: Callable[..., http2.Connection]
) -> None:
    line, peer = at_a_socket(plane, made(plane, is_client=False) if made is agent_side_connection else made(plane))
    peer.send(greeting() + frames.headers_frames(1, encode_headers(REQUEST), KIB, False))
    turn_until(plane, lambda: line.events)
    count = 60_000
    steps = flood(line, peer, plane, frame(frames.DATA, 0, 1, b"x") * count)
    assert sum(steps) == count
    assert max(steps) <= FRAMES_PER_TURN


@pytest.mark.parametrize("kind", [0xFA, frames.PRIORITY], ids=["of no known type", "without an effect"])
def test_frames_that_mean_nothing_count_too(plane: Loop, kind: int) -> None:
    line, peer = at_a_socket(plane, agent_side_connection(plane, is_client=False))
    peer.send(greeting())
    turn_until(plane, lambda: is_greeted(line))
    count, before, turns = 2_500, line.connection.sender.window, plane.turns
    peer.send(frame(kind, 0, 1, bytes(5)) * count + frames.window_update_frame(0, 1))
    turn_until(plane, lambda: line.connection.sender.window > before)
    assert plane.turns - turns >= count / FRAMES_PER_TURN


def test_a_frame_full_of_packets_counts_as_many_frames(plane: Loop) -> None:
    line, peer = at_a_socket(plane, agent_side_connection(plane, is_client=False))
    peer.send(greeting() + frames.headers_frames(1, encode_headers(REQUEST), KIB, False))
    turn_until(plane, lambda: line.events)
    line.reads_packets = True
    body = encode_drain()
    crowd = (message_prefix(len(body)) + body) * 1_000
    turns = plane.turns
    peer.send(frame(frames.DATA, 0, 1, crowd) * 10)
    turn_until(plane, lambda: line.packets == 10_000)
    assert plane.turns - turns >= 10


def test_a_stream_that_ends_unserved_costs_as_much_as_many_frames(plane: Loop) -> None:
    line, peer = at_a_socket(plane, agent_side_connection(plane, is_client=False))
    peer.send(greeting())
    turn_until(plane, lambda: is_greeted(line))
    count, turns = UNSERVED_STREAMS_OF_AGENTS, plane.turns
    block = encode_headers(REQUEST)
    calls = [
        frames.headers_frames(number, block, KIB, False) + frames.reset_frame(number, frames.CANCEL)
        for number in range(1, 2 * count, 2)
    ]
    peer.sendall(b"".join(calls))
    turn_until(plane, lambda: line.connection.streams.highest_of_peer == 2 * count - 1)
    assert plane.turns - turns >= count * UNSERVED_FRAMES / (2 * FRAMES_PER_TURN)


def test_frames_that_wait_for_the_next_turn_survive_a_shared_block(plane: Loop) -> None:
    lines = [at_a_socket(plane, client_side_connection(plane)) for _ in range(2)]
    payloads = [patterned(4_000), patterned(8_000)[4_000:]]
    for (_, peer), payload in zip(lines, payloads, strict=True):
        opening = greeting() + frames.headers_frames(1, encode_headers(REQUEST), KIB, False)
        peer.sendall(opening + b"".join(frame(frames.DATA, 0, 1, payload[at : at + 1]) for at in range(4_000)))
    turn_until(plane, lambda: all(len(line.received.get(1, b"")) == 4_000 for line, _ in lines))
    assert [bytes(line.received[1]) for line, _ in lines] == payloads


def test_the_end_of_a_peer_comes_behind_frames_that_waited_for_another_turn(plane: Loop) -> None:
    line, peer = at_a_socket(plane, agent_side_connection(plane, is_client=False))
    settle(plane)
    assert peer.recv(65_536)
    peer.sendall(greeting() + frames.window_update_frame(0, 1) * 2_500)
    peer.close()
    before = line.connection.sender.window
    turn_until(plane, lambda: line.closed)
    assert line.connection.sender.window - before == 2_500


def test_an_idle_connection_lives_through_any_number_of_pings(plane: Loop, clock: HandClock) -> None:
    line, peer = at_a_socket(plane, client_side_connection(plane))
    peer.send(greeting())
    for _ in range(2 * CONTROL_BURST):
        clock.advance(30.0)
        peer.send(frames.ping_frame(b"are you?", 0))
        peer.recv(65_536)
    assert not line.closed


def test_who_had_nothing_to_send_lately_goes_first(plane: Loop) -> None:
    client, _ = pair(plane)
    woken: list[str] = []

    def note(name: str, _: Sleeper) -> None:
        woken.append(name)

    for name, first in (("bulk", False), ("more bulk", False), ("little", True)):
        client.wait(Sleeper(partial(note, name)), first=first)
    client.wake_waiting()
    assert woken == ["little", "bulk", "more bulk"]
