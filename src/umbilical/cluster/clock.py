"""Time and chance in one value, so that a test chooses both."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Clock:
    now: Callable[[], datetime] = _utc_now
    """Wall time, aware of UTC: what leases are written in."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds that never jump: latencies and rates."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    """From 0 up to, not including, 1."""
