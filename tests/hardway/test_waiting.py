"""Waiting: a result ends it, the deadline ends it with what was seen last, and known failures are recognised."""

import pytest
from tests.support.made_up_stages import Lines

from umbilical.hardway.errors import StageTimeout
from umbilical.hardway.waiting import NotYet, Signature, wait


class Time:
    """Sleeping makes it pass."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_look_is_repeated_until_it_returns_and_each_moment_is_told() -> None:
    time, lines, answers = Time(), Lines(), ["nothing", "a little"]

    def look() -> str:
        if answers:
            raise NotYet(answers.pop(0))
        return "all"

    found = wait(lines, "bread", look, 60, remedy="bake", poll_seconds=2, clock=time, sleep=time.sleep)
    assert found == "all"
    assert [(one.what, one.seen, one.elapsed_seconds, one.timeout_seconds) for one in lines.waits] == [
        ("bread", "nothing", 0.0, 60),
        ("bread", "a little", 2.0, 60),
    ]


def test_the_deadline_ends_it_with_what_was_seen_last() -> None:
    time = Time()

    def look() -> None:
        raise NotYet(f"it is {time.now:.0f} o'clock")

    with pytest.raises(StageTimeout) as raised:
        wait(Lines(), "noon", look, 3, remedy="wind the clock", clock=time, sleep=time.sleep)
    assert raised.value.code == "UMB725"
    assert raised.value.why == "after 3 s: it is 103 o'clock"
    assert raised.value.remedy == "wind the clock"


def test_a_timeout_of_nothing_still_looks_once() -> None:
    assert wait(Lines(), "it", lambda: 5, 0, remedy="") == 5


def test_what_is_seen_is_matched_with_known_failures() -> None:
    time, lines = Time(), Lines()
    known = (Signature("burn(t|ed)", "turn the oven down"), Signature("raw", "wait longer"))

    def look() -> None:
        raise NotYet("the crust is burnt")

    with pytest.raises(StageTimeout) as raised:
        wait(lines, "bread", look, 1, remedy="bake", signatures=known, clock=time, sleep=time.sleep)
    assert lines.waits[0].hints == ("turn the oven down",)
    assert raised.value.remedy == "turn the oven down"


def test_anything_else_that_a_look_raises_ends_the_wait_at_once() -> None:
    def look() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        wait(Lines(), "it", look, 60, remedy="")
