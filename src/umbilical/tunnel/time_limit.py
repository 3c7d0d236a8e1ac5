"""`asyncio.timeout` for code that runs for every connection: all limits of the same length share one timer.

A timer of its own for each of the waits of a request, nearly all of which are cancelled, was a tenth of a proxy's CPU.
"""

import asyncio
from types import TracebackType
from typing import Any, Final

_KEPT_AS: Final = "_umbilical_time_limits"


class time_limit:
    """`with time_limit(seconds):` cancels what its task awaits inside after this time, and raises TimeoutError.

    None: no limit.
    """

    __slots__ = ("_cancelling", "_expired", "_limits", "_seconds", "_task")

    def __init__(self, seconds: float | None) -> None:
        self._seconds: Final = seconds

    def __enter__(self) -> None:
        seconds = self._seconds
        if seconds is None:
            return
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._cancelling = task.cancelling()
        self._expired = False
        loop = task.get_loop()
        self._limits = _limits_of(loop, seconds)
        self._limits.add(self, loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._seconds is None:
            return
        if not self._expired:
            self._limits.discard(self)
        elif self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        self._expired = True
        self._task.cancel()


class _Limits:
    """All limits of one length, the oldest first."""

    def __init__(self, seconds: float) -> None:
        self._seconds: Final = seconds
        self._due: Final[dict[time_limit, float]] = {}
        self._armed = False

    def add(self, limit: time_limit, loop: asyncio.AbstractEventLoop) -> None:
        due = self._due[limit] = loop.time() + self._seconds
        if not self._armed:
            self._armed = True
            loop.call_at(due, self._fire, loop)

    def discard(self, limit: time_limit) -> None:
        del self._due[limit]

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        while self._due:
            limit, due = next(iter(self._due.items()))
            if due > now:
                loop.call_at(due, self._fire, loop)
                return
            del self._due[limit]
            limit.expire()
        self._armed = False


def _limits_of(loop: asyncio.AbstractEventLoop, seconds: float) -> _Limits:
    """Kept in the loop itself, so that they end with it."""
    lengths: dict[float, _Limits] | None = getattr(loop, _KEPT_AS, None)
    if lengths is None:
        lengths = {}
        setattr(loop, _KEPT_AS, lengths)
    found = lengths.get(seconds)
    if found is None:
        found = lengths[seconds] = _Limits(seconds)
    return found
