"""The way of payload into frames, from a socket and from memory."""

import socket
from collections.abc import Iterator

import pytest
from tests.support.data_plane import HandClock, Reader, patterned, receive_all, settle, tls_pair, turn_until
from tests.support.socket_pairs import reset, tcp_pair, unix_pair
from tests.support.transports import REQUEST, Line, connection, is_greeted, joined
from tests.support.tunnel_ends import End, Mouth, Tap
from tests.support.tunnel_pki import TunnelPki

from umbilical.tunnel.backlog import STUCK_SECONDS, Backlog, SharedCredit
from umbilical.tunnel.channel import END, LOST, Channel
from umbilical.tunnel.loop import Deadlines, Loop
from umbilical.tunnel.payload import DIRECT_BYTES, Outlet
from umbilical.tunnel.round_trips import GAIN, RoundTrips, WindowBudget
from umbilical.tunnel.settings import MIB, Limits
from umbilical.tunnel.transport import (
    LARGEST_SHARED_WINDOW_BYTES,
    QUANTUM_BYTES,
    SHARED_WINDOW_BYTES,
    Transport,
    agent_side_connection,
)
from umbilical.wire import grpc
from umbilical.wire.http2.events import HeadersReceived
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import find_data
from umbilical.wire.packets import DATA

CONNECTION_ID = 300


def opened(plane: Loop, window: int = 1_000_000) -> tuple[Line, Line]:
    """A line with one stream, as wide as asked."""
    client, server = joined(plane, connection(True), connection(False, ConnectionLimits(stream_window_bytes=window)))
    turn_until(plane, lambda: is_greeted(client, server))
    client.connection.sender.open_stream(REQUEST)
    client.touch()
    turn_until(plane, lambda: HeadersReceived in server.events)
    return client, server


def payload_of(server: Line) -> bytes:
    """What the DATA packets that arrived carry, put together."""
    (raw,) = server.received.values()
    reader = grpc.MessageReader()
    reader.feed(raw, memoryview(raw), 0, len(raw))
    payload = bytearray()
    while reader.next_message():
        connection_id, start = find_data(reader.source, reader.start, reader.end)
        assert connection_id == CONNECTION_ID
        payload += reader.view[start : reader.end]
    return bytes(payload)


def test_what_a_socket_brings_arrives_whole_and_is_counted(plane: Loop) -> None:
    client, server = opened(plane)
    ours, peer = unix_pair()
    mouth = Mouth(plane, client, ours, CONNECTION_ID)
    expected = patterned(100_000)
    peer.sendall(expected)
    peer.close()
    turn_until(plane, lambda: mouth.ends == [END] and not client.has_unsent())
    turn_until(plane, lambda: payload_of(server) == expected)
    assert mouth.inlet.bytes_written == len(expected)
    assert mouth.counts[DATA] == sum(mouth.counts) > 0


def test_one_turn_takes_a_quantum_and_the_rest_in_the_next(plane: Loop) -> None:
    client, _ = opened(plane)
    ours, peer = unix_pair()
    peer.sendall(bytes(QUANTUM_BYTES + 1))
    mouth = Mouth(plane, client, ours, CONNECTION_ID)
    turn_until(plane, lambda: mouth.inlet.bytes_written > 0)
    assert mouth.inlet.bytes_written <= QUANTUM_BYTES + 16_384
    turn_until(plane, lambda: mouth.inlet.bytes_written == QUANTUM_BYTES + 1)


def test_without_a_window_the_owner_stands_in_line_once_and_goes_on_with_the_credit(plane: Loop) -> None:
    client, server = opened(plane, window=20_000)
    ours, peer = unix_pair()
    expected = patterned(120_000)
    server.gives_credit = False
    mouth = Mouth(plane, client, ours, CONNECTION_ID)
    peer.sendall(expected)
    turn_until(plane, lambda: mouth.inlet.waiting)
    assert list(client._waiting) == [mouth.inlet]
    assert mouth.inlet.write(memoryview(b"more")) == 0
    assert list(client._waiting) == [mouth.inlet]
    (stream,) = server.connection.streams.by_id.values()
    server.gives_credit = True
    server.connection.credit(stream, server.size_of(stream))
    server.touch()
    turn_until(plane, lambda: mouth.inlet.bytes_written == len(expected))
    assert mouth.rooms > 0


@pytest.mark.parametrize("from_memory", [False, True])
def test_without_a_window_the_loop_comes_to_rest(plane: Loop, from_memory: bool) -> None:
    client, server = opened(plane, window=20_000)
    server.gives_credit = False
    ours, peer = unix_pair()
    mouth = Mouth(plane, client, ours, CONNECTION_ID)
    if from_memory:
        mouth.inlet.write(memoryview(bytes(120_000)))
        mouth.then_write = bytes(1_000)
    else:
        peer.sendall(bytes(120_000))
    turn_until(plane, lambda: mouth.inlet.waiting and not client.has_unsent())
    settle(plane)
    rooms = mouth.rooms
    settle(plane)
    assert mouth.rooms == rooms


def test_payload_from_memory_is_taken_as_far_as_the_window_reaches(plane: Loop) -> None:
    client, server = opened(plane, window=20_000)
    server.gives_credit = False
    ours, _peer = unix_pair()
    mouth = Mouth(plane, client, ours, CONNECTION_ID)
    expected = patterned(50_000)
    taken = mouth.inlet.write(memoryview(expected))
    assert 0 < taken < 20_000
    assert mouth.inlet.waiting
    assert mouth.inlet.bytes_written == taken
    turn_until(plane, lambda: payload_of(server) == expected[:taken] if server.received else False)


def test_a_socket_that_breaks_is_lost_and_not_ended(plane: Loop) -> None:
    client, _ = opened(plane)
    ours, peer = tcp_pair()
    mouth = Mouth(plane, client, ours, CONNECTION_ID)
    reset(peer)
    turn_until(plane, lambda: bool(mouth.ends))
    assert mouth.ends == [LOST]


BULK = patterned(4_000_000)


@pytest.fixture
def ends(plane: Loop) -> tuple[Tap, Outlet, socket.socket]:
    ours, peer = unix_pair()
    tap = Tap()
    return tap, tap.open(Channel(plane, ours)), peer


def is_silent(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        peer.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        peer.settimeout(10)
    return False


def test_the_first_payload_of_a_turn_is_sent_at_once(plane: Loop, ends: tuple[Tap, Outlet, socket.socket]) -> None:
    _, outlet, peer = ends
    for payload in (b"one", b"two"):
        assert not outlet.put(memoryview(payload))
        assert peer.recv(100) == payload
        plane.turn(0.0)
    assert outlet.is_empty()


def test_small_payloads_behind_the_first_gather_until_the_end_of_the_turn(
    ends: tuple[Tap, Outlet, socket.socket],
) -> None:
    _, outlet, peer = ends
    outlet.put(memoryview(b"zero"))
    assert peer.recv(100) == b"zero"
    assert outlet.put(memoryview(b"one "))
    assert outlet.put(memoryview(b"two "))
    assert is_silent(peer)
    assert (outlet.waiting_bytes(), outlet.is_empty()) == (8, False)
    outlet.flush()
    assert peer.recv(100) == b"one two "
    assert (outlet.waiting_bytes(), outlet.is_empty()) == (0, True)


def test_a_large_payload_is_sent_at_once_and_wants_no_flush(ends: tuple[Tap, Outlet, socket.socket]) -> None:
    _, outlet, peer = ends
    outlet.put(memoryview(b"the first of the turn"))
    assert peer.recv(100)
    assert not outlet.put(memoryview(BULK[:DIRECT_BYTES]))
    assert peer.recv(DIRECT_BYTES, socket.MSG_WAITALL) == BULK[:DIRECT_BYTES]
    assert outlet.is_empty()


def test_a_large_payload_stays_behind_the_small_one_before_it(ends: tuple[Tap, Outlet, socket.socket]) -> None:
    _, outlet, peer = ends
    outlet.put(memoryview(b"zero"))
    assert peer.recv(100) == b"zero"
    outlet.put(memoryview(b"first"))
    assert outlet.put(memoryview(BULK[:DIRECT_BYTES]))
    assert is_silent(peer)
    outlet.flush()
    assert peer.recv(5 + DIRECT_BYTES, socket.MSG_WAITALL) == b"first" + BULK[:DIRECT_BYTES]


def test_held_payload_waits_for_the_flush_whatever_its_size(ends: tuple[Tap, Outlet, socket.socket]) -> None:
    _, outlet, peer = ends
    outlet.hold(memoryview(BULK[: 2 * DIRECT_BYTES]))
    assert is_silent(peer)
    outlet.flush()
    assert peer.recv(2 * DIRECT_BYTES, socket.MSG_WAITALL) == BULK[: 2 * DIRECT_BYTES]


def test_the_payload_may_be_overwritten_once_it_was_put(ends: tuple[Tap, Outlet, socket.socket]) -> None:
    _, outlet, peer = ends
    outlet.put(memoryview(b"zero "))
    shared = bytearray(b"mine")
    outlet.put(memoryview(shared))
    shared[:] = b"gone"
    outlet.flush()
    assert peer.recv(100) == b"zero mine"


def test_what_a_full_socket_did_not_take_follows_in_order(plane: Loop, ends: tuple[Tap, Outlet, socket.socket]) -> None:
    tap, outlet, peer = ends
    step = 50_000
    wanted_flush = [outlet.put(memoryview(BULK[at : at + step])) for at in range(0, 2_000_000, step)]
    assert outlet.waiting_bytes() > 0
    assert not any(wanted_flush), "a blocked outlet waits for room, not for the end of the turn"
    assert not outlet.put(memoryview(b"tail"))
    assert receive_all(plane, peer, 2_000_004) == BULK[:2_000_000] + b"tail"
    assert outlet.is_empty()
    assert tap.writable > 0
    outlet.put(memoryview(b"again the first"))
    assert outlet.put(memoryview(b"again gathers"))


def test_a_flush_against_a_full_socket_asks_for_room(plane: Loop, ends: tuple[Tap, Outlet, socket.socket]) -> None:
    _, outlet, peer = ends
    outlet.hold(memoryview(BULK))
    outlet.flush()
    assert outlet.waiting_bytes() > 0
    assert receive_all(plane, peer, len(BULK)) == BULK
    assert outlet.is_empty()


@pytest.mark.parametrize("size", [10, DIRECT_BYTES])
def test_a_peer_that_is_gone_breaks_the_outlet(ends: tuple[Tap, Outlet, socket.socket], size: int) -> None:
    tap, outlet, peer = ends
    peer.close()
    outlet.put(memoryview(BULK[:size]))
    outlet.flush()
    assert outlet.broken
    assert outlet.waiting_bytes() == 0
    assert tap.channel.error == "Broken pipe"


def test_a_reset_breaks_an_outlet_that_waits_for_room(plane: Loop) -> None:
    ours, peer = tcp_pair()
    tap = Tap()
    outlet = tap.open(Channel(plane, ours))
    outlet.hold(memoryview(BULK * 4))
    outlet.flush()
    assert outlet.waiting_bytes() > 0
    reset(peer)
    turn_until(plane, lambda: outlet.broken)
    assert outlet.waiting_bytes() == 0


def tls_tap(plane: Loop, pki: TunnelPki) -> tuple[Outlet, Reader]:
    """An outlet on a TLS channel, and a client that does not read yet."""
    server, client = tls_pair(plane, pki.authority.server_context(pki.server), pki.authority.client_context(None))
    tap = Tap()
    tap.channel = server.channel
    tap.outlet = Outlet(server.channel)
    turn_until(plane, lambda: server.opened and client.opened)
    server.channel.owner = tap
    plane.remove(client.channel.descriptor)
    return tap.outlet, client


@pytest.mark.parametrize("size", [1000, DIRECT_BYTES, 100_000])
def test_ciphertext_that_found_no_room_goes_out_without_another_put(
    plane: Loop, tunnel_pki: TunnelPki, size: int
) -> None:
    outlet, client = tls_tap(plane, tunnel_pki)
    sent = 0
    while outlet.is_empty():
        if outlet.put(memoryview(BULK[:size])):
            outlet.flush()
        sent += size
    assert not outlet.broken
    plane.add(client.channel.descriptor, client.channel, False)
    turn_until(plane, lambda: len(client.received) == sent)
    assert outlet.is_empty()
    client.channel.close()


LIMITS = Limits(tunnel_buffer_bytes=4 * MIB, pause_above_bytes=1 * MIB)


class Scene:
    """A stream that several ends share, and the deadlines of those that stand still."""

    def __init__(self, plane: Loop) -> None:
        ours, self.peer = tcp_pair()
        self.plane = plane
        self.transport = Transport(plane, Channel(plane, ours), agent_side_connection(plane, is_client=True))
        self.budget = WindowBudget(64 * MIB)
        self.transport.rounds = RoundTrips(plane, self.transport.connection, self.budget)
        self.stream: Stream = self.transport.connection.sender.open_stream(
            grpc.request_headers(b"/", b"", b"https", b"")
        )
        self.credit = SharedCredit(self.transport, self.stream)
        self.stuck = Deadlines(plane, STUCK_SECONDS)

    def is_held_back(self) -> bool:
        return self.stream.credit_held

    def end(self, *, can_pause: bool = False) -> tuple[End, Backlog]:
        end = End(can_pause)
        return end, Backlog(LIMITS, self.credit, self.stuck, end, shares=True)

    def grow(self, window: int) -> None:
        """Let the readers take so much in one round that the stream wants this window."""
        rounds = self.transport.measured()
        rounds.begin()
        self.credit.count(int(window / GAIN))
        self.plane.now += 0.05
        rounds.answered()


@pytest.fixture
def scene(plane: Loop) -> Iterator[Scene]:
    scene = Scene(plane)
    yield scene
    scene.transport.lose("the test is over")
    scene.peer.close()


def test_a_far_end_that_can_be_asked_pauses_and_resumes_at_half_of_the_mark(scene: Scene) -> None:
    end, backlog = scene.end(can_pause=True)
    backlog.grew(MIB + 1)
    backlog.grew(2 * MIB)
    backlog.shrank(MIB // 2 + 1)
    assert end.lines == ["pause"]
    backlog.shrank(MIB // 2)
    assert end.lines == ["pause", "resume"]
    assert not scene.is_held_back()


def test_past_the_cap_the_shared_stream_is_held_back_until_three_quarters(scene: Scene) -> None:
    _, backlog = scene.end()
    backlog.grew(4 * MIB)
    assert not scene.is_held_back()
    backlog.grew(4 * MIB + 1)
    assert scene.is_held_back()
    backlog.shrank(3 * MIB + 1)
    assert scene.is_held_back()
    backlog.shrank(3 * MIB)
    assert not scene.is_held_back()


def test_the_shared_window_follows_the_way_up_to_the_size_of_one_tunnel(scene: Scene) -> None:
    scene.grow(8 * MIB)
    assert scene.stream.window == 8 * MIB
    assert scene.budget.granted_bytes == 4 * MIB
    scene.grow(100 * MIB)
    assert scene.stream.window == LARGEST_SHARED_WINDOW_BYTES
    scene.credit.give_back()
    assert scene.budget.granted_bytes == 0


def test_what_waits_for_one_slow_end_of_a_shared_window_that_grew_stays_within_its_old_bound(scene: Scene) -> None:
    scene.grow(7 * MIB)
    _, backlog = scene.end()
    backlog.grew(1 * MIB)
    assert scene.stream.window == 7 * MIB
    backlog.grew(1 * MIB + 1)  # what is granted, 7 MiB, would go past the cap and the first window together
    assert scene.stream.window == SHARED_WINDOW_BYTES
    scene.grow(8 * MIB)
    assert scene.stream.window == SHARED_WINDOW_BYTES
    backlog.shrank(1 * MIB)
    scene.grow(8 * MIB)
    assert scene.stream.window == 8 * MIB


def test_an_end_with_a_stream_of_its_own_never_holds_the_shared_one_back(scene: Scene) -> None:
    end = End(can_pause=True)
    backlog = Backlog(LIMITS, scene.credit, scene.stuck, end, shares=False)
    scene.grow(8 * MIB)
    backlog.grew(16 * MIB)
    assert not scene.is_held_back()
    assert len(scene.stuck) == 0
    assert scene.stream.window == 8 * MIB


def test_the_stream_goes_on_only_when_nobody_holds_it_back_any_more(scene: Scene) -> None:
    (_, first), (_, second) = scene.end(), scene.end()
    first.grew(5 * MIB)
    second.grew(5 * MIB)
    first.over()
    assert scene.is_held_back()
    second.shrank(MIB)
    assert not scene.is_held_back()


def test_an_end_over_its_cap_that_stands_still_is_given_up_and_its_neighbours_go_on(
    scene: Scene, clock: HandClock
) -> None:
    end, backlog = scene.end()
    backlog.grew(5 * MIB)
    clock.advance(STUCK_SECONDS)
    turn_until(scene.plane, lambda: end.lines[-1] == "stuck")
    assert end.lines == ["pause", "stuck"]
    assert not scene.is_held_back()


def test_an_end_that_moves_is_not_given_up_however_slow_it_is(scene: Scene, clock: HandClock) -> None:
    end, backlog = scene.end()
    backlog.grew(5 * MIB)
    for step in range(30):
        backlog.shrank(5 * MIB - step)
        clock.advance(0.9 * STUCK_SECONDS)
    assert "stuck" not in end.lines
    assert scene.is_held_back()


def test_an_end_that_is_over_asks_nobody_and_holds_nobody_back(scene: Scene) -> None:
    end, backlog = scene.end(can_pause=True)
    backlog.grew(5 * MIB)
    backlog.over()
    backlog.shrank(0)
    assert end.lines == ["pause"]
    assert len(scene.stuck) == 0
    assert not scene.is_held_back()


def test_a_paused_end_that_stands_still_is_told_once_for_every_standstill(scene: Scene, clock: HandClock) -> None:
    end, backlog = scene.end(can_pause=True)
    backlog.grew(2 * MIB)
    for _ in range(5):
        clock.advance(STUCK_SECONDS)
    assert end.lines == ["pause", f"stalled at {2 * MIB}"]
    backlog.shrank(MIB)
    for _ in range(5):
        clock.advance(STUCK_SECONDS)
    assert end.lines[2:] == [f"stalled at {MIB}"]
    backlog.over()
    assert all(entry[2].handler is None for entry in scene.plane._timers)


def test_a_paused_end_that_moves_is_not_told_and_watched_only_while_it_pauses(scene: Scene, clock: HandClock) -> None:
    end, backlog = scene.end(can_pause=True)
    backlog.grew(2 * MIB)
    for step in range(20):
        backlog.shrank(2 * MIB - step)
        clock.advance(0.9 * STUCK_SECONDS)
    backlog.shrank(0)
    clock.advance(STUCK_SECONDS)
    assert scene.plane._timers == []
    assert end.lines == ["pause", "resume"]
    backlog.grew(2 * MIB)
    clock.advance(STUCK_SECONDS)
    assert end.lines[2:] == ["pause", f"stalled at {2 * MIB}"]
    backlog.over()
