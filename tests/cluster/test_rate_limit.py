"""The token bucket, on a clock of our own."""

import asyncio

from tests.support.manual_clock import ManualClock
from tests.support.scripted_api import run_async

from umbilical.cluster.rate_limit import RateLimit


async def _acquire(limit: RateLimit, times: int) -> None:
    for _ in range(times):
        await limit.acquire()


def test_a_burst_passes_at_once_and_then_the_rate_holds() -> None:
    time = ManualClock()
    limit = RateLimit(2.0, 3, time.clock())
    run_async(_acquire(limit, 5))
    assert time.sleeps == [0.5, 0.5]


def test_zero_means_what_it_means_in_client_go() -> None:
    time = ManualClock()
    limit = RateLimit(0, 0, time.clock())
    run_async(_acquire(limit, 11))
    assert time.sleeps == [0.2]


def test_a_negative_rate_is_no_limit() -> None:
    time = ManualClock()
    run_async(_acquire(RateLimit(-1, 1, time.clock()), 100))
    assert time.sleeps == []


def test_a_rest_fills_the_bucket_but_never_past_the_burst() -> None:
    time = ManualClock()
    limit = RateLimit(1.0, 2, time.clock())
    run_async(_acquire(limit, 2))
    time.seconds += 100
    run_async(_acquire(limit, 3))
    assert time.sleeps == [1.0]


def test_those_who_wait_are_served_in_order() -> None:
    served: list[int] = []

    async def scenario() -> None:
        limit = RateLimit(1.0, 1, ManualClock().clock())

        async def one(number: int) -> None:
            await limit.acquire()
            served.append(number)

        async with asyncio.TaskGroup() as tasks:
            for number in range(5):
                tasks.create_task(one(number))

    run_async(scenario())
    assert served == [0, 1, 2, 3, 4]
