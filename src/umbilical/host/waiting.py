"""Polls until a condition holds. The caller gets each observation, and decides when to give up."""

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


class NotYet(Exception):
    """The condition does not hold yet; the message is what was observed instead."""


def look_until(
    look: Callable[[], Seen],
    saw: Callable[[str], None],
    poll_seconds: float,
    sleep: Callable[[float], None] = time.sleep,
) -> Seen:
    """Call `look` until it does not raise `NotYet`; `saw` gets the message and raises to end the wait."""
    while True:
        try:
            return look()
        except NotYet as error:
            seen = str(error)
        saw(seen)
        sleep(poll_seconds)
