"""Work that many wait for and that is done once: two thousand connections to one name ask one question."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, Generic, TypeVar

from umbilical.tunnel.daemon import own_task

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SharedWork(Generic[Key, Value]):
    """Owns what runs; a waiter that is cancelled leaves it to the others. The work bounds its own time."""

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
            task.exception()  # taken note of: all who waited may have gone
