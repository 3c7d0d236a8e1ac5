import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

import pytest

from umbilical.tunnel.time_limit import time_limit

SHORT = 0.01
_Ts = TypeVarTuple("_Ts")


async def test_a_wait_past_the_limit_ends_in_a_timeout() -> None:
    with pytest.raises(TimeoutError), time_limit(SHORT):
        await asyncio.Event().wait()
    await asyncio.sleep(0)  # the task itself goes on


async def test_what_ends_in_time_is_not_cancelled_later() -> None:
    for _ in range(3):
        with time_limit(SHORT):
            await asyncio.sleep(0)
    await asyncio.sleep(3 * SHORT)


async def test_no_limit_never_ends_a_wait() -> None:
    with time_limit(None):
        await asyncio.sleep(SHORT)


async def test_limits_of_one_length_expire_one_after_another() -> None:
    expired = []

    async def wait(name: int) -> None:
        try:
            with time_limit(5 * SHORT):
                await asyncio.Event().wait()
        except TimeoutError:
            expired.append(name)

    async with asyncio.TaskGroup() as group:
        for name in range(3):
            group.create_task(wait(name))
            await asyncio.sleep(SHORT)
    assert expired == [0, 1, 2]


async def test_a_cancellation_from_outside_stays_a_cancellation() -> None:
    began = asyncio.Event()

    async def wait() -> None:
        with time_limit(60.0):
            began.set()
            await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(wait())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_inside_is_raised_as_it_is() -> None:
    with pytest.raises(ValueError, match="its own"), time_limit(60.0):
        raise ValueError("its own")


async def test_the_outer_of_two_limits_ends_both_and_is_reported_outside() -> None:
    async def wait() -> str:
        try:
            with time_limit(60.0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "the inner one"
        return "none"

    with pytest.raises(TimeoutError), time_limit(SHORT):
        await wait()


async def test_the_inner_of_two_limits_ends_only_itself() -> None:
    with time_limit(60.0):
        with pytest.raises(TimeoutError), time_limit(SHORT):
            await asyncio.Event().wait()
        await asyncio.sleep(0)


class CountingLoop(asyncio.SelectorEventLoop):
    timers = 0

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(when, callback, *args, context=context)


def test_many_limits_of_one_length_use_one_timer() -> None:
    async def enter() -> None:
        for _ in range(100):
            with time_limit(61.0):
                pass

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(enter())
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)
        assert loop.timers == 1
