"""Wait for a condition, with a timeout."""

import time
from collections.abc import Callable
from typing import Final

from umbilical.fault import LabError
from umbilical.host.waiting import Seen, look_until

POLL_SECONDS: Final = 0.3


def wait(what: str, look: Callable[[], Seen], seconds: float, poll_seconds: float = POLL_SECONDS) -> Seen:
    """Call `look` until it does not raise `NotYet`. Raises LabError: timeout; the last reason is in the message."""
    deadline = time.monotonic() + seconds

    def saw(reason: str) -> None:
        if time.monotonic() >= deadline:
            remedy = "umbilical lab status; read the logs in the lab's directory"
            raise LabError("UMB850", f"timed out waiting for {what} after {seconds:g} s", reason, remedy)

    return look_until(look, saw, poll_seconds)
