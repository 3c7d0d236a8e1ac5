"""How long a container that ended waits for its next start, as the kubelet has it."""

from typing import Final

# kubelet.go: the first restart comes at once, the next after this, each twice the one before.
FIRST_SECONDS: Final = 10.0
CAP_FACTOR: Final = 30
"""Of the first: 300 s."""
CALM_FACTOR: Final = 2
"""Of the cap: whoever ran that long begins anew."""


class BackOff:
    def __init__(self, first_seconds: float = FIRST_SECONDS) -> None:
        self._first = first_seconds
        self._cap = first_seconds * CAP_FACTOR
        self._next = 0.0

    def ended_after(self, seconds: float) -> float:
        """Take note of an end after so long a run; return how long to wait."""
        if seconds >= CALM_FACTOR * self._cap:
            self._next = 0.0
        wait = self._next
        self._next = min(max(self._first, wait * 2), self._cap)
        return wait
