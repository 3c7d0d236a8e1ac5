"""One connection to one of several addresses."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest
from tests.proxies.name_testbed import TurnedClock, pipe, until

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.streams import Streams
from umbilical.proxies import happy_eyeballs
from umbilical.proxies.happy_eyeballs import MOST_SPECIFIC_FIRST, Race, interleaved, most_specific, only_ipv4

V4 = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
V6 = ["fd00::1", "fd00::2"]


class Endpoints:
    """Each address opens or fails when the test says so."""

    def __init__(self) -> None:
        self.clock = TurnedClock()
        self.tried: list[str] = []
        self.cut: list[str] = []
        self.lingers: asyncio.Event | None = None
        """A cancelled attempt ends only when this is set."""
        self._said: dict[str, asyncio.Future[Streams]] = {}
        self._opened: list[Streams] = []

    async def attempt(self, address: str) -> Streams:
        self.tried.append(address)
        self._said[address] = asyncio.get_running_loop().create_future()
        try:
            return await self._said[address]
        except asyncio.CancelledError:
            self.cut.append(address)
            if self.lingers is not None:
                await self.lingers.wait()
            raise

    async def reached(self, address: str) -> None:
        await until(lambda: address in self.tried)

    def fail(self, address: str, reason: DialReason = DialReason.REFUSED) -> None:
        self._said[address].set_exception(DialFailed(reason, address, f"told to be {reason.value}"))

    async def open(self, *addresses: str) -> list[tuple[Streams, Streams]]:
        """Complete these attempts at once; return both ends of each connection."""
        pairs = [await pipe() for _ in addresses]
        for address, pair in zip(addresses, pairs, strict=True):
            self._opened += pair
            self._said[address].set_result(pair[0])
        return pairs

    def close(self) -> None:
        for _, writer in self._opened:
            writer.close()

    def race(self, addresses: list[str], **more: float) -> Awaitable[tuple[str, Streams]]:
        return Race(self.attempt, sleep=self.clock.sleep, **more).run(addresses)


@asynccontextmanager
async def open_testbed() -> AsyncIterator[tuple[Endpoints, asyncio.TaskGroup]]:
    async with asyncio.TaskGroup() as group:
        endpoints = Endpoints()
        yield endpoints, group
        endpoints.close()


async def begun(group: asyncio.TaskGroup, work: Awaitable[tuple[str, Streams]]) -> "asyncio.Task[tuple[str, Streams]]":
    async def run() -> tuple[str, Streams]:
        return await work

    return group.create_task(run())


def test_families_take_turns_and_no_address_comes_twice() -> None:
    assert interleaved([*V4, *V6, V4[0]]) == ["fd00::1", "10.0.0.1", "fd00::2", "10.0.0.2", "10.0.0.3"]
    assert interleaved([*V4, *V6], socket.AF_INET)[:3] == ["10.0.0.1", "fd00::1", "10.0.0.2"]
    assert interleaved([]) == []


@pytest.mark.parametrize(
    ("addresses", "kept"),
    [([*V4, *V6], tuple(V4)), (V4, tuple(V4)), (V6, ()), ([], ())],
    ids=["mixed", "only-v4", "only-v6", "none"],
)
def test_ipv4_alone_is_kept(addresses: list[str], kept: tuple[str, ...]) -> None:
    assert only_ipv4(addresses) == kept


async def test_the_next_address_starts_when_its_turn_has_come_and_the_first_to_open_wins() -> None:
    async with open_testbed() as (endpoints, group):
        race = await begun(group, endpoints.race(V4))
        await until(lambda: endpoints.tried == V4[:1] and bool(endpoints.clock.sleepers))
        endpoints.clock.turn(0.24)
        await asyncio.sleep(0)
        assert endpoints.tried == V4[:1]
        endpoints.clock.turn(0.01)
        await until(lambda: endpoints.tried == V4[:2])
        ((ours, _theirs),) = await endpoints.open(V4[1])
        assert await race == (V4[1], ours)
        assert endpoints.cut == [V4[0]]
        assert not endpoints.clock.sleepers


async def test_a_failure_lets_the_next_start_at_once() -> None:
    async with open_testbed() as (endpoints, group):
        race = await begun(group, endpoints.race(V4))
        for address in V4[:2]:
            await endpoints.reached(address)
            endpoints.fail(address)
        await until(lambda: endpoints.tried == V4)
        assert endpoints.clock.seconds == 0
        ((_ours, _theirs),) = await endpoints.open(V4[2])
        assert (await race)[0] == V4[2]


async def test_when_all_fail_the_one_that_came_farthest_is_told() -> None:
    async with open_testbed() as (endpoints, group):

        async def run() -> DialFailed:
            with pytest.raises(DialFailed) as caught:
                await endpoints.race(V4)
            return caught.value

        told = group.create_task(run())
        for address, reason in zip(V4, (DialReason.UNREACHABLE, DialReason.REFUSED, DialReason.TIMEOUT), strict=True):
            await endpoints.reached(address)
            endpoints.fail(address, reason)
        failure = await told
        assert (failure.reason, failure.hop) == (DialReason.REFUSED, V4[1])
        assert failure.text == "told to be refused (and 2 more addresses failed)"


async def test_a_loser_that_opens_in_the_same_moment_is_closed() -> None:
    async with open_testbed() as (endpoints, group):
        race = await begun(group, endpoints.race(V4[:2]))
        await until(lambda: bool(endpoints.clock.sleepers))
        endpoints.clock.turn(0.25)
        await until(lambda: endpoints.tried == V4[:2])
        (ours, theirs), (_, others) = await endpoints.open(V4[0], V4[1])
        _, streams = await race
        loser = others if streams is ours else theirs
        assert await loser[0].read() == b""


async def test_no_more_than_a_few_run_at_once_and_still_all_are_tried() -> None:
    many = [f"10.0.1.{number}" for number in range(12)]

    async with open_testbed() as (endpoints, group):
        race = await begun(group, endpoints.race(many))
        for count in range(1, happy_eyeballs.MOST_AT_ONCE):
            await endpoints.reached(many[count - 1])
            await until(lambda: bool(endpoints.clock.sleepers))
            endpoints.clock.turn(0.25)
        await until(lambda: len(endpoints.tried) == happy_eyeballs.MOST_AT_ONCE)
        assert not endpoints.clock.sleepers
        for address in many[:-1]:
            await endpoints.reached(address)
            endpoints.fail(address)
        await until(lambda: endpoints.tried == many)
        ((_ours, _theirs),) = await endpoints.open(many[-1])
        assert (await race)[0] == many[-1]


async def test_silence_ends_one_attempt_and_then_all() -> None:
    async with open_testbed() as (endpoints, _group):
        with pytest.raises(DialFailed) as caught:
            await endpoints.race(V4[:1], budget_seconds=0.01)
        assert (caught.value.reason, caught.value.hop) == (DialReason.TIMEOUT, V4[0])
        with pytest.raises(DialFailed) as caught:
            await endpoints.race(V4[:2], attempt_seconds=0.01)
        assert caught.value.reason is DialReason.TIMEOUT
        assert "no answer within 0.01 s" in caught.value.text


async def test_who_gives_up_at_the_last_moment_leaves_no_connection_behind() -> None:
    async with open_testbed() as (endpoints, group):
        endpoints.lingers = asyncio.Event()
        race = await begun(group, endpoints.race(V4[:2]))
        await until(lambda: bool(endpoints.clock.sleepers))
        endpoints.clock.turn(0.25)
        await endpoints.reached(V4[1])
        ((_ours, theirs),) = await endpoints.open(V4[1])
        await until(lambda: endpoints.cut == [V4[0]])  # the race is won and waits for the loser
        race.cancel()
        await until(race.done)
        assert await theirs[0].read() == b""
        endpoints.lingers.set()


async def test_who_gives_up_leaves_no_attempt_behind() -> None:
    async with open_testbed() as (endpoints, group):
        race = await begun(group, endpoints.race(V4))
        await until(lambda: endpoints.tried == V4[:1])
        race.cancel()
        await until(race.done)
        assert endpoints.cut == V4[:1]


def test_every_reason_has_its_rank() -> None:
    assert set(MOST_SPECIFIC_FIRST) == set(DialReason)
    assert len(MOST_SPECIFIC_FIRST) == len(DialReason)
    alone = DialFailed(DialReason.SERVER, "s", "t")
    assert most_specific([alone]) is alone
