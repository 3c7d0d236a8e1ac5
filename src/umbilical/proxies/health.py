"""Health of a proxy: its HTTP routes, the first look at the tunnel, and whether the tunnel as a whole works.

    healthy --a dial fails by the tunnel's fault--> doubtful --the probe succeeds--> healthy
                                                    doubtful --the probe fails-----> broken, probed until it works

Names play no part in it: NXDOMAIN that came through the tunnel proves that it works.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from umbilical.dialer.failure import DialFailed, Reason
from umbilical.dialer.streams import Opener, Streams
from umbilical.konnectivity.dial_failure import PROBE_HOST, PROBE_PORT
from umbilical.tunnel import metrics
from umbilical.tunnel.admin import NOT_FOUND, OK
from umbilical.tunnel.causes import log_fields
from umbilical.tunnel.daemon import end_task, own_task
from umbilical.tunnel.http_server import HttpRequest, HttpResponse

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

Sleep = Callable[[float], Awaitable[None]]


class HealthRoutes:
    def __init__(self, unready: Callable[[], str], render_metrics: Callable[[], bytes]) -> None:
        self._unready = unready
        """Why it is not ready; empty when it is."""
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
    """Dials until somebody inside the cluster has answered, and never again: later dials are users' own.

    Ready once a server was reached. One that fails later may come back any moment, and to take the proxy away from
    its clients until then would help nobody.
    """

    def __init__(self) -> None:
        self.server_reached = False
        self.agent_reached = False
        self.reason = "no server of the tunnel was reached yet"

    async def run(self, tunnel: Opener, sleep: Sleep = asyncio.sleep) -> None:
        pause = FIRST_SECONDS
        while not await self.look(tunnel):
            await sleep(pause)
            pause = min(2 * pause, LONGEST_SECONDS)
        logger.info("the tunnel works: an agent has answered")

    async def look(self, tunnel: Opener) -> bool:
        """Whether an agent was reached."""
        failure = await _probe(tunnel, LOOK_SECONDS)
        silent = failure is not None and failure.reason in SERVER_SILENT
        self.agent_reached = not silent and (failure is None or failure.reason not in AGENT_SILENT)
        self.server_reached = self.server_reached or not silent
        self._tell(None if self.agent_reached else failure)
        return self.agent_reached

    def _tell(self, failure: DialFailed | None) -> None:
        """When it begins or changes, not at every look."""
        if failure is None:
            self.reason = ""
            return
        verdict = failure.verdict
        reason = f"{verdict.code} {verdict.words}: {failure}"
        if reason != self.reason:
            logger.warning("waiting for the tunnel: %s", reason, extra=log_fields(verdict.code, verdict.remedy))
        self.reason = reason


async def _probe(tunnel: Opener, seconds: float) -> DialFailed | None:
    try:
        async with asyncio.timeout(seconds):
            _, writer = await tunnel.open(PROBE_HOST, PROBE_PORT)
    except TimeoutError:
        return DialFailed(Reason.SERVER, "the tunnel", f"a probe got no answer within {seconds:g} s")
    except DialFailed as failure:
        return failure
    writer.transport.abort()
    return None


FAULTS_OF_THE_TUNNEL: Final = frozenset({Reason.SERVER, Reason.TLS, Reason.NO_AGENT, Reason.AGENT_LOST})
NO_PROOF: Final = FAULTS_OF_THE_TUNNEL | {Reason.TIMEOUT, Reason.PROTOCOL}
"""Any other failure is an agent's or a server's word on an endpoint, and proves that words come through."""

PROBE_SECONDS: Final = 10.0
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
"""As often as HyperShift's proxies try again."""


class TunnelHealth:
    """Fed by `WatchedTunnel` with how each dial went."""

    def __init__(self, tunnel: Opener, sleep: Sleep = asyncio.sleep, probe_seconds: float = PROBE_SECONDS) -> None:
        self._tunnel: Final = tunnel
        self._sleep: Final = sleep
        self._probe_seconds: Final = probe_seconds
        self._broken_by: DialFailed | None = None
        self._proofs = 0
        self._probing: asyncio.Task[None] | None = None
        self._verdict: asyncio.Event | None = None

    @property
    def is_healthy(self) -> bool:
        return self._broken_by is None

    @property
    def broken_by(self) -> DialFailed | None:
        """Why the last probe failed; None while the tunnel works."""
        return self._broken_by

    @property
    def proofs(self) -> int:
        """How often it was seen to work; to be noted before a dial, and given to `failed` after it."""
        return self._proofs

    def works(self) -> None:
        self._proofs += 1
        if self._probing is not None and self._probing is not asyncio.current_task():
            self._probing.cancel()  # it has its answer; the next failure is a new question
            if self._verdict is not None:
                self._verdict.set()  # one that is cancelled before its first turn never gets to say so
        if self._broken_by is not None:
            logger.info("the tunnel works again")
            self._broken_by = None

    def failed(self, proofs_before: int) -> None:
        """Raise the question, unless the tunnel was seen to work since the dial that failed began."""
        idle = self._probing is None or self._probing.done() or self._probing.cancelling()
        if idle and proofs_before == self._proofs:
            self._verdict = asyncio.Event()
            self._probing = own_task(self._probe_until_it_works(self._verdict))

    async def check(self, proofs_before: int) -> bool:
        """Say whether the tunnel works, after a failure that leaves it open."""
        self.failed(proofs_before)
        if proofs_before == self._proofs and self._verdict is not None:
            await self._verdict.wait()
        return self.is_healthy

    async def close(self) -> None:
        if self._probing is not None:
            await end_task(self._probing)

    async def _probe_until_it_works(self, verdict: asyncio.Event) -> None:
        pause = FIRST_PAUSE_SECONDS
        try:
            while not await self._probe():
                verdict.set()
                await self._sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        finally:
            verdict.set()

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
    """The dialer, with an eye on how its dials go. Resolvers dial by it too: no rule for users' traffic is in it."""

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
