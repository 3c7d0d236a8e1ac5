"""Whether the tunnel as a whole works. One failed dial raises the question, and a dial of our own answers it.

    healthy --a dial fails by the tunnel's fault--> doubtful --the probe succeeds--> healthy
                                                    doubtful --the probe fails-----> broken, probed until it works

Names play no part in it: NXDOMAIN that came through the tunnel proves that it works.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from umbilical.dialer.failure import DialFailed, Reason
from umbilical.dialer.opener import Opener, Streams
from umbilical.konnectivity.dial_failure import PROBE_HOST, PROBE_PORT
from umbilical.tunnel.daemon import end_task, own_task

log: Final = logging.getLogger(__name__)

FAULTS_OF_THE_TUNNEL: Final = frozenset({Reason.SERVER, Reason.TLS, Reason.NO_AGENT, Reason.AGENT_LOST})
NO_PROOF: Final = FAULTS_OF_THE_TUNNEL | {Reason.TIMEOUT, Reason.PROTOCOL}
"""Any other failure is an agent's or a server's word on an endpoint, and proves that words come through."""

PROBE_SECONDS: Final = 10.0
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
"""As often as HyperShift's proxies try again."""

Sleep = Callable[[float], Awaitable[None]]


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
            log.info("the tunnel works again")
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
        failure = await self._probe_failure()
        if failure is None:
            self.works()
            return True
        if self._broken_by is None:
            log.warning("the tunnel does not work: %s", failure)
        self._broken_by = failure
        return False

    async def _probe_failure(self) -> DialFailed | None:
        try:
            async with asyncio.timeout(self._probe_seconds):
                _, writer = await self._tunnel.open(PROBE_HOST, PROBE_PORT)
                writer.transport.abort()
        except TimeoutError:
            return DialFailed(Reason.SERVER, "the tunnel", f"a probe got no answer within {self._probe_seconds:g} s")
        except DialFailed as failure:
            return failure if failure.reason in NO_PROOF else None
        return None


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
