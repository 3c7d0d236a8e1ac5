import os
from functools import partial

from tests.support.data_plane import turn_until
from tests.support.dialling import (
    Caller,
    closed_port,
    desk,
    listening,
    silent_port,
)

from umbilical.tunnel.dialing import Dial
from umbilical.tunnel.loop import Loop


def all_over(callers: list[Caller]) -> bool:
    return all(caller.is_over() for caller in callers)


def test_more_dials_than_the_limit_wait_in_line_and_all_end(plane: Loop) -> None:
    _, open_port = listening()
    shut = closed_port()
    where = desk(plane, limit=3)
    callers = [Caller() for _ in range(40)]
    most = 0
    for number, caller in enumerate(callers):
        where.dial(caller, "tcp", f"127.0.0.1:{shut if number % 3 else open_port}")
        most = max(most, where.under_way())
    assert (most, where.in_line()) == (3, 37)
    turn_until(plane, lambda: all_over(callers))
    assert (where.under_way(), where.in_line()) == (0, 0)
    assert [caller.sock is not None for caller in callers] == [number % 3 == 0 for number in range(40)]


def test_the_time_in_line_counts(plane: Loop) -> None:
    port = silent_port()
    where = desk(plane, timeout_seconds=0.1, limit=1)
    callers = [Caller() for _ in range(3)]
    for caller in callers:
        where.dial(caller, "tcp", f"127.0.0.1:{port}")
    turn_until(plane, lambda: all_over(callers))
    assert [caller.failures for caller in callers] == [[f"dial tcp 127.0.0.1:{port}: i/o timeout"]] * 3
    assert where.under_way() == 0


def test_who_was_cancelled_in_line_is_passed_over(plane: Loop) -> None:
    silent = silent_port()
    _, port = listening()
    where = desk(plane, limit=1)
    first = where.dial(Caller(), "tcp", f"127.0.0.1:{silent}")
    cancelled, served = Caller(), Caller()
    second = where.dial(cancelled, "tcp", f"127.0.0.1:{port}")
    where.dial(served, "tcp", f"127.0.0.1:{port}")
    second.cancel()
    first.cancel()
    turn_until(plane, served.is_over)
    assert served.sock is not None
    assert not cancelled.is_over()


def test_a_long_line_of_dials_that_fail_at_once_ends(plane: Loop) -> None:
    """Each start ends in the start of the next: this must not pile up on the stack."""
    where = desk(plane, limit=1)
    hanging = where.dial(Caller(), "tcp", f"127.0.0.1:{silent_port()}")
    callers = [Caller() for _ in range(3000)]
    for number, caller in enumerate(callers):
        where.dial(caller, "tcp", "bad address" if number % 2 else "255.255.255.255:1")
    hanging.cancel()
    assert all(len(caller.failures) == 1 for caller in callers)
    assert (where.under_way(), where.in_line()) == (0, 0)


def test_an_owner_may_dial_again_when_its_dial_failed(plane: Loop) -> None:
    where = desk(plane, limit=1)
    stubborn, waiting = Caller(), Caller()

    def dial_again() -> None:
        if len(stubborn.failures) < 50:
            where.dial(stubborn, "tcp", "bad address")

    stubborn.then = dial_again
    hanging: Dial = where.dial(Caller(), "tcp", f"127.0.0.1:{silent_port()}")
    where.dial(stubborn, "tcp", "bad address")
    where.dial(waiting, "tcp", "bad address")
    hanging.cancel()
    turn_until(plane, lambda: len(stubborn.failures) == 50 and waiting.is_over())
    assert where.under_way() == 0


def test_a_thousand_dials_leave_no_descriptor(plane: Loop) -> None:
    listener, port = listening(backlog=2000)
    before = len(os.listdir("/proc/self/fd"))
    where = desk(plane, limit=50)
    for _ in range(10):
        callers = [Caller() for _ in range(100)]
        for caller in callers:
            where.dial(caller, "tcp", f"127.0.0.1:{port}")
        turn_until(plane, partial(all_over, callers))
        for caller in callers:
            assert caller.sock is not None
            caller.sock.close()
            listener.accept()[0].close()
    assert len(os.listdir("/proc/self/fd")) == before
