"""Liveness, readiness and metrics of a proxy, and the watch over the tunnel that readiness rests on."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from umbilical.dialer.failure import DialFailed
from umbilical.tunnel import metrics
from umbilical.tunnel.admin import NOT_FOUND, OK, Request, Response

logger = logging.getLogger(__name__)

FIRST_SECONDS: Final = 1.0
"""Between looks while no server answers; doubles to the longest."""
LONGEST_SECONDS: Final = 15.0
"""Between looks at a tunnel that works, and at most at one that does not."""
LOOK_SECONDS: Final = 30.0
"""For one look."""

Look = Callable[[], Awaitable[None]]
"""Reach a server of the tunnel, and no endpoint. Raises DialFailed."""


class HealthRoutes:
    def __init__(self, unready: Callable[[], str], render_metrics: Callable[[], bytes]) -> None:
        self._unready = unready
        """Why it is not ready; empty when it is."""
        self._render_metrics = render_metrics

    async def respond(self, request: Request) -> Response:
        match request.path:
            case "/livez" | "/healthz":
                return OK
            case "/readyz" | "/ready":
                why = self._unready()
                return Response(503, f"not ready: {why}\n".encode()) if why else OK
            case "/metrics":
                return Response(200, self._render_metrics(), (("Content-Type", metrics.CONTENT_TYPE),))
        return NOT_FOUND


class TunnelWatch:
    """Looks at the tunnel for as long as it runs. Ready once a server was reached: one that fails later may come back
    any moment, and taking the proxy away from its clients would help nobody."""

    def __init__(self) -> None:
        self.was_reached = False
        self.is_reached = False
        self.reason = "no server of the tunnel was reached yet"
        self._wait_seconds = FIRST_SECONDS

    def healthy(self) -> int:
        return int(self.is_reached)

    async def run(self, look: Look, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        while True:
            await self.look_once(look)
            await sleep(self.next_wait())

    async def look_once(self, look: Look) -> None:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await look()
        except DialFailed as failure:
            self._lost(f"{failure.verdict.code} {failure.verdict.words}: {failure}", failure.verdict.remedy)
        except TimeoutError:
            self._lost("no server of the tunnel answers", "look at the servers' pods")
        else:
            self._reached()

    def next_wait(self) -> float:
        """Seconds until the next look."""
        if self.is_reached:
            self._wait_seconds = FIRST_SECONDS
            return LONGEST_SECONDS
        wait = self._wait_seconds
        self._wait_seconds = min(2 * wait, LONGEST_SECONDS)
        return wait

    def _reached(self) -> None:
        if not self.is_reached:
            logger.info("a server of the tunnel is reached")
        self.was_reached = self.is_reached = True
        self.reason = ""

    def _lost(self, reason: str, remedy: str) -> None:
        """Told when it begins or changes, not at every look."""
        if reason != self.reason:
            logger.warning("the tunnel cannot be used: %s", reason, extra={"fields": {"next": remedy}})
        self.is_reached = False
        self.reason = reason
