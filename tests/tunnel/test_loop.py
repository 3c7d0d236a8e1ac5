import os
import socket
import time
from collections.abc import Callable
from functools import partial

import pytest
from tests.support.data_plane import Diary, HandClock, settle, turn_until
from tests.support.socket_pairs import tcp_pair, unix_pair

from umbilical.tunnel.loop import HANGUP, IN, OUT, Deadlines, Loop


def watch(plane: Loop, sock: socket.socket, diary: Diary, *, writable: bool = False) -> Diary:
    plane.add(sock.fileno(), diary, writable)
    return diary


def test_input_is_reported_once_until_more_arrives(plane: Loop) -> None:
    ours, peer = unix_pair()
    diary = watch(plane, ours, Diary())
    peer.send(b"a")
    settle(plane)
    assert diary.masks == [IN]
    peer.send(b"b")
    settle(plane)
    assert diary.masks == [IN, IN]


def test_bytes_and_the_end_come_in_one_event(plane: Loop) -> None:
    ours, peer = tcp_pair()
    peer.send(b"last words")
    peer.close()
    diary = watch(plane, ours, Diary())
    turn_until(plane, lambda: diary.masks and diary.masks[-1] & HANGUP)
    assert diary.masks[-1] & IN
    assert ours.recv(100) == b"last words"


def test_room_to_write_is_reported_only_on_request(plane: Loop) -> None:
    first, second = unix_pair()
    second.setblocking(False)
    quiet, eager = watch(plane, first, Diary()), watch(plane, second, Diary(), writable=True)
    settle(plane)
    assert (quiet.masks, eager.masks) == ([], [OUT])
    plane.watch_writable(first.fileno())
    settle(plane)
    assert (quiet.masks, eager.masks) == ([OUT], [OUT])


def test_a_listener_is_reported_again_while_connections_wait(plane: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()[:2]):
        diary = Diary()
        plane.add_listener(listener.fileno(), diary)
        plane.turn(1.0)
        plane.turn(1.0)
        assert len(diary.masks) == 2
        plane.remove(listener.fileno())


def test_another_handler_takes_over_a_watched_descriptor(plane: Loop) -> None:
    ours, peer = unix_pair()
    first = watch(plane, ours, Diary())
    second = Diary()
    plane.replace(ours.fileno(), second)
    peer.send(b"x")
    settle(plane)
    assert (first.masks, second.masks) == ([], [IN])


def test_a_removed_descriptor_is_silent_and_may_be_removed_again(plane: Loop) -> None:
    ours, peer = unix_pair()
    diary = watch(plane, ours, Diary())
    plane.remove(ours.fileno())
    plane.remove(ours.fileno())
    peer.send(b"x")
    assert plane.turn(0.0) == []
    assert diary.masks == []


def test_events_of_descriptors_that_are_not_ours_are_returned(plane: Loop) -> None:
    ours, peer = unix_pair()
    plane.add_foreign(ours.fileno(), IN)
    peer.send(b"x")
    assert plane.turn(1.0) == [(ours.fileno(), IN)]
    plane.modify_foreign(ours.fileno(), IN | OUT)
    assert plane.turn(1.0) == [(ours.fileno(), IN | OUT)]
    plane.remove_foreign(ours.fileno())
    assert plane.turn(0.0) == []


def set_on_each_other(plane: Loop, act: Callable[[socket.socket], None]) -> list[Diary]:
    """Two descriptors with an event in the same turn: the first handler acts on the other's socket."""
    ends = [unix_pair() for _ in range(2)]
    diaries = [watch(plane, ours, Diary()) for ours, _ in ends]
    for index, diary in enumerate(diaries):
        diary.then = partial(act, ends[1 - index][0])
        ends[index][1].send(b"x")
    plane.turn(1.0)
    settle(plane)
    return diaries


def test_an_event_of_a_descriptor_that_a_neighbour_closed_in_the_same_turn_is_dropped(plane: Loop) -> None:
    def close(other: socket.socket) -> None:
        plane.remove(other.fileno())
        other.close()

    assert sorted(len(diary.masks) for diary in set_on_each_other(plane, close)) == [0, 1]


def test_a_reused_descriptor_number_does_not_inherit_the_event_of_its_predecessor(plane: Loop) -> None:
    """Within one turn a tunnel may close a socket with a pending event, and a dial may get its descriptor."""
    fresh = Diary()

    def replace(other: socket.socket) -> None:
        number = other.fileno()
        plane.remove(number)
        other.close()
        watch(plane, next(sock for sock in unix_pair() if sock.fileno() == number), fresh)

    set_on_each_other(plane, replace)
    assert fresh.masks == []


def test_a_reused_descriptor_number_gets_its_own_events(plane: Loop) -> None:
    ours, peer = unix_pair()
    diary = watch(plane, ours, Diary())
    second_ours, second_peer = unix_pair()
    fresh = Diary()

    def replace() -> None:
        diary.then = lambda: None
        number = ours.fileno()
        plane.remove(number)
        os.dup2(second_ours.fileno(), number)
        plane.add(number, fresh, False)
        second_peer.send(b"y")

    diary.then = replace
    peer.send(b"x")
    settle(plane)
    assert fresh.masks == [IN]


def test_a_turn_serves_events_then_second_looks_then_timers_then_flushes(plane: Loop) -> None:
    ours, peer = unix_pair()
    lines: list[str] = []
    for name in ("flush", "timer", "again"):
        diary = Diary(name, lines)
        if name == "timer":
            plane.after(0.0, diary)
        elif name == "again":
            plane.again(diary)
    reader = watch(plane, ours, Diary("socket", lines))
    reader.then = lambda: plane.touch(Diary("flush", lines))
    peer.send(b"x")
    plane.turn(1.0)
    assert lines == ["socket events", "again again", "timer timer", "flush flush"]


def test_who_was_touched_between_turns_is_flushed_before_the_next_sleep(plane: Loop) -> None:
    diary = Diary()
    plane.touch(diary)
    plane.turn(0.0)
    assert diary.lines == ["flush"]
    plane.turn(0.0)
    assert diary.lines == ["flush"]


def test_a_second_look_comes_in_the_next_turn_which_does_not_sleep(plane: Loop) -> None:
    diary = Diary()
    plane.again(diary)
    started = time.monotonic()
    plane.turn(60.0)
    assert diary.lines == ["again"]
    assert time.monotonic() - started < 30


def test_a_second_look_asked_for_during_a_second_look_waits_a_turn(plane: Loop) -> None:
    diary = Diary()
    diary.then = lambda: plane.again(diary)
    plane.again(diary)
    plane.turn(0.0)
    assert diary.lines == ["again"]
    plane.turn(0.0)
    assert diary.lines == ["again"] * 2


def test_a_handler_that_asks_several_times_gets_one_second_look(plane: Loop) -> None:
    first, second = Diary(), Diary()
    for diary in (first, second, first, first):
        plane.again(diary)
    plane.turn(0.0)
    assert (first.lines, second.lines) == (["again"], ["again"])


def test_every_turn_has_a_number_and_a_time(plane: Loop) -> None:
    turns, now = plane.turns, plane.now
    plane.turn(0.01)
    assert plane.turns == turns + 1
    assert plane.now > now


@pytest.mark.parametrize("place", ["events", "again", "flush", "timer"])
def test_an_exception_of_one_handler_reaches_that_handler_alone(plane: Loop, place: str) -> None:
    diaries = []
    for number in range(3):
        ours, peer = unix_pair()
        diary = watch(plane, ours, Diary(str(number)))
        peer.send(b"x")
        plane.again(diary)
        plane.touch(diary)
        plane.after(0.0, diary)
        diaries.append(diary)
    diaries[1].fails_in = place
    settle(plane)
    assert [len(diary.crashes) for diary in diaries] == [0, 1, 0]
    assert str(diaries[1].crashes[0]) == f"1 broke in {place}"
    assert all(len(diary.lines) == 4 for diary in diaries)


def test_timers_come_in_the_order_of_their_times_and_once(plane: Loop, clock: HandClock) -> None:
    lines: list[str] = []
    for seconds in (3, 1, 2):
        plane.after(seconds, Diary(f"{seconds}", lines))
    clock.advance(1)
    assert lines == ["1 timer"]
    clock.advance(2)
    assert lines == ["1 timer", "2 timer", "3 timer"]


def test_timers_of_the_same_time_come_in_the_order_of_asking(plane: Loop) -> None:
    lines: list[str] = []
    for number in range(20):
        plane.after(0.0, Diary(f"{number:02}", lines))
    turn_until(plane, lambda: len(lines) == 20)
    assert lines == sorted(lines)


def test_a_turn_without_a_time_limit_wakes_for_its_timer(plane: Loop) -> None:
    diary = Diary()
    plane.after(0.02, diary)
    while not diary.lines:
        plane.turn(None)
    assert diary.lines == ["timer"]


def test_a_turn_sleeps_no_longer_than_asked_although_a_timer_is_far(plane: Loop) -> None:
    diary = Diary()
    plane.after(3600, diary)
    started = time.monotonic()
    plane.turn(0.01)
    assert time.monotonic() - started < 60
    assert diary.lines == []


def test_a_timer_that_sets_itself_again_comes_once_a_turn_even_if_the_clock_goes_back(
    plane: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.monotonic
    diary = Diary()

    def again() -> None:
        assert len(diary.lines) < 10
        monkeypatch.setattr(time, "monotonic", clock)
        plane.after(0.001, diary)

    diary.then = again
    plane.after(0.0, diary)
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 60)
    plane.turn(0.0)
    assert diary.lines == ["timer"]
    assert diary.crashes == []


def test_deadlines_call_those_not_discarded_oldest_first(plane: Loop) -> None:
    lines: list[str] = []
    deadlines = Deadlines(plane, 0.02)
    kept, discarded, last = (Diary(name, lines) for name in ("kept", "discarded", "last"))
    for diary in (kept, discarded, last):
        deadlines.add(diary)
    assert len(deadlines) == 3
    deadlines.discard(discarded)
    deadlines.discard(discarded)
    turn_until(plane, lambda: len(lines) == 2)
    assert lines == ["kept timer", "last timer"]
    assert len(deadlines) == 0


def test_adding_a_handler_again_restarts_its_timeout(plane: Loop, clock: HandClock) -> None:
    clock.advance(0)
    lines: list[str] = []
    deadlines = Deadlines(plane, 5)
    patient, hasty = Diary("patient", lines), Diary("hasty", lines)
    deadlines.add(patient)
    deadlines.add(hasty)
    clock.advance(3)
    deadlines.add(patient)
    clock.advance(4)
    assert lines == ["hasty timer"]
    clock.advance(2)
    assert lines == ["hasty timer", "patient timer"]


def test_deadlines_that_were_all_met_are_armed_again_by_the_next_handler(plane: Loop) -> None:
    deadlines = Deadlines(plane, 0.01)
    first, second = Diary(), Diary()
    deadlines.add(first)
    turn_until(plane, lambda: first.lines)
    deadlines.add(second)
    turn_until(plane, lambda: second.lines)


def test_a_handler_that_breaks_at_its_deadline_does_not_keep_the_others_from_theirs(plane: Loop) -> None:
    deadlines = Deadlines(plane, 0.01)
    broken, sound = Diary("broken"), Diary("sound")
    broken.fails_in = "timer"
    deadlines.add(broken)
    deadlines.add(sound)
    turn_until(plane, lambda: sound.lines)
    assert len(broken.crashes) == 1


def test_handlers_that_come_back_at_their_deadline_share_one_timer(plane: Loop) -> None:
    """Each timer that is left over would set itself again for as long as anybody waits."""
    deadlines = Deadlines(plane, 0.01)
    diaries = [Diary(str(number)) for number in range(3)]
    for diary in diaries:
        diary.then = partial(deadlines.add, diary)
        deadlines.add(diary)
        plane.turn(0.002)
    turn_until(plane, lambda: all(len(diary.lines) >= 20 for diary in diaries))
    assert len(plane._timers) == 1


@pytest.mark.timeout(60)
def test_a_handler_that_is_touched_by_a_flush_is_flushed_without_waiting_for_an_event(plane: Loop) -> None:
    """Otherwise a transport with payload that became sendable in a flush would wait for another event."""
    diary = Diary()

    def touch_again() -> None:
        if len(diary.lines) < 4:
            plane.touch(diary)

    diary.then = touch_again
    plane.touch(diary)
    plane.turn(None)
    plane.turn(None)
    assert len(diary.lines) == 4, "a flush at the start and one at the end of each turn"


def test_a_cancelled_timer_does_not_fire(plane: Loop) -> None:
    cancelled, kept = Diary(), Diary()
    timer = plane.after(0.01, cancelled)
    plane.after(0.02, kept)
    plane.cancel(timer)
    plane.cancel(timer)
    turn_until(plane, lambda: kept.lines)
    assert not cancelled.lines


def test_timers_that_were_cancelled_are_not_kept_until_their_time(plane: Loop) -> None:
    """A connection that lives a second leaves an hour's keepalive behind."""
    kept = plane.after(3600, Diary())
    for _ in range(10_000):
        plane.cancel(plane.after(3600, Diary()))
    assert len(plane._timers) < 200
    assert kept.handler is not None


def test_loops_share_no_memory_for_reads(plane: Loop) -> None:
    """Two of them may run in two threads, and a read releases the interpreter's lock."""
    other = Loop()
    assert plane.receive_block.data is not other.receive_block.data
    assert plane.ciphertext.obj is not other.ciphertext.obj
    assert plane.request.obj is not other.request.obj
    other.close()
