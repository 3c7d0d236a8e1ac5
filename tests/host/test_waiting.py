"""Looking until something is so: what each look saw is told, and whoever is told ends the wait."""

import pytest

from umbilical.host.waiting import NotYet, look_until


def test_what_is_seen_meanwhile_is_told_and_the_result_returned() -> None:
    words = ["nothing", "half"]
    told: list[str] = []
    slept: list[float] = []

    def look() -> str:
        if words:
            raise NotYet(words.pop(0))
        return "all"

    assert look_until(look, told.append, 0.5, slept.append) == "all"
    assert (told, slept) == (["nothing", "half"], [0.5, 0.5])


def test_who_is_told_ends_the_wait() -> None:
    def look() -> None:
        raise NotYet("nothing")

    def saw(seen: str) -> None:
        raise TimeoutError(seen)

    with pytest.raises(TimeoutError, match="nothing"):
        look_until(look, saw, 0.5, lambda seconds: None)
