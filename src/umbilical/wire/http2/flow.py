"""Allowances against floods: what costs us work without moving data is counted against a bucket that time refills."""

from typing import Final

PING_BURST: Final = 1_000
PINGS_PER_SECOND: Final = 50.0
SETTINGS_BURST: Final = 100
SETTINGS_PER_SECOND: Final = 1.0
RESET_BURST: Final = 1_000
"""Streams reset before we answered them (CVE-2023-44487). A tunnel that was served and then reset costs nothing
here, so thousands of dials a second never drain it."""
RESETS_PER_SECOND: Final = 200.0
REFILL_PER_FRAME: Final = 4
"""grpc-go measures with at most one ping per DATA frame that it gets."""


class Allowance:
    """A token bucket; the clock is the caller's."""

    def __init__(self, burst: int, per_second: float) -> None:
        self._burst: Final = float(burst)
        self._per_second: Final = per_second
        self._left = float(burst)
        self._seen_at = 0.0

    def spend(self, now: float) -> bool:
        """Take one; False when the peer has overdrawn."""
        if now > self._seen_at:
            self._left = min(self._burst, self._left + (now - self._seen_at) * self._per_second)
            self._seen_at = now
        self._left -= 1.0
        return self._left >= 0.0

    def refill(self) -> None:
        """A frame of real traffic moved: pings that measure it (grpc-go sends one per round trip) are welcome."""
        self._left = min(self._burst, self._left + REFILL_PER_FRAME)
