"""A client's connection: push-back, and a timeout for every wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.proxies.name_testbed import pipe
from tests.support.http_testbed import Peer, answering, origin

from umbilical.proxies import http_client
from umbilical.proxies.http_client import ProxyClient
from umbilical.proxies.http_head import BadRequest, HeadLimits
from umbilical.proxies.relay import unsent
from umbilical.tunnel.daemon import own_task

MIB = 1024 * 1024
GET = b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"


@asynccontextmanager
async def ends(idle_seconds: float = 0) -> AsyncIterator[tuple[ProxyClient, Peer, Peer]]:
    """The proxy's client connection, and both ends of it as Peers."""
    ours, theirs = map(Peer, await pipe())
    yield ProxyClient((ours.reader, ours.writer), idle_seconds), ours, theirs
    ours.close()
    theirs.close()


async def test_what_was_given_back_is_read_first() -> None:
    async with ends() as (client, _, far):
        await far.send(b"def")
        assert await client.receive() == b"def"
        client.unread(b"c")
        client.unread(b"ab")
        assert await client.receive() == b"abc"
        assert client.take_rest() == b""
        far.end()
        assert await client.receive() == b""


async def test_no_first_byte_is_no_request_and_half_a_head_is_a_bad_one() -> None:
    async with ends() as (client, _, _):
        assert await client.read_head(HeadLimits(), 0.01, 60) is None
        client.unread(b"GET")
        with pytest.raises(BadRequest) as refusal:
            await client.read_head(HeadLimits(), 60, 0.01)
        assert refusal.value.status == 408


async def test_a_client_that_takes_nothing_is_given_up() -> None:
    async with ends(idle_seconds=0.05) as (client, _, far):
        far.reader._transport.pause_reading()  # type: ignore[attr-defined]
        with pytest.raises(TimeoutError):
            await client.write([b"x" * 30_000_000])
        client.abort()


async def test_an_answer_survives_what_the_client_still_sends() -> None:
    async with ends() as (client, _, far):
        await client.write([b"no"])
        lingering = own_task(client.linger())
        await far.send(b"x" * 500_000)
        assert await far.exactly(2) == b"no"
        far.end()
        await lingering


async def test_a_client_that_is_gone_cannot_be_written_to() -> None:
    async with ends() as (client, _, far):
        client.close()
        with pytest.raises(ConnectionResetError):
            await client.write([b"x"])
        assert await far.rest() == b""


async def test_what_comes_while_a_client_is_watched_is_kept_and_a_reset_is_noticed() -> None:
    async with origin(answering()) as place:
        client = ProxyClient(await asyncio.open_connection("127.0.0.1", place.port), 0)
        watching = own_task(client.until_gone())
        await place.visited()
        (far,) = place.peers
        async with asyncio.timeout(60):
            await far.send(b"abc")
            while not (kept := client.take_rest()):
                await asyncio.sleep(0.01)
            client.unread(kept)
            far.break_off()
            await watching
        assert client.take_rest() == b"abc"
        client.close()


async def test_the_last_bytes_of_an_answer_wait_for_a_client_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "LINGER_SECONDS", 0.01)

    async with ends() as (client, ours, far):
        ours.writer.transport.set_write_buffer_limits(64 * MIB)
        await client.write([bytes(8 * MIB)])
        assert unsent(ours.writer), "the kernel must not have taken all of it"

        async def read_late() -> bytes:
            while not ours.writer.transport.is_closing():
                await asyncio.sleep(0.001)
            return await far.rest()

        reading = own_task(read_late())
        await client.linger()
        assert not unsent(ours.writer)
        assert len(await reading) == 8 * MIB


async def test_a_client_that_ended_its_side_is_there_while_it_takes_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "HALF_CLOSED_SECONDS", 0)

    async with ends() as (client, ours, far):
        far.end()
        while not ours.reader.at_eof():
            await asyncio.sleep(0)
        watching = own_task(client.until_gone())
        for _ in range(20):  # one per turn of the loop
            await client.write([b"x"])
            await asyncio.sleep(0)
            assert not watching.done()
        await watching


async def test_a_client_is_idle_until_the_first_byte_of_its_next_request() -> None:
    async with ends() as (client, ours, far):

        def idle() -> bool:
            return client.is_idle

        assert not idle()
        reading = own_task(client.read_head(HeadLimits(), 60, 60))
        await asyncio.sleep(0)
        assert idle()
        ours.reader.feed_data(GET[:5])
        assert not idle(), "nobody has looked yet, but it is there"
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not idle()
        await far.send(GET[5:])
        assert await reading is not None
        assert not idle()
