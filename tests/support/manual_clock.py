"""Time that passes only when someone sleeps, and chance that is always the same."""

import asyncio
from datetime import UTC, datetime, timedelta

from umbilical.cluster.client import ClientClock

START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """`sleeps` is the transcript; a sleep takes no real time but lets everyone else run."""

    def __init__(self, chance: float = 0.0) -> None:
        self.seconds = 0.0
        self.sleeps: list[float] = []
        self._chance = chance

    def clock(self) -> ClientClock:
        return ClientClock(self.now, lambda: self.seconds, self._sleep, lambda: self._chance)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    async def _sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)
