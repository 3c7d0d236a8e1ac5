"""This machine's resolver, behind bounds."""

import asyncio
import socket

import pytest
from tests.proxies.name_scenes import Counts, play, until

from umbilical.dialer.failure import Reason
from umbilical.proxies import management_dns
from umbilical.proxies.dns_lookup import LookupFailed, Result
from umbilical.proxies.management_dns import ManagementDns, ask_system


def caused(number: int) -> OSError:
    """As `look_up` raises it."""
    error = OSError("lookup name: told so")
    error.__cause__ = socket.gaierror(number, "told so")
    return error


class Machine:
    def __init__(self, answer: list[str] | OSError) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.hold: asyncio.Event | None = None

    async def ask(self, host: str) -> list[str]:
        self.asked.append(host)
        if self.hold is not None:
            await self.hold.wait()
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer


def test_all_addresses_come_and_none_twice() -> None:
    async def scenario() -> None:
        machine, counts = Machine(["10.0.0.1", "fd00::1", "10.0.0.1"]), Counts()
        names = ManagementDns(counts, machine.ask)
        assert await names.resolve("idp.corp.example") == ("10.0.0.1", "fd00::1")
        assert counts.lookups == [("management", "ok")]
        await names.close()

    play(scenario())


@pytest.mark.parametrize("host", ["10.0.0.7", "fd00::7", "::1"])
def test_an_address_is_never_asked_for(host: str) -> None:
    async def scenario() -> None:
        machine, counts = Machine([]), Counts()
        assert await ManagementDns(counts, machine.ask).resolve(host) == (host,)
        assert machine.asked == []
        assert counts.lookups == []

    play(scenario())


@pytest.mark.parametrize(
    ("number", "result"),
    [
        (socket.EAI_NONAME, Result.ABSENT),
        (socket.EAI_NODATA, Result.ABSENT),
        (socket.EAI_AGAIN, Result.FAILED),
        (socket.EAI_FAIL, Result.FAILED),
    ],
)
def test_absence_is_told_from_failure(number: int, result: Result) -> None:
    async def scenario() -> None:
        counts = Counts()
        with pytest.raises(LookupFailed) as caught:
            await ManagementDns(counts, Machine(caused(number)).ask).resolve("name")
        assert (caught.value.reason, caught.value.result) == (Reason.NAME, result)
        assert counts.lookups == [("management", result.value)]

    play(scenario())


def test_a_resolver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management_dns, "LOOKUP_SECONDS", 0.01)

    async def scenario() -> None:
        machine = Machine([])
        machine.hold = asyncio.Event()
        with pytest.raises(LookupFailed) as caught:
            await ManagementDns(Counts(), machine.ask).resolve("name")
        assert caught.value.result is Result.TIMEOUT

    play(scenario())


def test_one_name_is_one_question_and_many_names_are_no_more_than_there_are_threads_for() -> None:
    async def scenario() -> None:
        machine = Machine(["10.0.0.1"])
        machine.hold = asyncio.Event()
        names = ManagementDns(Counts(), machine.ask)
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(names.resolve(f"name-{number}"))
                group.create_task(names.resolve(f"name-{number}"))
            await until(lambda: len(machine.asked) == management_dns.MOST_AT_ONCE)
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(machine.asked) == management_dns.MOST_AT_ONCE
            machine.hold.set()
        assert len(machine.asked) == 100

    play(scenario())


def test_the_machines_own_resolver_knows_this_machine() -> None:
    async def scenario() -> None:
        assert set(await ask_system("localhost")) & {"127.0.0.1", "::1"}

    play(scenario())
