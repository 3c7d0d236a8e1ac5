"""Goes the way to an endpoint over and over, at an even pace."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from umbilical.hosted.trip import Trip
from umbilical.hosted.way import Way


@dataclass(frozen=True)
class Pace:
    count: int = 4
    interval_seconds: float = 1.0
    """Between two beginnings; a trip that takes longer is not overtaken."""


async def ping(way: Way, pace: Pace, tell: Callable[[Trip], None]) -> None:
    """Tell of every trip as soon as it is over."""
    async with way:
        began = time.monotonic()
        for number in range(pace.count):
            await asyncio.sleep(max(0.0, began + number * pace.interval_seconds - time.monotonic()))
            trip, pipe = await way.open(number + 1)
            if pipe is not None:
                pipe.close()
            tell(trip)
