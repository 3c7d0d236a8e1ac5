"""Waiting ends: with what was looked for, or with what was seen instead."""

import pytest

from umbilical.lab.errors import LabError
from umbilical.lab.waiting import NotYet, wait


def test_what_is_seen_at_last_is_returned() -> None:
    answers = iter(["no", "no", "yes"])

    def look() -> str:
        answer = next(answers)
        if answer == "no":
            raise NotYet(answer)
        return answer

    assert wait("a yes", look, seconds=10, poll_seconds=0.001) == "yes"


def test_the_last_look_is_in_the_message_when_the_time_is_over() -> None:
    def look() -> None:
        raise NotYet("0 of 5 agents")

    with pytest.raises(LabError) as caught:
        wait("5 agents", look, seconds=0.01, poll_seconds=0.001)
    assert caught.value.code == "UMB850"
    assert "waited in vain for 5 agents" in caught.value.what
    assert "0 of 5 agents" in caught.value.why


def test_it_looks_once_even_if_there_is_no_time() -> None:
    assert wait("anything", lambda: 1, seconds=0) == 1


def test_an_error_that_is_not_a_not_yet_is_not_swallowed() -> None:
    def look() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        wait("anything", look, seconds=10)
