"""Looking until something is so. Whoever waits is told what each look saw, and ends the wait."""

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


class NotYet(Exception):
    """What a look saw instead of what is waited for, in a few words."""


def look_until(
    look: Callable[[], Seen],
    saw: Callable[[str], None],
    poll_seconds: float,
    sleep: Callable[[float], None] = time.sleep,
) -> Seen:
    """Look until it does not raise `NotYet`; `saw` is told its words, and raises when the time is over."""
    while True:
        try:
            return look()
        except NotYet as error:
            seen = str(error)
        saw(seen)
        sleep(poll_seconds)
