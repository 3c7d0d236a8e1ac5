"""Lookup of the hosted cluster's DNS servers, and connections to them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.proxies.name_testbed import ScriptedServices, TurnedClock, pipe, until

from umbilical.dialer.streams import Streams
from umbilical.fault import StartupError
from umbilical.proxies import dns_client
from umbilical.proxies.dns_client import ConnectionLost, DnsConnection
from umbilical.proxies.hosted_dns import DnsAddress, DnsServers, parse_servers, parse_service
from umbilical.proxies.lookup import LookupFailed, LookupResult
from umbilical.proxies.services import ServiceName

DNS = ServiceName("openshift-dns", "dns-default")


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("172.30.0.10", ("172.30.0.10", 53)),
        ("172.30.0.10:5353", ("172.30.0.10", 5353)),
        ("fd02::a", ("fd02::a", 53)),
        ("[fd02::a]", ("fd02::a", 53)),
        ("[fd02::a]:5353", ("fd02::a", 5353)),
    ],
)
def test_a_server_is_an_address_with_or_without_a_port(text: str, server: DnsAddress) -> None:
    assert parse_servers((text,)) == (server,)


@pytest.mark.parametrize(
    "text",
    ["", "dns.example", "172.30.0.10:", "172.30.0.10:0", "172.30.0.10:65536", "[fd02::a", "[x]:53", "172.30.0.10:dns"],
)
def test_what_is_no_address_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(StartupError) as caught:
        parse_servers((text,))
    assert caught.value.code == "UMB534"
    assert repr(text) in caught.value.what


def test_a_service_is_a_namespace_and_a_name() -> None:
    assert parse_service("openshift-dns/dns-default") == DNS
    for text in ("dns-default", "/dns-default", "openshift-dns/", "a/b/c", ""):
        with pytest.raises(StartupError) as caught:
            parse_service(text)
        assert caught.value.code == "UMB535"


async def test_the_service_is_asked_for_once_while_its_servers_answer() -> None:
    api, clock, servers = found_by("172.30.0.10", "fd02::a")
    for _ in range(3):
        assert await servers.current() == (("172.30.0.10", 53), ("fd02::a", 53))
        clock.turn(1000)
    assert api.asked == [DNS]


async def test_after_a_failure_it_is_asked_for_again_but_not_all_the_time() -> None:
    api, clock, servers = found_by("172.30.0.10")
    await servers.current()
    api.services[DNS] = ("172.30.0.99",)
    servers.invalidate()
    assert await servers.current() == (("172.30.0.10", 53),), "it was asked for a moment ago"
    clock.turn(1)
    assert await servers.current() == (("172.30.0.99", 53),)
    assert len(api.asked) == 2


async def test_an_api_that_goes_leaves_what_was_found_in_use() -> None:
    api, clock, servers = found_by("172.30.0.10")
    await servers.current()
    api.is_down = True
    servers.invalidate()
    clock.turn(1)
    assert await servers.current() == (("172.30.0.10", 53),)


async def test_an_api_that_is_not_there_yet_is_waited_for_and_named() -> None:
    api, clock, servers = found_by("172.30.0.10")
    api.is_down = True
    for _ in range(3):
        with pytest.raises(LookupFailed) as caught:
            await servers.current()
        assert caught.value.result is LookupResult.FAILED
        assert caught.value.hop == "Service openshift-dns/dns-default"
        assert "UMB603" in caught.value.text
    assert len(api.asked) == 1
    api.is_down = False
    clock.turn(1)
    assert await servers.current() == (("172.30.0.10", 53),)


@pytest.mark.parametrize(("addresses", "words"), [(None, "the Service does not exist"), ((), "no ClusterIP")])
async def test_a_service_that_cannot_be_asked_is_told(addresses: tuple[str, ...] | None, words: str) -> None:
    servers = DnsServers((), DNS, ScriptedServices({} if addresses is None else {DNS: addresses}), TurnedClock().now)
    with pytest.raises(LookupFailed, match=words):
        await servers.current()


async def test_without_a_kubeconfig_that_is_the_reason() -> None:
    with pytest.raises(LookupFailed, match="no kubeconfig"):
        await DnsServers((), DNS, None, TurnedClock().now).current()


class FarEnd:
    """A scripted DNS server."""

    def __init__(self, streams: Streams) -> None:
        self.reader, self.writer = streams

    async def question(self) -> tuple[int, bytes]:
        size = int.from_bytes(await self.reader.readexactly(2))
        message = await self.reader.readexactly(size)
        return int.from_bytes(message[:2]), message[2:]

    def answer(self, number: int, content: bytes) -> None:
        message = number.to_bytes(2) + content
        self.writer.write(len(message).to_bytes(2) + message)


def asking(content: bytes) -> Callable[[int], bytes]:
    return lambda number: number.to_bytes(2) + content


def found_by(*addresses: str) -> tuple[ScriptedServices, TurnedClock, DnsServers]:
    """Servers whose Service has these addresses."""
    api, clock = ScriptedServices({DNS: addresses}), TurnedClock()
    return api, clock, DnsServers((), DNS, api, clock.now)


@asynccontextmanager
async def open_testbed() -> AsyncIterator[tuple[DnsConnection, FarEnd, asyncio.TaskGroup]]:
    ours, theirs = await pipe()
    connection = DnsConnection(ours)
    async with asyncio.TaskGroup() as group:
        yield connection, FarEnd(theirs), group
    await connection.close()
    theirs[1].close()


async def test_answers_find_their_questions_in_any_order() -> None:
    async with open_testbed() as (connection, server, group):
        asked = [group.create_task(connection.ask(asking(bytes([index])))) for index in range(20)]
        questions = [await server.question() for _ in asked]
        assert len({number for number, _ in questions}) == 20
        for number, content in reversed(questions):
            server.answer(number, b"to " + content)
        for index, task in enumerate(asked):
            assert (await task)[2:] == b"to " + bytes([index])


async def test_an_answer_may_come_byte_by_byte() -> None:
    async with open_testbed() as (connection, server, group):
        task = group.create_task(connection.ask(asking(b"?")))
        number, _ = await server.question()
        message = number.to_bytes(2) + b"slowly"
        for octet in len(message).to_bytes(2) + message:
            server.writer.write(bytes([octet]))
            await server.writer.drain()
        assert (await task)[2:] == b"slowly"


async def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    async with open_testbed() as (connection, server, group):
        late = group.create_task(connection.ask(asking(b"late")))
        number, _ = await server.question()
        late.cancel()
        await until(late.done)
        task = group.create_task(connection.ask(asking(b"?")))
        other, _ = await server.question()
        server.answer(number, b"too late")
        server.writer.write(b"\0\0" + b"\0\1x")  # neither has room for an id
        server.answer(other, b"!")
        assert (await task)[2:] == b"!"
        assert connection.is_usable


async def test_all_who_wait_hear_of_the_end() -> None:
    async with open_testbed() as (connection, server, group):

        async def ask() -> None:
            with pytest.raises(ConnectionLost, match="closed the connection"):
                await connection.ask(asking(b"?"))

        asked = [group.create_task(ask()) for _ in range(3)]
        for _ in asked:
            await server.question()
        server.writer.close()
        await asyncio.wait(asked)
        assert not connection.is_usable
        with pytest.raises(ConnectionLost):
            await connection.ask(asking(b"?"))


async def test_a_retired_connection_serves_who_waits_and_then_ends() -> None:
    async with open_testbed() as (connection, server, group):
        task = group.create_task(connection.ask(asking(b"?")))
        number, _ = await server.question()
        connection.retire()
        assert not connection.is_usable
        server.answer(number, b"!")
        assert (await task)[2:] == b"!"
        assert await server.reader.read() == b""


async def test_without_anybody_waiting_it_ends_as_it_is_retired() -> None:
    async with open_testbed() as (connection, server, _group):
        connection.retire()
        assert await server.reader.read() == b""


async def test_a_server_that_takes_nothing_gets_no_more_questions() -> None:
    async with open_testbed() as (connection, server, group):

        async def ask() -> None:
            with pytest.raises(ConnectionLost):
                await connection.ask(asking(b"x" * 60000))

        server.writer.transport.pause_reading()  # type: ignore[attr-defined]
        refused: list[str] = []
        while not refused:
            group.create_task(ask())
            await asyncio.sleep(0)
            try:
                async with asyncio.timeout(0):
                    await connection.ask(asking(b"x" * 60000))
            except TimeoutError:
                pass
            except ConnectionLost as error:
                refused.append(str(error))
        assert refused == ["the server does not read"]
        await connection.close()


async def test_no_more_questions_than_there_are_numbers_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_client, "MOST_QUERIES", 2)

    async with open_testbed() as (connection, server, group):
        asked = [group.create_task(connection.ask(asking(b"?"))) for _ in range(2)]
        numbers = [(await server.question())[0] for _ in asked]
        with pytest.raises(ConnectionLost, match="too many queries"):
            await connection.ask(asking(b"?"))
        for number in numbers:
            server.answer(number, b"!")
        await asyncio.wait(asked)


async def test_one_that_broke_is_not_asked_again_before_its_reader_has_had_a_turn() -> None:
    async with open_testbed() as (connection, _server, _group):
        connection._writer.transport.abort()
        assert not connection.is_usable


async def test_one_that_nobody_asks_on_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_client, "IDLE_SECONDS", 0.01)

    async with open_testbed() as (connection, server, group):
        asked = group.create_task(connection.ask(asking(b"q")))
        number, _ = await server.question()
        assert connection.is_usable
        server.answer(number, b"a")
        await asked
        assert await server.reader.read() == b""
        assert not connection.is_usable


async def test_a_question_in_time_keeps_it() -> None:
    async with open_testbed() as (connection, server, group):
        for _ in range(2):
            asked = group.create_task(connection.ask(asking(b"q")))
            number, _ = await server.question()
            assert connection._idle is None
            server.answer(number, b"a")
            await asked
            assert connection._idle is not None


async def test_a_connection_that_nobody_ever_asks_on_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lookup that opened it may have been cancelled."""
    monkeypatch.setattr(dns_client, "IDLE_SECONDS", 0.01)

    async with open_testbed() as (connection, server, _group):
        assert await server.reader.read() == b""
        await until(lambda: not connection.is_usable)
