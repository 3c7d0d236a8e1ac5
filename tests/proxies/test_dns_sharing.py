"""Work that many wait for is done once, and outlives those who give up."""

import asyncio

import pytest
from tests.proxies.name_scenes import play, until

from umbilical.proxies.dns_sharing import SharedWork


class Work:
    def __init__(self) -> None:
        self.runs = 0
        self.may_end = asyncio.Event()
        self.cancelled = False

    async def __call__(self) -> int:
        self.runs += 1
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return self.runs


def test_two_thousand_waiters_cost_one_run() -> None:
    async def scenario() -> None:
        shared, work = SharedWork[str, int](), Work()
        async with asyncio.TaskGroup() as group:
            waiters = [group.create_task(shared.run("name", work)) for _ in range(2000)]
            await until(lambda: work.runs == 1)
            work.may_end.set()
        assert {waiter.result() for waiter in waiters} == {1}
        assert await shared.run("name", work) == 2, "what is over is done anew"

    play(scenario())


def test_keys_do_not_wait_for_each_other() -> None:
    async def scenario() -> None:
        shared, slow, quick = SharedWork[str, int](), Work(), Work()
        quick.may_end.set()
        async with asyncio.TaskGroup() as group:
            waiter = group.create_task(shared.run("slow", slow))
            assert await shared.run("quick", quick) == 1
            assert not waiter.done()
            slow.may_end.set()

    play(scenario())


def test_a_waiter_that_gives_up_leaves_the_work_to_the_others() -> None:
    async def scenario() -> None:
        shared, work = SharedWork[str, int](), Work()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(shared.run("name", work))
            second = group.create_task(shared.run("name", work))
            await until(lambda: work.runs == 1)
            first.cancel()
            await until(first.done)
            work.may_end.set()
        assert second.result() == 1

    play(scenario())


def test_a_failure_reaches_all_who_wait_and_is_no_noise_when_nobody_does() -> None:
    async def fail() -> int:
        await asyncio.sleep(0)
        raise ValueError("told so")

    async def scenario() -> None:
        shared = SharedWork[str, int]()
        with pytest.raises(ValueError, match="told so"):
            await shared.run("name", fail)
        async with asyncio.TaskGroup() as group:
            waiter = group.create_task(shared.run("name", fail))
            await asyncio.sleep(0)
            waiter.cancel()
        await shared.close()

    play(scenario())


def test_the_end_takes_all_work_with_it() -> None:
    async def scenario() -> None:
        shared, work = SharedWork[str, int](), Work()

        async def wait() -> None:
            with pytest.raises(asyncio.CancelledError):
                await shared.run("name", work)

        async with asyncio.TaskGroup() as group:
            group.create_task(wait())
            await until(lambda: work.runs == 1)
            await shared.close()
        assert work.cancelled

    play(scenario())
