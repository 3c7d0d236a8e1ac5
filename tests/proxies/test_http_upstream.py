"""A connection upstream: when it may be used again, and what is made of its end."""

import asyncio

import h11
import pytest
from tests.support.daemons import play
from tests.support.http_scene import Origin, Peer, answering, origin

from umbilical.proxies.http_upstream import BadAnswer, Upstream, UpstreamLost

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = h11.Request(method="GET", target="/", headers=[("Host", "a")])


async def upstream_to(endpoint: Origin, idle_seconds: float = 0) -> Upstream:
    return Upstream(("a", 80, ""), await asyncio.open_connection("127.0.0.1", endpoint.port), idle_seconds)


async def ask(upstream: Upstream) -> list[type]:
    await upstream.send(REQUEST, h11.EndOfMessage())
    events: list[type] = []
    while not events or events[-1] is not h11.EndOfMessage:
        events.append(type(await upstream.receive()))
    return events


def test_it_serves_request_after_request() -> None:
    async def script() -> None:
        async with origin(answering(ANSWER, ANSWER)) as endpoint:
            upstream = await upstream_to(endpoint)
            assert await ask(upstream) == [h11.Response, h11.Data, h11.EndOfMessage]
            assert await upstream.is_ready_again()
            upstream.begin_again()
            assert upstream.was_used
            assert await ask(upstream) == [h11.Response, h11.Data, h11.EndOfMessage]
            upstream.close()

    play(script())


def test_it_is_not_used_again_before_the_answer_is_over() -> None:
    async def script() -> None:
        async with origin(answering(ANSWER[:-1])) as endpoint:
            upstream = await upstream_to(endpoint)
            await upstream.send(REQUEST, h11.EndOfMessage())
            await upstream.receive()
            assert not await upstream.is_ready_again()
            upstream.close()

    play(script())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        ANSWER + b"HTTP/1.1 200 OK\r\n\r\n",
    ],
    ids=["said close", "HTTP/1.0", "more than was asked for"],
)
def test_it_is_not_used_again_after_such_an_answer(answer: bytes) -> None:
    async def script() -> None:
        async with origin(answering(answer)) as endpoint:
            upstream = await upstream_to(endpoint)
            await ask(upstream)
            assert not await upstream.is_ready_again()
            upstream.close()

    play(script())


def test_it_is_not_used_again_when_something_came_while_nobody_asked() -> None:
    async def script() -> None:
        for late in (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", b""):
            gate = asyncio.Event()
            endpoint_done = asyncio.Event()

            async def behave(
                peer: Peer, late: bytes = late, gate: asyncio.Event = gate, done: asyncio.Event = endpoint_done
            ) -> None:
                await peer.until()
                await peer.send(ANSWER)
                await gate.wait()
                await (peer.send(late) if late else asyncio.sleep(0))
                peer.end()
                done.set()
                await peer.rest()

            async with origin(behave) as endpoint:
                upstream = await upstream_to(endpoint)
                await ask(upstream)
                assert await upstream.is_ready_again()
                gate.set()
                async with asyncio.timeout(60):
                    while await upstream.is_ready_again():
                        await asyncio.sleep(0.01)
                upstream.close()

    play(script())


def test_an_answer_that_came_before_a_reset_is_heard() -> None:
    async def script() -> None:
        async with origin(answering()) as endpoint:
            upstream = await upstream_to(endpoint)
            await upstream.send(REQUEST, h11.EndOfMessage())
            reader = upstream.streams[0]
            reader.feed_data(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            reader.set_exception(ConnectionResetError())
            event = await upstream.receive()
            assert isinstance(event, h11.Response)
            assert event.status_code == 413
            upstream.abort()

    play(script())


def test_a_reset_without_an_answer_is_a_loss() -> None:
    async def script() -> None:
        async def behave(peer: Peer) -> None:
            await peer.until()
            peer.reset()

        async with origin(behave) as endpoint:
            upstream = await upstream_to(endpoint)
            await upstream.send(REQUEST, h11.EndOfMessage())
            with pytest.raises(UpstreamLost):
                await upstream.receive()
            upstream.abort()

    play(script())


def test_what_is_no_http_is_a_bad_answer() -> None:
    async def script() -> None:
        async with origin(answering(b"220 smtp.example ESMTP\r\n\r\n")) as endpoint:
            upstream = await upstream_to(endpoint)
            await upstream.send(REQUEST, h11.EndOfMessage())
            with pytest.raises(BadAnswer):
                await upstream.receive()
            upstream.close()

    play(script())


def test_silence_ends_at_the_idle_limit() -> None:
    async def script() -> None:
        async with origin(answering()) as endpoint:
            upstream = await upstream_to(endpoint, idle_seconds=0.05)
            await upstream.send(REQUEST, h11.EndOfMessage())
            with pytest.raises(TimeoutError):
                await upstream.receive()
            upstream.close()

    play(script())


def test_bytes_behind_a_change_of_protocol_are_given_out() -> None:
    async def script() -> None:
        switching = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nearly"
        async with origin(answering(switching)) as endpoint:
            upstream = await upstream_to(endpoint)
            headers = [("Host", "a"), ("Upgrade", "x"), ("Connection", "upgrade")]
            await upstream.send(h11.Request(method="GET", target="/", headers=headers), h11.EndOfMessage())
            assert isinstance(await upstream.receive(), h11.InformationalResponse)
            assert upstream.take_rest() == b"early"
            upstream.close()

    play(script())
