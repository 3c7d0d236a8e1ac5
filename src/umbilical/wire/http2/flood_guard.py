"""How much a peer may send that moves no payload before the connection fails: one token bucket per kind."""

from typing import Final

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2.frames import ENHANCE_YOUR_CALM

CONTROL_BURST: Final = 3_000
CONTROL_PER_SECOND: Final = 1_000.0
"""PING, WINDOW_UPDATE, PRIORITY, empty DATA, frames on closed streams and of unknown types. Handling one takes
microseconds."""
CONTROL_PER_PAYLOAD: Final = 4
"""Added for each frame of payload that is sent or received, and for each stream: grpc-go sends at most one ping and two
window updates for a DATA frame."""
SETTINGS_BURST: Final = 100
SETTINGS_PER_SECOND: Final = 1.0
UNSERVED_REFILL_SECONDS: Final = 5.0
"""Time in which the budget for streams that end unserved becomes whole again."""
MAX_EXPECTED_STREAMS: Final = 10_000
"""Of dials that were cancelled some never get their stream; they must not add up to a budget for a flood."""
UNSERVED_FRAMES: Final = 16
"""Frames of a turn's budget that such a stream costs: to decode, refuse and forget it takes as long as they do."""
MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Answers to control frames and refused calls that we queue for a peer which does not read them."""


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

    def refill(self, count: int) -> None:
        """Add tokens up to the burst."""
        self._left = min(self._burst, self._left + count)


class FloodGuard:
    """Counts what one peer sends. The methods raise ProtocolViolation when it was too much."""

    def __init__(self, unserved_streams: int) -> None:
        self.now = 0.0
        """When the connection last received bytes."""
        self.payload_frames = 0
        """Frames of payload that were sent or received, and streams that were opened, since the last control frame."""
        self._control: Final = TokenBucket(CONTROL_BURST, CONTROL_PER_SECOND)
        self._settings: Final = TokenBucket(SETTINGS_BURST, SETTINGS_PER_SECOND)
        self._unserved: Final = TokenBucket(unserved_streams, unserved_streams / UNSERVED_REFILL_SECONDS)
        self._expected = 0
        """Streams that we asked for and that did not come yet."""
        self._has_too_many_unserved = False
        self._unserved_now = 0
        """Not yet charged."""

    def count_control(self, name: str) -> None:
        if self.payload_frames:
            self._control.refill(self.payload_frames * CONTROL_PER_PAYLOAD)
            self.payload_frames = 0
        if not self._control.spend(self.now):
            raise ProtocolViolation(ENHANCE_YOUR_CALM, f"flood of {name} frames")

    def count_settings(self) -> None:
        if not self._settings.spend(self.now):
            raise ProtocolViolation(ENHANCE_YOUR_CALM, "flood of SETTINGS frames")

    def expect_stream(self) -> None:
        """The peer will open a stream that we asked for; it may end unserved, because its client left."""
        if self._expected < MAX_EXPECTED_STREAMS:
            self._expected += 1

    def expected_stream_came(self) -> None:
        """It is served, or the peer answered that it will not open one."""
        if self._expected > 0:
            self._expected -= 1

    def unserved(self) -> None:
        """A stream of the peer ended before it was served. Raises nothing: `charge_unserved` does."""
        self._unserved_now += 1
        if self._expected > 0:
            self._expected -= 1
        elif not self._unserved.spend(self.now):
            self._has_too_many_unserved = True

    def charge_unserved(self) -> int:
        """Return how many frames of the budget the streams cost that ended unserved since the last call."""
        if self._has_too_many_unserved:
            raise ProtocolViolation(ENHANCE_YOUR_CALM, "too many streams were opened and reset or refused")
        count, self._unserved_now = self._unserved_now, 0
        return count * UNSERVED_FRAMES

    def check_answers(self, queued_bytes: int) -> None:
        """Before an answer is queued to what the peer sent without need."""
        if queued_bytes > MAX_ANSWER_BYTES:
            raise ProtocolViolation(ENHANCE_YOUR_CALM, "the peer does not read our answers")
