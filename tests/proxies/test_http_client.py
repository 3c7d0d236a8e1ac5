"""The client's end: what is read can be given back, and no wait is without a limit."""

import asyncio
import socket
import struct

import pytest
from tests.proxies.name_scenes import pipe
from tests.support.coroutines import play
from tests.support.http_scene import Peer, origin

from umbilical.proxies import http_client
from umbilical.proxies.http_client import Client
from umbilical.proxies.http_head import BadRequest, HeadLimits
from umbilical.proxies.relay import unsent
from umbilical.tunnel.daemon import own_task

MIB = 1024 * 1024
GET = b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"


async def client_of(peer: Peer, idle_seconds: float = 0) -> Client:
    return Client((peer.reader, peer.writer), idle_seconds)


def play_between(serve: object, ask: object) -> None:
    """`serve` has the proxy's end as a Peer, `ask` the client's."""

    async def script() -> None:
        async with origin(serve) as place:  # type: ignore[arg-type]
            peer = Peer(await asyncio.open_connection("127.0.0.1", place.port))
            await ask(peer)  # type: ignore[operator]
            await place.ended(1)
            peer.close()

    play(script())


def test_what_was_given_back_is_read_first() -> None:
    async def serve(peer: Peer) -> None:
        client = await client_of(peer)
        assert await client.receive() == b"def"
        client.unread(b"c")
        client.unread(b"ab")
        assert await client.receive() == b"abc"
        assert client.take_rest() == b""
        assert await client.receive() == b""
        await peer.send(b"seen")

    async def ask(peer: Peer) -> None:
        await peer.send(b"def")
        peer.end()
        assert await peer.rest() == b"seen"

    play_between(serve, ask)


def test_no_first_byte_is_no_request_and_half_a_head_is_a_bad_one() -> None:
    async def serve(peer: Peer) -> None:
        client = await client_of(peer)
        assert await client.read_head(HeadLimits(), 0.01, 60) is None
        await peer.send(b"?")
        await peer.reader.readexactly(1)
        client.unread(b"GET")
        with pytest.raises(BadRequest) as refusal:
            await client.read_head(HeadLimits(), 60, 0.01)
        await peer.send(b"%d" % refusal.value.status)

    async def ask(peer: Peer) -> None:
        assert await peer.exactly(1) == b"?"
        await peer.send(b".")
        assert await peer.rest() == b"408"

    play_between(serve, ask)


def test_a_client_that_takes_nothing_is_given_up() -> None:
    async def serve(peer: Peer) -> None:
        client = await client_of(peer, idle_seconds=0.05)
        with pytest.raises(TimeoutError):
            await client.write([b"x" * 30_000_000])
        client.abort()

    async def ask(peer: Peer) -> None:
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]

    play_between(serve, ask)


def test_an_answer_survives_what_the_client_still_sends() -> None:
    async def serve(peer: Peer) -> None:
        client = await client_of(peer)
        await client.write([b"no"])
        await client.linger()

    async def ask(peer: Peer) -> None:
        await peer.send(b"x" * 500_000)
        assert await peer.exactly(2) == b"no"
        peer.end()

    play_between(serve, ask)


def test_a_client_that_is_gone_cannot_be_written_to() -> None:
    async def serve(peer: Peer) -> None:
        client = await client_of(peer)
        client.close()
        with pytest.raises(ConnectionResetError):
            await client.write([b"x"])

    async def ask(peer: Peer) -> None:
        assert await peer.rest() == b""

    play_between(serve, ask)


def test_what_comes_while_a_client_is_watched_is_kept_and_a_reset_is_noticed() -> None:
    async def serve(peer: Peer) -> None:
        client = await client_of(peer)
        watching = own_task(client.until_gone())
        async with asyncio.timeout(60):
            while not (kept := client.take_rest()):
                await asyncio.sleep(0.01)
            client.unread(kept)
            await peer.send(b"!")
            await watching
        assert client.take_rest() == b"abc"
        done.set()

    async def ask(peer: Peer) -> None:
        await peer.send(b"abc")
        assert await peer.exactly(1) == b"!"
        sock = peer.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.reset()
        async with asyncio.timeout(60):
            await done.wait()

    done = asyncio.Event()
    play_between(serve, ask)


async def test_the_last_bytes_of_an_answer_wait_for_a_client_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "LINGER_SECONDS", 0.01)

    ours, theirs = map(Peer, await pipe())
    ours.writer.transport.set_write_buffer_limits(64 * MIB)
    client = await client_of(ours)
    await client.write([bytes(8 * MIB)])
    assert unsent(ours.writer), "the kernel must not have taken all of it"

    async def read_late() -> bytes:
        while not ours.writer.transport.is_closing():
            await asyncio.sleep(0.001)
        return await theirs.rest()

    reading = own_task(read_late())
    await client.linger()
    assert not unsent(ours.writer)
    assert len(await reading) == 8 * MIB
    theirs.close()


async def test_a_client_that_ended_its_side_is_there_while_it_takes_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "HALF_CLOSED_SECONDS", 0)

    ours, theirs = map(Peer, await pipe())
    theirs.end()
    client = await client_of(ours)
    while not ours.reader.at_eof():
        await asyncio.sleep(0)
    watching = own_task(client.until_gone())
    for _ in range(20):  # each in a turn of the loop, as is each look
        await client.write([b"x"])
        await asyncio.sleep(0)
        assert not watching.done()
    await watching
    ours.close()
    theirs.close()


async def test_a_client_is_idle_until_the_first_byte_of_its_next_request() -> None:
    ours, theirs = map(Peer, await pipe())
    client = await client_of(ours)

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
    await theirs.send(GET[5:])
    assert await reading is not None
    assert not idle()
    ours.close()
    theirs.close()
