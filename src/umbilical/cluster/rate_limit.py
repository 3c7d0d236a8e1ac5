"""How many requests a second the API server is asked: a token bucket, as client-go has by default."""

import asyncio
from typing import Final

from umbilical.cluster.clock import Clock

# client-go rest/config.go: what 0 means for --kubeconfig-qps and --kubeconfig-burst.
DEFAULT_REQUESTS_PER_SECOND: Final = 5.0
DEFAULT_BURST: Final = 10


class RateLimit:
    """`burst` requests at once, then `requests_per_second`; whoever waits is served in order of arrival."""

    def __init__(self, requests_per_second: float = 0.0, burst: int = 0, clock: Clock | None = None) -> None:
        self._per_second = requests_per_second or DEFAULT_REQUESTS_PER_SECOND
        self._burst = burst or DEFAULT_BURST
        self._clock = clock or Clock()
        self._tokens = float(self._burst)
        self._filled_at = self._clock.monotonic()
        self._turn = asyncio.Lock()

    async def acquire(self) -> None:
        """Return when the next request may go out. A negative rate means no limit, as in client-go."""
        if self._per_second < 0:
            return
        async with self._turn:
            self._refill()
            while self._tokens < 1:
                await self._clock.sleep((1 - self._tokens) / self._per_second)
                self._refill()
            self._tokens -= 1

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now
