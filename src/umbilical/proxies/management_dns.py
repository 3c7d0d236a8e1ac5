"""This machine's own resolver, behind a bound: getaddrinfo knows no timeout and holds a thread for each question."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from umbilical.proxies.dns_lookup import LookupFailed, LookupObserver, Result, Way
from umbilical.proxies.dns_sharing import SharedWork
from umbilical.tunnel import outbound

LOOKUP_SECONDS: Final = 15.0
MOST_AT_ONCE: Final = 32
HOP: Final = "this machine's resolver"

SystemResolver = Callable[[str], Awaitable[list[str]]]
"""All addresses of a name. Raises OSError, caused by a gaierror where a resolver spoke."""


async def ask_system(host: str) -> list[str]:
    return [str(address[0]) for _, address in await outbound.look_up(host, 0)]


class ManagementDns:
    def __init__(self, observer: LookupObserver, ask: SystemResolver = ask_system) -> None:
        self._observer: Final = observer
        self._ask: Final = ask
        self._shared: Final = SharedWork[str, tuple[str, ...]]()
        self._slots: Final = asyncio.Semaphore(MOST_AT_ONCE)

    async def resolve(self, host: str) -> tuple[str, ...]:
        """All addresses, at least one; an address is its own. Raises LookupFailed."""
        if outbound.is_literal(host):
            return (host,)
        try:
            addresses = await self._shared.run(host, lambda: self._look_up(host))
        except LookupFailed as failure:
            self._observer.looked_up(Way.MANAGEMENT.value, failure.result.value)
            raise
        self._observer.looked_up(Way.MANAGEMENT.value, Result.OK.value)
        return addresses

    async def close(self) -> None:
        await self._shared.close()

    async def _look_up(self, host: str) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(LOOKUP_SECONDS), self._slots:
                return tuple(dict.fromkeys(await self._ask(host)))
        except TimeoutError:
            raise LookupFailed(Result.TIMEOUT, HOP, f"{host}: no answer within {LOOKUP_SECONDS:g} s") from None
        except OSError as error:
            result = Result.ABSENT if _is_absent(error) else Result.FAILED
            raise LookupFailed(result, HOP, str(error)) from None


def _is_absent(error: OSError) -> bool:
    cause = error.__cause__ or error
    return isinstance(cause, socket.gaierror) and cause.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
