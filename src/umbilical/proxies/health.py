"""Health of a proxy: its HTTP routes, the first probe of the tunnel, and whether the tunnel works.

    healthy --the tunnel fails a dial--> unknown --the probe succeeds--> healthy
                                         unknown --the probe fails-----> broken, probed until it works

Names do not matter: an NXDOMAIN that came through the tunnel proves that it works.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.streams import Opener, Streams
from umbilical.konnectivity.dial_failure import PROBE_HOST, PROBE_PORT
from umbilical.tunnel import metrics
from umbilical.tunnel.admin import NOT_FOUND, OK
from umbilical.tunnel.causes import log_fields
from umbilical.tunnel.daemon import end_task, own_task
from umbilical.tunnel.http_server import HttpRequest, HttpResponse

logger = logging.getLogger(__name__)

FIRST_SECONDS: Final = 1.0
"""Interval between probes while no server answers; doubles up to LONGEST_SECONDS."""
LONGEST_SECONDS: Final = 15.0
"""Longest interval between probes."""
WATCH_PROBE_SECONDS: Final = 30.0
"""Timeout for one probe."""

SERVER_SILENT: Final = frozenset({DialReason.SERVER, DialReason.TLS, DialReason.PROTOCOL})
"""Any other failure comes from a server that was reached."""
AGENT_SILENT: Final = frozenset({DialReason.NO_AGENT, DialReason.AGENT_LOST, DialReason.TIMEOUT})

Sleep = Callable[[float], Awaitable[None]]


class HealthRoutes:
    def __init__(self, unready: Callable[[], str], render_metrics: Callable[[], bytes]) -> None:
        self._unready = unready
        """Returns why it is not ready; empty if it is."""
        self._render_metrics = render_metrics

    async def respond(self, request: HttpRequest) -> HttpResponse:
        match request.path:
            case "/livez" | "/healthz":
                return OK
            case "/readyz" | "/ready":
                why = self._unready()
                return HttpResponse(503, f"not ready: {why}\n".encode()) if why else OK
            case "/metrics":
                return HttpResponse(200, self._render_metrics(), (("Content-Type", metrics.CONTENT_TYPE),))
        return NOT_FOUND


class TunnelWatch:
    """Probes until an agent has answered, then stops: after that, clients' dials show the state.

    Ready once a server was reached, and from then on: a server that fails later may return at any moment, and an
    unready proxy would not help its clients.
    """

    def __init__(self) -> None:
        self.server_reached = False
        self.agent_reached = False
        self.reason = "no server of the tunnel has been reached yet"

    async def run(self, tunnel: Opener, sleep: Sleep = asyncio.sleep) -> None:
        pause = FIRST_SECONDS
        while not await self.probe(tunnel):
            await sleep(pause)
            pause = min(2 * pause, LONGEST_SECONDS)
        logger.info("the tunnel works: an agent has answered")

    async def probe(self, tunnel: Opener) -> bool:
        """Probe once; return whether an agent was reached."""
        failure = await _probe(tunnel, WATCH_PROBE_SECONDS)
        silent = failure is not None and failure.reason in SERVER_SILENT
        self.agent_reached = not silent and (failure is None or failure.reason not in AGENT_SILENT)
        self.server_reached = self.server_reached or not silent
        self._log(None if self.agent_reached else failure)
        return self.agent_reached

    def _log(self, failure: DialFailed | None) -> None:
        """Log the failure when it begins or changes, not at every probe."""
        if failure is None:
            self.reason = ""
            return
        report = failure.report
        reason = f"{report.code} {report.words}: {failure}"
        if reason != self.reason:
            logger.warning("waiting for the tunnel: %s", reason, extra=log_fields(report.code, report.remedy))
        self.reason = reason


async def _probe(tunnel: Opener, seconds: float) -> DialFailed | None:
    try:
        async with asyncio.timeout(seconds):
            _, writer = await tunnel.open(PROBE_HOST, PROBE_PORT)
    except TimeoutError:
        return DialFailed(DialReason.SERVER, "the tunnel", f"a probe got no answer within {seconds:g} s")
    except DialFailed as failure:
        return failure
    writer.transport.abort()
    return None


FAULTS_OF_THE_TUNNEL: Final = frozenset({DialReason.SERVER, DialReason.TLS, DialReason.NO_AGENT, DialReason.AGENT_LOST})
NO_PROOF: Final = FAULTS_OF_THE_TUNNEL | {DialReason.TIMEOUT, DialReason.PROTOCOL}
"""Any other failure is about an endpoint, and proves that the tunnel works."""

PROBE_SECONDS: Final = 10.0
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
"""As HyperShift's proxies retry."""


class TunnelHealth:
    """Gets the result of each dial from `WatchedTunnel`."""

    def __init__(self, tunnel: Opener, sleep: Sleep = asyncio.sleep, probe_seconds: float = PROBE_SECONDS) -> None:
        self._tunnel: Final = tunnel
        self._sleep: Final = sleep
        self._probe_seconds: Final = probe_seconds
        self._broken_by: DialFailed | None = None
        self._proofs = 0
        self._probing: asyncio.Task[None] | None = None
        self._decided: asyncio.Event | None = None

    @property
    def is_healthy(self) -> bool:
        return self._broken_by is None

    @property
    def broken_by(self) -> DialFailed | None:
        """Why the last probe failed; None while the tunnel works."""
        return self._broken_by

    @property
    def proofs(self) -> int:
        """Counts successes; read it before a dial, and pass it to `failed` after it."""
        return self._proofs

    def works(self) -> None:
        self._proofs += 1
        if self._probing is not None and self._probing is not asyncio.current_task():
            self._probing.cancel()  # the tunnel works; the next failure starts a new probe
            if self._decided is not None:
                self._decided.set()  # a task that is cancelled before it starts does not set it
        if self._broken_by is not None:
            logger.info("the tunnel works again")
            self._broken_by = None

    def failed(self, proofs_before: int) -> None:
        """Start a probe, unless the tunnel has worked since the failed dial began."""
        idle = self._probing is None or self._probing.done() or self._probing.cancelling()
        if idle and proofs_before == self._proofs:
            self._decided = asyncio.Event()
            self._probing = own_task(self._probe_until_it_works(self._decided))

    async def check(self, proofs_before: int) -> bool:
        """Return whether the tunnel works, after a failed dial."""
        self.failed(proofs_before)
        if proofs_before == self._proofs and self._decided is not None:
            await self._decided.wait()
        return self.is_healthy

    async def close(self) -> None:
        if self._probing is not None:
            await end_task(self._probing)

    async def _probe_until_it_works(self, decided: asyncio.Event) -> None:
        pause = FIRST_PAUSE_SECONDS
        try:
            while not await self._probe():
                decided.set()
                await self._sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        finally:
            decided.set()

    async def _probe(self) -> bool:
        failure = await _probe(self._tunnel, self._probe_seconds)
        if failure is None or failure.reason not in NO_PROOF:
            self.works()
            return True
        if self._broken_by is None:
            logger.warning("the tunnel does not work: %s", failure)
        self._broken_by = failure
        return False


class WatchedTunnel:
    """The dialer with a health report for each dial. Resolvers use it too: it has no routing rules."""

    def __init__(self, tunnel: Opener, health: TunnelHealth) -> None:
        self._tunnel: Final = tunnel
        self._health: Final = health

    async def open(self, host: str, port: int) -> Streams:
        proofs = self._health.proofs
        try:
            streams = await self._tunnel.open(host, port)
        except DialFailed as failure:
            if failure.reason in FAULTS_OF_THE_TUNNEL:
                self._health.failed(proofs)
            elif failure.reason not in NO_PROOF:
                self._health.works()
            raise
        self._health.works()
        return streams
