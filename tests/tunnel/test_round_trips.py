"""Windows follow the way: they grow in each round trip that they limit, within a budget, and only for live readers."""

from collections.abc import Iterator
from typing import Final

import pytest
from tests.support.socket_pairs import tcp_pair

from umbilical.tunnel.channel import Channel
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.resource_limits import memory_limit
from umbilical.tunnel.round_trips import (
    GAIN,
    LARGEST_CONNECTION_WINDOW_BYTES,
    MEMORY_SHARE,
    NEAR_PAUSE_SECONDS,
    ROUND_BYTES,
    ROUND_PING,
    RoundTrips,
    WindowBudget,
)
from umbilical.tunnel.settings import MIB, Limits
from umbilical.tunnel.transport import (
    CONNECTION_WINDOW_BYTES,
    LARGEST_TUNNEL_WINDOW_BYTES,
    NEAR_TUNNEL_WINDOW_BYTES,
    TUNNEL_WINDOW_BYTES,
    Transport,
    agent_side_connection,
)
from umbilical.tunnel.tunnel_stream import TunnelStream
from umbilical.wire import grpc
from umbilical.wire.http2 import frames

FRAME: Final = 64 * 1024
FAR: Final = 0.05


class Way:
    """One end of a connection whose other end answers a PING after a time that the test sets."""

    def __init__(self, plane: Loop, budget_bytes: int = 1024 * MIB) -> None:
        self.plane = plane
        ours, self.peer = tcp_pair()
        self.budget = WindowBudget(budget_bytes)
        self.transport = Transport(plane, Channel(plane, ours), agent_side_connection(plane, is_client=True))
        self.rounds = RoundTrips(plane, self.transport.connection, self.budget)
        self.transport.rounds = self.rounds

    def tunnel(self) -> TunnelStream:
        stream = self.transport.connection.sender.open_stream(grpc.request_headers(b"/", b"", b"https", b""))
        stream.plain = stream.credited_by_caller = True
        return TunnelStream(self.transport, stream)

    def pass_round(self, seconds: float, *tunnels: tuple[TunnelStream, int, int]) -> None:
        """One round; each tunnel gets so many bytes, of which so many wait for its reader."""
        self.rounds.heard(max(ROUND_BYTES, sum(size for _, size, _ in tunnels)))
        for tunnel, size, kept in tunnels:
            tunnel.stream.receive_window -= size
            tunnel.arrived(size, kept)
        self.plane.now += seconds
        self.rounds.answered()

    def queued(self) -> int:
        return self.transport.connection.outbox.control_bytes()


@pytest.fixture
def way(plane: Loop) -> Iterator[Way]:
    way = Way(plane)
    yield way
    way.transport.lose("the test is over")


def transfer(way: Way, tunnel: TunnelStream, rounds: int, seconds: float = FAR) -> None:
    """A reader that takes all that its window allows, in each round."""
    for _ in range(rounds):
        way.pass_round(seconds, (tunnel, tunnel.stream.receive_window, 0))


def test_a_window_that_limits_a_transfer_over_a_long_way_reaches_its_largest_size_in_ten_rounds(way: Way) -> None:
    tunnel = way.tunnel()
    sizes = []
    for _ in range(10):
        transfer(way, tunnel, 1)
        sizes.append(tunnel.stream.window)
    assert sizes == sorted(sizes)
    assert sizes[0] >= 2 * TUNNEL_WINDOW_BYTES
    assert sizes[-1] == LARGEST_TUNNEL_WINDOW_BYTES


def test_the_window_of_the_connection_follows_what_arrives_on_all_streams(way: Way) -> None:
    for _ in range(3):
        way.pass_round(FAR)
    assert way.transport.connection._window == CONNECTION_WINDOW_BYTES
    way.rounds.heard(4 * MIB)
    way.plane.now += FAR
    way.rounds.answered()
    assert way.transport.connection._window == int(GAIN * 4 * MIB)
    way.rounds.heard(500 * MIB)
    way.plane.now += FAR
    way.rounds.answered()
    assert way.transport.connection._window == LARGEST_CONNECTION_WINDOW_BYTES


def test_on_a_short_way_rounds_are_rare_and_windows_grow_as_before(way: Way) -> None:
    tunnel = way.tunnel()
    transfer(way, tunnel, 1, seconds=0.000_1)
    assert tunnel.stream.window == TUNNEL_WINDOW_BYTES
    for _ in range(100):
        way.rounds.heard(ROUND_BYTES)
    assert way.rounds.current == 0
    way.plane.now += 2 * NEAR_PAUSE_SECONDS
    way.rounds.heard(ROUND_BYTES)
    assert way.rounds.current > 0


def test_an_answer_that_waited_behind_payload_does_not_make_the_way_longer(way: Way) -> None:
    tunnel = way.tunnel()
    way.pass_round(0.000_5)
    for _ in range(20):
        way.plane.now += 2 * NEAR_PAUSE_SECONDS
        way.pass_round(0.1, (tunnel, TUNNEL_WINDOW_BYTES, 0))
    assert way.rounds.shortest_seconds == pytest.approx(0.000_5)
    assert tunnel.stream.window <= NEAR_TUNNEL_WINDOW_BYTES


def test_a_way_that_became_longer_is_noticed_when_little_arrives(way: Way) -> None:
    way.pass_round(0.01)
    for _ in range(20):
        way.rounds.begin()
        way.plane.now += 0.1
        way.rounds.answered()
    assert way.rounds.shortest_seconds > 0.09
    way.pass_round(0.02)
    assert way.rounds.shortest_seconds == pytest.approx(0.02)


def test_a_reader_that_takes_nothing_gets_no_more_than_on_a_short_way(way: Way) -> None:
    tunnel = way.tunnel()
    in_kernel = 2 * MIB  # what the buffers of its socket take
    for _ in range(20):
        size = tunnel.stream.receive_window
        taken = min(size, in_kernel)
        in_kernel -= taken
        way.pass_round(FAR, (tunnel, size, size - taken))
    assert tunnel.stream.receive_window == 0
    assert tunnel._waiting <= NEAR_TUNNEL_WINDOW_BYTES


def test_a_reader_that_stops_later_loses_its_large_window_and_gets_it_back_when_it_goes_on(way: Way) -> None:
    tunnel = way.tunnel()
    transfer(way, tunnel, 10)
    way.pass_round(FAR, (tunnel, tunnel.stream.receive_window, tunnel.stream.receive_window))
    assert tunnel.stream.window == NEAR_TUNNEL_WINDOW_BYTES
    assert tunnel._waiting == LARGEST_TUNNEL_WINDOW_BYTES
    granted = way.budget.granted_bytes
    tunnel.taken(LARGEST_TUNNEL_WINDOW_BYTES - NEAR_TUNNEL_WINDOW_BYTES)
    assert tunnel.stream.receive_window == 0  # what it had is not renewed
    tunnel.taken(NEAR_TUNNEL_WINDOW_BYTES)
    assert tunnel.stream.receive_window == NEAR_TUNNEL_WINDOW_BYTES
    transfer(way, tunnel, 10)
    assert tunnel.stream.window == LARGEST_TUNNEL_WINDOW_BYTES
    assert way.budget.granted_bytes == granted


def test_all_windows_together_stay_within_the_budget_and_one_that_ends_makes_room(plane: Loop) -> None:
    way = Way(plane, budget_bytes=40 * MIB)
    first, second = way.tunnel(), way.tunnel()
    transfer(way, first, 10)
    transfer(way, second, 10)
    assert first.stream.window == LARGEST_TUNNEL_WINDOW_BYTES
    grown = first.stream.window + second.stream.window - 2 * TUNNEL_WINDOW_BYTES
    assert grown == way.budget.granted_bytes == 40 * MIB
    first.give_back()
    first.give_back()
    transfer(way, second, 10)
    assert second.stream.window == LARGEST_TUNNEL_WINDOW_BYTES
    second.give_back()
    assert way.budget.granted_bytes == 0
    way.transport.lose("the test is over")


def test_a_tunnel_that_ends_during_a_round_takes_nothing_from_the_budget(way: Way) -> None:
    tunnel = way.tunnel()
    way.rounds.heard(TUNNEL_WINDOW_BYTES)
    tunnel.arrived(TUNNEL_WINDOW_BYTES, 0)
    tunnel.give_back()
    way.plane.now += FAR
    way.rounds.answered()
    assert way.budget.granted_bytes == 0


def test_the_growth_of_a_short_way_counts_for_the_budget_too(plane: Loop) -> None:
    way = Way(plane, budget_bytes=100 * 1024)
    tunnel = way.tunnel()
    for _ in range(200):
        tunnel.stream.receive_window -= FRAME
        tunnel.arrived(FRAME, 0)
    assert tunnel.stream.window == TUNNEL_WINDOW_BYTES + 100 * 1024
    way.transport.lose("the test is over")


def test_requests_and_answers_cause_no_ping(way: Way) -> None:
    before = way.queued()
    for _ in range(100):
        way.rounds.heard(128)
    assert way.queued() == before
    way.rounds.heard(ROUND_BYTES)
    assert way.queued() == before + len(frames.ping_frame(ROUND_PING, 0))


def test_the_budget_is_as_configured_or_a_part_of_the_memory() -> None:
    assert WindowBudget.of(Limits(window_bytes=3 * MIB)).total_bytes == 3 * MIB
    assert WindowBudget.of(Limits()).total_bytes == memory_limit() // MEMORY_SHARE
