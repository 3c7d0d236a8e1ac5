"""Plain requests and their responses, as in RFC 9110 and 9112: bytes on both sides."""

import asyncio

import pytest
from tests.support.coroutines import play
from tests.support.http_testbed import Peer, answering, between, origin, proxying, read_answer

from umbilical.proxies.http_exchange import PROXY_WANTS_CREDENTIALS
from umbilical.proxies.proxy_connect import ProxyUrl
from umbilical.proxies.user_proxy import UpstreamRoute

VIA = b"Via: 1.1 umbilical\r\n"
GET = b"GET http://a/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def told(answer: bytes, request: bytes = GET, *, bytewise: bool = False) -> bytes:
    """Return what a client receives when the endpoint sends this and closes."""

    async def behave(peer: Peer) -> None:
        await peer.until()
        await (peer.send_bytewise if bytewise else peer.send)(answer)
        peer.end()
        await peer.rest()

    async def script() -> bytes:
        async with between(behave) as (client, _, _):
            await (client.send_bytewise if bytewise else client.send)(request)
            return await client.rest()

    return play(script())


OK = b"HTTP/1.1 200 OK\r\n"
EMPTY = VIA + b"Content-Length: 0\r\nConnection: close\r\n\r\n"
CHUNKED = VIA + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n"
ANSWERS = {
    "with a length": (
        b"HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nX: y\r\n\r\nhello",
        b"HTTP/1.1 200 Fine\r\nX: y\r\n" + VIA + b"Content-Length: 5\r\nConnection: close\r\n\r\nhello",
    ),
    "in chunks with a trailer": (
        OK + b"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3;e=1\r\nabc\r\n0\r\nX-Sum: 3\r\n\r\n",
        OK + b"Trailer: X-Sum\r\n" + CHUNKED + b"X-Sum: 3\r\n\r\n",
    ),
    "ended by the connection": (OK + b"\r\nabc", OK + CHUNKED + b"\r\n"),
    "of HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nabc", OK + CHUNKED + b"\r\n"),
    "without a body, 204": (
        b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n" + VIA + b"Connection: close\r\n\r\n",
    ),
    "without a body, 304": (
        b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 3\r\n\r\n',
        b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n' + VIA + b"Content-Length: 3\r\nConnection: close\r\n\r\n",
    ),
    "with an empty body": (OK + b"Content-Length: 0\r\n\r\n", OK + EMPTY),
    "with length and chunks: the chunks count": (
        OK + b"Content-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        OK + CHUNKED + b"\r\n",
    ),
    "fields of one hop": (
        OK + b"Connection: close, X\r\nX: 1\r\nKeep-Alive: 5\r\nUpgrade: h2\r\nContent-Length: 0\r\n\r\n",
        OK + EMPTY,
    ),
    "an unknown status": (
        b"HTTP/1.1 599 Odd Things\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 599 Odd Things\r\n" + EMPTY,
    ),
    "early hints before": (
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n" + VIA + b"\r\n" + OK + EMPTY,
    ),
    "upgrade required": (
        b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: h2\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 426 Upgrade Required\r\n" + VIA + b"Upgrade: h2\r\nConnection: upgrade\r\n" + EMPTY[len(VIA) :],
    ),
}


@pytest.mark.parametrize(("answer", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_is_passed_on(answer: bytes, expected: bytes) -> None:
    assert told(answer) == expected


BAD_ANSWERS = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "unknown coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    "chunks in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a NUL": b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
    "a protocol that nobody asked for": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000,
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nX:",
}


@pytest.mark.parametrize("answer", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
def test_what_is_no_answer_is_told_as_502(answer: bytes) -> None:
    result = told(answer)
    assert result.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert b"\r\n\r\nUMB545 no valid response from a:80\n" in result


TRUNCATED = {
    "of a length": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
    "of chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
    "of chunks between two": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "of broken chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n",
}


@pytest.mark.parametrize("answer", TRUNCATED.values(), ids=TRUNCATED)
def test_half_an_answer_never_looks_like_a_whole_one(answer: bytes) -> None:
    result = told(answer)
    assert not result.endswith(b"0\r\n\r\n")
    assert b"UMB" not in result


async def test_half_an_answer_that_only_the_end_would_end_is_reset() -> None:
    async def behave(peer: Peer) -> None:
        await peer.until()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await heard.wait()

    heard = asyncio.Event()
    async with between(behave) as (client, _, _):
        await client.send(b"GET http://a/ HTTP/1.0\r\n\r\n")
        assert (await client.until(b"abc")).endswith(b"\r\n\r\nabc")
        heard.set()
        with pytest.raises(ConnectionResetError):
            await client.exactly(1)


def test_an_answer_one_byte_at_a_time_is_the_same() -> None:
    answer, expected = ANSWERS["in chunks with a trailer"]
    result = told(answer, bytewise=True)
    assert result.startswith(expected.partition(b"\r\n\r\n")[0])
    assert result.endswith(b"\r\n0\r\nX-Sum: 3\r\n\r\n")
    assert read_answer(result) == b"abc"


def test_head_keeps_the_length_and_has_no_body() -> None:
    request = b"HEAD http://a/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    for framing, kept in (
        (b"Content-Length: 5\r\n", b"Content-Length: 5\r\n"),
        (b"Transfer-Encoding: chunked\r\n", b""),
    ):
        answer = told(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n", request)
        assert answer == b"HTTP/1.1 200 OK\r\n" + VIA + kept + b"Connection: close\r\n\r\n"


def test_a_client_of_http10_gets_no_chunks_no_news_in_between_and_the_end() -> None:
    request = b"GET http://a/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    news = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    answer = told(
        news + b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 3\r\n\r\n", request
    )
    assert answer == b"HTTP/1.1 200 OK\r\n" + VIA + b"Connection: close\r\n\r\nabc"


async def test_407_of_an_endpoint_passes_and_407_of_the_users_proxy_is_ours_to_tell() -> None:
    answer = b"HTTP/1.1 %d No\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n" % PROXY_WANTS_CREDENTIALS
    async with origin(answering(answer)) as endpoint, proxying({"a": endpoint.port, "p": endpoint.port}) as testbed:
        assert (await testbed.ask(GET)).startswith(b"HTTP/1.1 407 No\r\n")
        testbed.router.proxy = UpstreamRoute("p", 3128, ProxyUrl("http", "p", 3128))
        told = await testbed.ask(GET)
        assert told.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
        assert b"UMB510" in told
        assert b"407" in told
        assert b"Proxy-Authenticate" not in told


async def test_a_user_proxy_is_sent_the_whole_url_and_its_credentials_and_an_endpoint_neither() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    async with origin(answering(answer)) as endpoint, proxying({"p": endpoint.port}) as testbed:
        testbed.router.proxy = UpstreamRoute("p", 3128, ProxyUrl("http", "p", 3128, "x", "y"))
        request = b"GET http://a:81/x?y HTTP/1.1\r\nHost: z\r\nProxy-Authorization: mine\r\n"
        await testbed.ask(request + b"Connection: close\r\n\r\n")
        await testbed.ask(b"OPTIONS http://a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert endpoint.peers[0].seen.startswith(
            b"GET http://a:81/x?y HTTP/1.1\r\nHost: a:81\r\n" + VIA + b"Proxy-Authorization: Basic eDp5\r\n\r\n"
        )
        assert endpoint.peers[-1].seen.startswith(b"OPTIONS http://a HTTP/1.1\r\n")


async def test_a_body_with_a_length_is_passed_on_as_it_comes() -> None:
    async def behave(peer: Peer) -> None:
        await peer.until()
        await peer.exactly(3)
        await peer.send(b"HTTP/1.1 103 Early\r\n\r\n")  # the client waits for it before it sends the rest
        await peer.exactly(2)
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await peer.rest()

    async with between(behave) as (client, endpoint, _):
        await client.send(b"POST http://a/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel")
        await client.until()
        await client.send(b"lo")
        assert (await client.until(b"ok")).startswith(b"HTTP/1.1 200 OK")
        client.close()
        await endpoint.ended(1)
        assert endpoint.peers[0].seen == b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n" + VIA + b"\r\nhello"


async def test_chunks_and_trailers_of_a_request_reach_the_endpoint() -> None:
    async def behave(peer: Peer) -> None:
        await peer.until(b"X-Sum: 8\r\n\r\n")
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await peer.rest()

    async with between(behave) as (client, endpoint, _):
        head = b"POST http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
        await client.send(head + b"5;x=y\r\nhello\r\n3\r\nyou\r\n0\r\nX-Sum: 8\r\nContent-Length: 1\r\n\r\n")
        await client.until(b"ok")
        expected = b"POST / HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n" + VIA + b"\r\n"
        expected += b"5\r\nhello\r\n3\r\nyou\r\n0\r\nX-Sum: 8\r\n\r\n"
        assert endpoint.peers[0].seen == expected


async def test_a_client_that_waits_for_100_gets_it_from_the_endpoint() -> None:
    async def behave(peer: Peer) -> None:
        await peer.until()
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await peer.exactly(5)
        await peer.send(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
        await peer.rest()

    async with between(behave) as (client, endpoint, _):
        await client.send(b"PUT http://a/ HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert await client.until() == b"HTTP/1.1 100 Continue\r\n" + VIA + b"\r\n"
        await client.send(b"hello")
        assert (await client.until()).startswith(b"HTTP/1.1 201 Created\r\n")
        assert b"Expect: 100-continue\r\n" in endpoint.peers[0].seen


async def test_an_answer_before_the_end_of_the_request_is_not_held_back() -> None:
    """An endpoint that refuses an upload may answer and stop reading; the client must get the response."""

    heard = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.until()
        await peer.send(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig")
        await heard.wait()

    async with between(behave) as (client, _, _):
        await client.send(b"POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
        sending = asyncio.ensure_future(client.send(b"x" * 10_000_000))
        assert (await client.until(b"big")).startswith(b"HTTP/1.1 413 Too Large\r\n")
        heard.set()
        await client.rest()
        await sending


async def test_a_client_that_leaves_in_the_middle_of_its_body_takes_the_endpoints_connection_with_it() -> None:
    async with between(answering()) as (client, endpoint, _):
        await client.send(b"POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe")
        await endpoint.visited()
        client.close()
        await endpoint.ended(1)


async def test_a_client_that_breaks_off_while_it_waits_takes_the_endpoints_connection_with_it() -> None:
    async with between(answering()) as (client, endpoint, _):
        await client.send(GET)
        await endpoint.visited()
        client.break_off()
        await endpoint.ended(1)


async def test_a_chunk_that_turns_out_wrong_ends_everything_with_400() -> None:
    async with origin(answering()) as endpoint, proxying({"a": endpoint.port}) as testbed:
        head = b"POST http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        answer = await testbed.ask(head + b"5\r\nhello\r\nxx\r\n")
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        await endpoint.ended(1)
        assert not endpoint.peers[0].seen.endswith(b"0\r\n\r\n")


async def test_an_endpoint_that_falls_silent_is_told_as_504() -> None:
    async with origin(answering()) as endpoint, proxying({"a": endpoint.port}, idle_seconds=0.1) as testbed:
        answer = await testbed.ask(GET)
        assert answer.startswith(b"HTTP/1.1 504 Gateway Timeout\r\n")
        assert b"UMB546 no response from a:80" in answer


async def test_a_websocket_is_carried_with_the_bytes_that_came_early_on_either_side() -> None:
    switching = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX: y\r\n\r\n"

    async def behave(peer: Peer) -> None:
        await peer.until()
        await peer.send(switching + b"early")
        await peer.rest()
        await peer.send(b"late")

    async with between(behave) as (client, endpoint, _):
        request = b"GET http://a/chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
        await client.send(request + b"Sec-WebSocket-Key: x\r\n\r\nframes")
        expected = b"HTTP/1.1 101 Switching Protocols\r\nX: y\r\n" + VIA
        expected += b"Upgrade: websocket\r\nConnection: upgrade\r\n\r\nearly"
        assert await client.until(b"early") == expected
        client.end()
        assert await client.rest() == b"late"
        expected = b"GET /chat HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Key: x\r\nUpgrade: websocket\r\n"
        assert endpoint.peers[0].seen == expected + b"Connection: upgrade\r\n" + VIA + b"\r\nframes"


async def test_a_large_body_passes_in_both_directions_without_being_held() -> None:
    size = 8_000_000

    async def behave(peer: Peer) -> None:
        await peer.until()
        left = size
        while left:
            left -= len(await peer.reader.read(1 << 20))
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 100_000):
            await peer.send(b"x" * 100_000)
        await peer.rest()

    async with between(behave) as (client, _, testbed):
        await client.send(b"POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 100_000):
            await client.send(b"y" * 100_000)
        await client.until()
        left = size
        async with asyncio.timeout(60):
            while left:
                left -= len(await client.reader.read(1 << 20))
        assert testbed.metrics.traffic.to_endpoint.total == size
        assert testbed.metrics.traffic.to_client.total == size
