"""What all name lookups share: results, a cache, shared requests; and this machine's own resolver.

That resolver is limited: getaddrinfo has no timeout and holds a thread for each query.
"""

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeVar

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.tunnel import outbound
from umbilical.tunnel.daemon import own_task


class LookupSource(Enum):
    """Where a name was looked up; values of the metric label `way`."""

    HOSTED = "guest"
    SERVICE = "service"
    MANAGEMENT = "management"


class LookupResult(Enum):
    """The result of a lookup; values of the metric label `result`."""

    OK = "ok"
    ABSENT = "nxdomain"
    """The name does not exist, or has no address."""
    TIMEOUT = "timeout"
    FAILED = "failed"
    CACHED = "cached"


class LookupFailed(DialFailed):
    """A name was not resolved to an address."""

    def __init__(self, result: LookupResult, hop: str, text: str) -> None:
        super().__init__(DialReason.NAME, hop, text)
        self.result: Final = result

    @property
    def is_answer(self) -> bool:
        """Whether the resolver answered, which proves that it is reachable."""
        return self.result is LookupResult.ABSENT


class LookupObserver(Protocol):
    def looked_up(self, source: str, result: str) -> None: ...


MOST_ENTRIES: Final = 4096
"""A few hundred bytes each. A limit against clients, which choose the names."""

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Cache(Generic[Key, Value]):
    def __init__(self, now: Callable[[], float], most_entries: int = MOST_ENTRIES) -> None:
        self._now: Final = now
        self._most: Final = most_entries
        self._entries: Final[OrderedDict[Key, tuple[float, Value]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Value | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        expires, value = entry
        if expires <= self._now():
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: Key, value: Value, seconds: float) -> None:
        if seconds <= 0:
            return
        self._entries[key] = (self._now() + seconds, value)
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def forget(self, key: Key) -> None:
        self._entries.pop(key, None)


class SharedWork(Generic[Key, Value]):
    """Runs one task per key for all waiters. A cancelled waiter does not cancel it; the task limits its own time."""

    def __init__(self) -> None:
        self._running: Final[dict[Key, asyncio.Task[Value]]] = {}

    async def run(self, key: Key, work: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = own_task(work())
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _forget(self, key: Key, task: "asyncio.Task[Value]") -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # retrieved: all waiters may have been cancelled


LOOKUP_SECONDS: Final = 15.0
MOST_AT_ONCE: Final = 32
HOP: Final = "this machine's resolver"

SystemResolver = Callable[[str], Awaitable[list[str]]]
"""Returns all addresses of a name. Raises OSError, caused by a gaierror if a resolver answered."""


async def ask_system(host: str) -> list[str]:
    return [str(address[0]) for _, address in await outbound.look_up(host, 0)]


class ManagementDns:
    def __init__(self, observer: LookupObserver, ask: SystemResolver = ask_system) -> None:
        self._observer: Final = observer
        self._ask: Final = ask
        self._shared: Final = SharedWork[str, tuple[str, ...]]()
        self._slots: Final = asyncio.Semaphore(MOST_AT_ONCE)

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Return all addresses, at least one; a literal address is returned as is. Raises LookupFailed."""
        if outbound.is_literal(host):
            return (host,)
        try:
            addresses = await self._shared.run(host, lambda: self._look_up(host))
        except LookupFailed as failure:
            self._observer.looked_up(LookupSource.MANAGEMENT.value, failure.result.value)
            raise
        self._observer.looked_up(LookupSource.MANAGEMENT.value, LookupResult.OK.value)
        return addresses

    async def close(self) -> None:
        await self._shared.close()

    async def _look_up(self, host: str) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(LOOKUP_SECONDS), self._slots:
                return tuple(dict.fromkeys(await self._ask(host)))
        except TimeoutError:
            raise LookupFailed(LookupResult.TIMEOUT, HOP, f"{host}: no answer within {LOOKUP_SECONDS:g} s") from None
        except OSError as error:
            result = LookupResult.ABSENT if _is_absent(error) else LookupResult.FAILED
            raise LookupFailed(result, HOP, str(error)) from None


def _is_absent(error: OSError) -> bool:
    cause = error.__cause__ or error
    return isinstance(cause, socket.gaierror) and cause.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
