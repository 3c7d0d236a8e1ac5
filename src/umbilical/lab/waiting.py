"""Waiting for something to become true: bounded, and with the last thing seen in the message."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from umbilical.fault import LabError

POLL_SECONDS: Final = 0.3
Seen = TypeVar("Seen")


class NotYet(Exception):
    """What is waited for is not so; the text says what is seen instead."""


def wait(what: str, look: Callable[[], Seen], seconds: float, poll_seconds: float = POLL_SECONDS) -> Seen:
    """Look until it does not raise `NotYet`, and return what was seen.

    Raises LabError: the time is over; the last look is in the message.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return look()
        except NotYet as reason:
            if time.monotonic() >= deadline:
                why = f"after {seconds:g} s: {reason}"
                remedy = "look around: umbilical lab status, and the logs in the lab's directory"
                raise LabError("UMB850", f"waited in vain for {what}", why, remedy) from None
        time.sleep(poll_seconds)
