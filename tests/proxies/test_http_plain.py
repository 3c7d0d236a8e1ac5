"""Several requests on one connection: kept connections, and request smuggling."""

import asyncio

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.coroutines import play
from tests.support.http_testbed import Peer, answering, between, origin, proxying, read_answer

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
GET = b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"
VIA = b"Via: 1.1 umbilical\r\n"


async def greeted(client: Peer) -> None:
    """Send a request; return the whole response."""
    await client.send(GET)
    await client.until(b"hello")


async def test_requests_of_one_connection_share_one_upstream() -> None:
    async with between(answering(HELLO, HELLO, HELLO)) as (client, endpoint, testbed):
        for _ in range(3):
            await greeted(client)
        assert testbed.router.dials == ["a"]
        assert endpoint.peers[0].seen == 3 * (b"GET / HTTP/1.1\r\nHost: a\r\n" + VIA + b"\r\n")
        await testbed.counts('umbilical_proxy_requests_total{protocol="http",result="ok"} 3')


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    first, second = (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + letter for letter in (b"1", b"2"))
    async with between(answering(first, second)) as (client, _, _):
        await client.send(GET + GET.replace(b"http://a/", b"http://a/2"))
        assert (await client.until(b"\r\n\r\n1")).endswith(b"1")
        assert (await client.until(b"\r\n\r\n2")).endswith(b"2")


async def test_another_host_gets_another_connection_and_the_old_one_ends() -> None:
    async with (
        origin(answering(HELLO)) as one,
        origin(answering(HELLO)) as two,
        proxying({"a": one.port, "b": two.port}) as testbed,
    ):
        client = await testbed.client()
        await greeted(client)
        await client.send(b"GET http://b/ HTTP/1.1\r\nHost: b\r\n\r\n")
        await client.until(b"hello")
        await one.ended(1)
        assert testbed.router.dials == ["a", "b"]


async def test_two_clients_never_share_a_connection() -> None:
    async with origin(answering(HELLO, HELLO)) as endpoint, proxying({"a": endpoint.port}) as testbed:
        for _ in range(2):
            client = await testbed.client()
            await greeted(client)
        assert testbed.router.dials == ["a", "a"]


async def test_an_upstream_that_ended_in_the_meantime_is_dialled_anew() -> None:
    async def behave(peer: Peer) -> None:
        await peer.until()
        await peer.send(HELLO)

    async with between(behave) as (client, endpoint, testbed):
        for round_number in range(1, 4):
            await greeted(client)
            await endpoint.ended(round_number)
        assert testbed.router.dials == ["a"] * 3


@pytest.mark.parametrize(("method", "dials"), [(b"GET", 2), (b"POST", 1)])
async def test_a_request_that_met_a_dying_connection_goes_out_again_if_that_does_no_harm(
    method: bytes, dials: int
) -> None:
    connections = 0

    async def behave(peer: Peer) -> None:
        nonlocal connections
        connections += 1
        await peer.until()
        await peer.send(HELLO)
        await peer.until()  # the second request arrives, and only then the connection ends
        if connections > 1:
            await peer.send(HELLO)

    async with between(behave) as (client, _, testbed):
        await greeted(client)
        await client.send(GET.replace(b"GET", method))
        if dials == 2:
            await client.until(b"hello")
        else:
            assert (await client.rest()).startswith(b"HTTP/1.1 502 ")
        assert len(testbed.router.dials) == dials


async def test_a_body_is_never_sent_twice() -> None:
    async def behave(peer: Peer) -> None:
        await peer.until()
        await peer.send(HELLO)
        await peer.until()
        await peer.exactly(3)

    async with between(behave) as (client, _, testbed):
        await greeted(client)
        await client.send(b"PUT http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
        assert (await client.rest()).startswith(b"HTTP/1.1 502 ")
        assert testbed.router.dials == ["a"]


async def test_a_half_closed_client_still_gets_its_answer() -> None:
    async with between(answering(HELLO)) as (client, _, _):
        await client.send(GET)
        client.end()
        assert read_answer(await client.rest()) == b"hello"


async def test_max_forwards_of_zero_is_answered_here() -> None:
    async with proxying({}) as testbed:
        fields = b"Host: a\r\nMax-Forwards: 0\r\n\r\n"
        assert (await testbed.ask(b"OPTIONS http://a/ HTTP/1.1\r\n" + fields)).startswith(b"HTTP/1.1 200 ")
        assert (await testbed.ask(b"TRACE http://a/ HTTP/1.1\r\n" + fields)).startswith(b"HTTP/1.1 405 ")
        assert testbed.router.dials == []


HEAD = b"POST http://a/ HTTP/1.1\r\nHost: a\r\n"
SMUGGLED = b"GET /evil HTTP/1.1\r\nHost: b\r\n\r\n"
SHAPES = {
    "CL.TE": HEAD + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "TE.CL": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "TE hidden by a space": HEAD + b"Transfer-Encoding : chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "TE hidden by a fold": HEAD + b"X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "TE hidden by a vertical tab": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "TE twice": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "TE that is no chunked": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "TE in HTTP/1.0": b"POST http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "CL.CL": HEAD + b"Content-Length: 0\r\nContent-Length: 33\r\n\r\n" + SMUGGLED,
    "CL in a list": HEAD + b"Content-Length: 0, 33\r\n\r\n" + SMUGGLED,
    "CL with a sign": HEAD + b"Content-Length: +33\r\n\r\n" + SMUGGLED,
    "CL hidden by a space": HEAD + b"Content-Length : 33\r\n\r\n" + SMUGGLED,
    "CL behind a bare LF": b"POST http://a/ HTTP/1.1\r\nHost: a\r\nX: y\nContent-Length: 33\r\n\r\n" + SMUGGLED,
    "CL behind a bare CR": b"POST http://a/ HTTP/1.1\r\nHost: a\r\nX: y\rContent-Length: 33\r\n\r\n" + SMUGGLED,
    "a NUL in a name": HEAD + b"Content-Length\0: 33\r\n\r\n" + SMUGGLED,
    "two Hosts": b"GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "an early empty line": b"GET http://a/ HTTP/1.1\r\nHost: a\n\r\n" + SMUGGLED,
    "a target with a space": b"GET http://a/ HTTP/1.1\r\nX: /y HTTP/1.1\r\nHost: a\r\n\r\n".replace(
        b"/ HTTP", b"/ x HTTP"
    ),
    "credentials in the target": b"GET http://a@b/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "a backslash in the authority": b"GET http://b\\@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
async def test_a_shape_that_smuggles_is_refused_and_not_a_byte_reaches_an_endpoint(shape: bytes) -> None:
    async with origin(answering()) as endpoint, proxying({"a": endpoint.port, "b": endpoint.port}) as testbed:
        answer = await testbed.ask(shape)
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert answer.count(b"HTTP/1.1 ") == 1
        assert testbed.router.dials == []


async def test_the_rest_of_a_body_is_no_request_when_the_answer_came_before_it() -> None:
    async with origin(answering(HELLO)) as endpoint, proxying({"a": endpoint.port, "b": endpoint.port}) as testbed:
        client = await testbed.client()
        await client.send(HEAD + b"Content-Length: 1000\r\n\r\nx")
        await client.until(b"hello")
        await client.send(b"GET http://b/evil HTTP/1.1\r\nHost: b\r\n\r\n")
        assert await client.rest() == b""
        assert testbed.router.dials == ["a"]


CHUNK_SHAPES = {
    "a chunk ended by LF": b"3\r\nabc\n0\r\n\r\n" + SMUGGLED,
    "a size ended by LF": b"3\nabc\r\n0\r\n\r\n" + SMUGGLED,
    "an extension with LF": b"3;x\nabc\r\n0\r\n\r\n" + SMUGGLED,
    "a size with a sign": b"+3\r\nabc\r\n0\r\n\r\n" + SMUGGLED,
    "a size past 64 bits": b"100000000000000003\r\nabc\r\n0\r\n\r\n" + SMUGGLED,
    "trailers ended by LF": b"0\r\nX: y\n\n" + SMUGGLED,
    "a request for a trailer": b"0\r\n" + SMUGGLED,
}


@pytest.mark.parametrize("shape", CHUNK_SHAPES.values(), ids=CHUNK_SHAPES)
async def test_chunks_that_smuggle_never_become_a_whole_message(shape: bytes) -> None:
    """The first part was already forwarded; the endpoint must not read it as complete, nor the rest as a request."""

    async with origin(answering()) as endpoint, proxying({"a": endpoint.port, "b": endpoint.port}) as testbed:
        answer = await testbed.ask(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + shape)
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        await endpoint.ended(1)
        assert len(endpoint.peers) == 1
        assert b"evil" not in endpoint.peers[0].seen
        assert not endpoint.peers[0].seen.endswith(b"0\r\n\r\n")


HARMLESS = {
    "another Host than the target's": (
        b"GET http://a/x HTTP/1.1\r\nHost: b\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: a\r\n" + VIA + b"\r\n",
    ),
    "Connection names Content-Length": (
        HEAD + b"Connection: content-length\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n" + VIA + b"\r\nabc",
    ),
    "a request inside a body": (
        HEAD + b"Content-Length: 33\r\n\r\n" + SMUGGLED[:33],
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 33\r\n" + VIA + b"\r\n" + SMUGGLED[:33],
    ),
    "a body of a GET": (
        b"GET http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n" + VIA + b"\r\nabc",
    ),
    "a chunk's extension": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0;c\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n" + VIA + b"\r\n3\r\nabc\r\n0\r\n\r\n",
    ),
}


@pytest.mark.parametrize(("sent", "expected"), HARMLESS.values(), ids=HARMLESS)
async def test_what_has_one_meaning_reaches_the_endpoint_in_its_plainest_form(sent: bytes, expected: bytes) -> None:
    async def behave(peer: Peer) -> None:
        await peer.exactly(len(expected))
        await peer.send(HELLO)
        await peer.rest()

    async with between(behave) as (client, endpoint, _):
        await client.send(sent)
        await client.until(b"hello")
        client.close()
        await endpoint.ended(1)
        assert endpoint.peers[0].seen == expected


_PARTS = st.sampled_from([
    b"GET http://a/ HTTP/1.1\r\nHost: a\r\n", b"POST http://a/ HTTP/1.1\r\nHost: a\r\n", b"\r\n", b"\n", b"\r", b" ",
    b"Content-Length: 3\r\n", b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n", b"X: y\r\n", b"abc",
    b"0\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n", b"Transfer-Encoding: gzip\r\n", b"Connection: host\r\n", b"\0",
])  # fmt: skip


@settings(max_examples=150)
@given(st.lists(_PARTS, min_size=1, max_size=9).map(b"".join), st.integers(1, 60))
def test_whatever_a_client_sends_an_endpoint_reads_whole_messages_as_h11_does(data: bytes, step: int) -> None:
    faults: list[str] = []

    async def behave(peer: Peer) -> None:
        try:
            await serve_by_h11(peer)
        except h11.RemoteProtocolError as fault:
            faults.append(str(fault))

    async def script() -> None:
        async with origin(behave) as endpoint, proxying({"a": endpoint.port}) as testbed:
            client = await testbed.client()
            reading = asyncio.ensure_future(client.rest())
            for at in range(0, len(data), step):
                await client.send(data[at : at + step])
            if not client.writer.transport.is_closing():
                client.end()
            answer = await reading
            assert b"HTTP/1.1 502" not in answer, answer
            client.close()

    play(script())
    assert not faults


async def serve_by_h11(peer: Peer) -> None:
    """A server that is strict about requests of a proxy; an incomplete request is accepted."""
    http = h11.Connection(h11.SERVER)
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            data = await peer.reader.read(65536)
            if not data:
                return
            http.receive_data(data)
        elif isinstance(event, h11.EndOfMessage):
            await peer.send(http.send(h11.Response(status_code=200, headers=[("Content-Length", "0")])))
            await peer.send(http.send(h11.EndOfMessage()))
            http.start_next_cycle()
        elif isinstance(event, h11.ConnectionClosed):
            return
