"""Liveness, readiness and metrics of a proxy, and the watch over the tunnel that readiness rests on."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from umbilical.dialer.failure import DialFailed, Reason
from umbilical.dialer.opener import Opener
from umbilical.konnectivity.dial_failure import PROBE_HOST, PROBE_PORT
from umbilical.tunnel import metrics
from umbilical.tunnel.admin import NOT_FOUND, OK, Request, Response
from umbilical.tunnel.causes import log_fields

logger = logging.getLogger(__name__)

FIRST_SECONDS: Final = 1.0
"""Between looks while no server answers; doubles to the longest."""
LONGEST_SECONDS: Final = 15.0
"""The longest that a server which is there now waits to be found."""
LOOK_SECONDS: Final = 30.0
"""For one look."""

SERVER_SILENT: Final = frozenset({Reason.SERVER, Reason.TLS, Reason.PROTOCOL})
"""Any other failure is the word of a server that was reached."""
AGENT_SILENT: Final = frozenset({Reason.NO_AGENT, Reason.AGENT_LOST, Reason.TIMEOUT})


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
    """Dials until somebody inside the cluster has answered, and never again: later dials are users' own.

    Ready once a server was reached. One that fails later may come back any moment, and to take the proxy away from
    its clients until then would help nobody.
    """

    def __init__(self) -> None:
        self.server_reached = False
        self.agent_reached = False
        self.reason = "no server of the tunnel was reached yet"

    async def run(self, tunnel: Opener, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        pause = FIRST_SECONDS
        while not await self.look(tunnel):
            await sleep(pause)
            pause = min(2 * pause, LONGEST_SECONDS)
        logger.info("the tunnel works: an agent has answered")

    async def look(self, tunnel: Opener) -> bool:
        """Whether an agent was reached."""
        failure = await _probe(tunnel)
        silent = failure is not None and failure.reason in SERVER_SILENT
        self.agent_reached = not silent and (failure is None or failure.reason not in AGENT_SILENT)
        self.server_reached = self.server_reached or not silent
        self._tell("" if self.agent_reached or failure is None else _words(failure), failure)
        return self.agent_reached

    def _tell(self, reason: str, failure: DialFailed | None) -> None:
        """When it begins or changes, not at every look."""
        if reason and reason != self.reason and failure is not None:
            verdict = failure.verdict
            logger.warning("waiting for the tunnel: %s", reason, extra=log_fields(verdict.code, verdict.remedy))
        self.reason = reason


def _words(failure: DialFailed) -> str:
    return f"{failure.verdict.code} {failure.verdict.words}: {failure}"


async def _probe(tunnel: Opener) -> DialFailed | None:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            _, writer = await tunnel.open(PROBE_HOST, PROBE_PORT)
    except TimeoutError:
        return DialFailed(Reason.SERVER, "the tunnel", f"no answer within {LOOK_SECONDS:g} s")
    except DialFailed as failure:
        return failure
    writer.transport.abort()
    return None
