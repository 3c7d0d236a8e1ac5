"""When an agent's sync loop tries again: a steady beat while all is well, longer and longer after failures."""

from typing import Final

JITTER: Final = 0.1
"""Each wait is longer by up to this share, so that agents do not beat in step."""
GROWTH: Final = 1.5
"""Upstream's factor from one failed attempt to the next."""


class SyncSchedule:
    """The waits between attempts. `draw` is a random number in [0, 1)."""

    def __init__(self, interval_seconds: float, cap_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._cap_seconds = cap_seconds
        self._next_seconds = interval_seconds

    def after_success(self, draw: float) -> float:
        """A connection was made, or none was needed."""
        self._next_seconds = self._interval_seconds
        return _jittered(self._interval_seconds, draw)

    def after_duplicate(self, draw: float) -> float:
        """The server answered and is already held: the way works, so this is no failure."""
        return self.after_success(draw)

    def after_failure(self, draw: float) -> float:
        wait_seconds = self._next_seconds
        self._next_seconds = min(wait_seconds * GROWTH, self._cap_seconds)
        return _jittered(wait_seconds, draw)


def _jittered(seconds: float, draw: float) -> float:
    return seconds * (1.0 + JITTER * draw)
