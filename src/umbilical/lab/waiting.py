"""Waiting for something to become true: bounded, and with the last thing seen in the message."""

import time
from collections.abc import Callable
from typing import Final

from umbilical.fault import LabError
from umbilical.host.waiting import Seen, look_until

POLL_SECONDS: Final = 0.3


def wait(what: str, look: Callable[[], Seen], seconds: float, poll_seconds: float = POLL_SECONDS) -> Seen:
    """Look until it does not raise `NotYet`. Raises LabError: the time is over; the last look is in the message."""
    deadline = time.monotonic() + seconds

    def saw(reason: str) -> None:
        if time.monotonic() >= deadline:
            remedy = "look around: umbilical lab status, and the logs in the lab's directory"
            raise LabError("UMB850", f"waited in vain for {what}", f"after {seconds:g} s: {reason}", remedy)

    return look_until(look, saw, poll_seconds)
