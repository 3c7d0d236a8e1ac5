"""One connection to one of several addresses: all are tried, families in turn, and the first that opens wins.

As in RFC 8305, with an additional timeout for each address.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.streams import Streams
from umbilical.tunnel.daemon import own_task
from umbilical.tunnel.time_limit import time_limit

STAGGER_SECONDS: Final = 0.25
"""RFC 8305 section 8: "Connection Attempt Delay"."""
ATTEMPT_SECONDS: Final = 10.0
"""Timeout for one address of several; an agent's own dial timeout is 5 s."""
BUDGET_SECONDS: Final = 60.0
"""Timeout for all of them together."""
MOST_AT_ONCE: Final = 6
"""Limit for names with many addresses."""

MOST_SPECIFIC_FIRST: Final = (
    DialReason.FORBIDDEN,
    DialReason.REFUSED,
    DialReason.PROXY,
    DialReason.TIMEOUT,
    DialReason.UNREACHABLE,
    DialReason.NAME,
    DialReason.PROTOCOL,
    DialReason.AGENT_LOST,
    DialReason.NO_AGENT,
    DialReason.TLS,
    DialReason.SERVER,
)
"""Ordered by how far the dial got."""

Sleep = Callable[[float], Awaitable[None]]
Attempt = Callable[[str], Awaitable[Streams]]


def family_of(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def only_ipv4(addresses: Sequence[str]) -> tuple[str, ...]:
    return tuple(address for address in addresses if family_of(address) == socket.AF_INET)


def interleaved(addresses: Sequence[str], first_family: int = socket.AF_INET6) -> list[str]:
    """Alternate the families, each in its own order, without duplicates."""
    wanted = deque(dict.fromkeys(a for a in addresses if family_of(a) == first_family))
    others = deque(dict.fromkeys(a for a in addresses if family_of(a) != first_family))
    ordered: list[str] = []
    while wanted or others:
        ordered += [queue.popleft() for queue in (wanted, others) if queue]
    return ordered


def most_specific(failures: Iterable[DialFailed]) -> DialFailed:
    """Return the failure of the dial that got farthest, with the number of others."""
    ranked = sorted(failures, key=lambda failure: MOST_SPECIFIC_FIRST.index(failure.reason))
    best = ranked[0]
    if len(ranked) == 1:
        return best
    others = f"{best.text} (and {len(ranked) - 1} more addresses failed)"
    return DialFailed(best.reason, best.hop, others)


class Race:
    """One dial to several addresses."""

    def __init__(
        self,
        attempt: Attempt,
        *,
        sleep: Sleep = asyncio.sleep,
        stagger_seconds: float = STAGGER_SECONDS,
        attempt_seconds: float = ATTEMPT_SECONDS,
        budget_seconds: float = BUDGET_SECONDS,
    ) -> None:
        self._attempt: Final = attempt
        self._sleep: Final = sleep
        self._stagger_seconds: Final = stagger_seconds
        self._attempt_seconds: Final = attempt_seconds
        self._budget_seconds: Final = budget_seconds
        self._running: dict[asyncio.Task[Streams], str] = {}
        self._failures: list[DialFailed] = []

    async def run(self, addresses: Sequence[str]) -> tuple[str, Streams]:
        """Return the first address that opened, and its connection. Raises the most specific DialFailed."""
        try:
            with time_limit(self._budget_seconds):
                if len(addresses) == 1:
                    return addresses[0], await self._attempt(addresses[0])
                return await self._race(deque(addresses))
        except TimeoutError:
            hop = ", ".join(addresses[:3])
            late = DialFailed(DialReason.TIMEOUT, hop, f"no answer within {self._budget_seconds:g} s")
            raise most_specific([*self._failures, late]) from None

    async def _race(self, waiting: deque[str]) -> tuple[str, Streams]:
        winner: asyncio.Task[Streams] | None = None
        try:
            while winner is None and (waiting or self._running):
                if waiting:
                    address = waiting.popleft()
                    self._running[own_task(self._bounded(address))] = address
                winner = await self._next_end(may_start=bool(waiting) and len(self._running) < MOST_AT_ONCE)
        finally:
            await self._end_losers(winner)
        if winner is None:
            raise most_specific(self._failures)
        return self._running[winner], winner.result()

    async def _next_end(self, *, may_start: bool) -> "asyncio.Task[Streams] | None":
        """Wait until one ends or the next may start; return the winner, if there is one."""
        turn = own_task(self._pause()) if may_start else None
        waited: set[asyncio.Task[Streams] | asyncio.Task[None]] = {*self._running, *([turn] if turn else [])}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if turn is not None:
                turn.cancel()
                await asyncio.wait({turn})
        return self._sort_out()

    async def _pause(self) -> None:
        await self._sleep(self._stagger_seconds)

    def _sort_out(self) -> "asyncio.Task[Streams] | None":
        for task in [task for task in self._running if task.done()]:
            failure = task.exception()
            if failure is None:
                return task
            if not isinstance(failure, DialFailed):
                raise failure
            del self._running[task]
            self._failures.append(failure)
        return None

    async def _bounded(self, address: str) -> Streams:
        try:
            async with asyncio.timeout(self._attempt_seconds):
                return await self._attempt(address)
        except TimeoutError:
            raise DialFailed(DialReason.TIMEOUT, address, f"no answer within {self._attempt_seconds:g} s") from None

    async def _end_losers(self, winner: "asyncio.Task[Streams] | None") -> None:
        losers = [task for task in self._running if task is not winner]
        for task in losers:
            task.cancel()
        try:
            if losers:
                await asyncio.wait(losers)
        except asyncio.CancelledError:
            losers = list(self._running)  # cancelled: the winner is not used either
            raise
        finally:
            for task in losers:
                if task.done() and not task.cancelled() and task.exception() is None:
                    task.result()[1].transport.abort()
