"""The real clock, looked at once."""

import asyncio
from datetime import UTC

from umbilical.cluster.clock import Clock


def test_the_default_clock_is_the_machines_own_in_utc() -> None:
    clock = Clock()
    assert clock.now().tzinfo is UTC
    before = clock.monotonic()
    asyncio.run(_sleep(clock))
    assert clock.monotonic() >= before
    assert 0 <= clock.random() < 1


async def _sleep(clock: Clock) -> None:
    await clock.sleep(0)
