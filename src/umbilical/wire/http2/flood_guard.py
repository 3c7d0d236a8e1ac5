"""How many control frames a peer may send before the connection fails: one token bucket per kind."""

from typing import Final

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2 import frames

PING_BURST: Final = 1_000
PINGS_PER_SECOND: Final = 50.0
SETTINGS_BURST: Final = 100
SETTINGS_PER_SECOND: Final = 1.0
RESET_BURST: Final = 1_000
"""Streams reset before we answered them (CVE-2023-44487). Resetting a tunnel that was served does not count, so
thousands of dials per second never reach this limit."""
RESETS_PER_SECOND: Final = 200.0
REFILL_PER_FRAME: Final = 4
"""grpc-go sends at most one ping per DATA frame that it receives, to measure the bandwidth."""
MAX_CONTROL_BYTES: Final = 1024 * 1024
"""Answers to control frames that we queue for a peer which does not read them."""


class TokenBucket:
    """The caller provides the time."""

    def __init__(self, burst: int, per_second: float) -> None:
        self._burst: Final = float(burst)
        self._per_second: Final = per_second
        self._left = float(burst)
        self._updated_at = 0.0

    def spend(self, now: float) -> bool:
        """Take one token; False when none was left."""
        if now > self._updated_at:
            self._left = min(self._burst, self._left + (now - self._updated_at) * self._per_second)
            self._updated_at = now
        self._left -= 1.0
        return self._left >= 0.0

    def refill(self) -> None:
        """Add the tokens that one frame of payload is worth."""
        self._left = min(self._burst, self._left + REFILL_PER_FRAME)


class FloodGuard:
    """Counts the control frames of one connection. Each `spend` method returns False when the peer sent too many."""

    def __init__(self) -> None:
        self.now = 0.0
        """When the connection last received bytes."""
        self.payload_moved = False
        """Payload was sent or received since the last ping."""
        self._pings: Final = TokenBucket(PING_BURST, PINGS_PER_SECOND)
        self._settings: Final = TokenBucket(SETTINGS_BURST, SETTINGS_PER_SECOND)
        self._resets: Final = TokenBucket(RESET_BURST, RESETS_PER_SECOND)

    def spend_ping(self) -> bool:
        if self.payload_moved:
            # grpc-go pings once per round trip in which payload moved: those pings are wanted.
            self.payload_moved = False
            self._pings.refill()
        return self._pings.spend(self.now)

    def spend_settings(self) -> bool:
        return self._settings.spend(self.now)

    def spend_reset(self) -> bool:
        return self._resets.spend(self.now)


def reset_flood() -> ProtocolViolation:
    return ProtocolViolation(frames.ENHANCE_YOUR_CALM, "too many streams were opened and reset")
