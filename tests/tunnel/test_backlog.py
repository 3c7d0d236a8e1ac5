from collections.abc import Iterator

import pytest
from tests.support.data_plane import HandClock, turn_until
from tests.support.socket_pairs import tcp_pair
from tests.support.tunnel_ends import End

from umbilical.tunnel.backlog import STUCK_SECONDS, Backlog, Brake
from umbilical.tunnel.channel import Channel
from umbilical.tunnel.loop import Deadlines, Loop
from umbilical.tunnel.settings import MIB, Limits
from umbilical.tunnel.transport import Transport, agent_side_connection
from umbilical.wire import grpc
from umbilical.wire.http2.streams import Stream

LIMITS = Limits(tunnel_buffer_bytes=4 * MIB, pause_above_bytes=1 * MIB)


class Scene:
    """A stream that several ends share, and the deadlines of those that stand still."""

    def __init__(self, plane: Loop) -> None:
        ours, self.peer = tcp_pair()
        self.plane = plane
        self.transport = Transport(plane, Channel(plane, ours), agent_side_connection(is_client=True))
        self.stream: Stream = self.transport.connection.open_stream(grpc.request_headers(b"/", b"", b"https", b""))
        self.brake = Brake(self.transport, self.stream)
        self.stuck = Deadlines(plane, STUCK_SECONDS)

    def is_held_back(self) -> bool:
        return self.stream.credit_held

    def end(self, *, can_pause: bool = False) -> tuple[End, Backlog]:
        end = End(can_pause)
        return end, Backlog(LIMITS, self.brake, self.stuck, end)


@pytest.fixture
def scene(plane: Loop) -> Iterator[Scene]:
    scene = Scene(plane)
    yield scene
    scene.transport.lose("the test is over")
    scene.peer.close()


@pytest.fixture
def clock(plane: Loop, monkeypatch: pytest.MonkeyPatch) -> HandClock:
    return HandClock(plane, monkeypatch)


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
