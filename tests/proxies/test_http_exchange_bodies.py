"""Requests with a body, and what may happen before it has gone: 100, early answers, ends, a change of protocol."""

import asyncio
import socket
import struct

from tests.support.daemons import play
from tests.support.http_scene import Peer, origin, proxying

VIA = b"Via: 1.1 umbilical\r\n"
GET = b"GET http://a/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def test_a_body_with_a_length_is_passed_on_as_it_comes() -> None:
    async def script() -> None:
        async def behave(peer: Peer) -> None:
            await peer.until()
            await peer.exactly(3)
            await peer.send(b"HTTP/1.1 103 Early\r\n\r\n")  # the client waits for it before it sends the rest
            await peer.exactly(2)
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await peer.rest()

        async with origin(behave) as endpoint, proxying({"a": endpoint.port}) as scene:
            client = await scene.client()
            await client.send(b"POST http://a/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel")
            await client.until()
            await client.send(b"lo")
            assert (await client.until(b"ok")).startswith(b"HTTP/1.1 200 OK")
            client.close()
            await endpoint.ended(1)
            assert (
                endpoint.peers[0].seen == b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n" + VIA + b"\r\nhello"
            )

    play(script())


def test_chunks_and_trailers_of_a_request_reach_the_endpoint() -> None:
    async def script() -> None:
        async def behave(peer: Peer) -> None:
            await peer.until(b"X-Sum: 8\r\n\r\n")
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await peer.rest()

        async with origin(behave) as endpoint, proxying({"a": endpoint.port}) as scene:
            client = await scene.client()
            head = b"POST http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
            await client.send(head + b"5;x=y\r\nhello\r\n3\r\nyou\r\n0\r\nX-Sum: 8\r\nContent-Length: 1\r\n\r\n")
            await client.until(b"ok")
            expected = b"POST / HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n" + VIA + b"\r\n"
            expected += b"5\r\nhello\r\n3\r\nyou\r\n0\r\nX-Sum: 8\r\n\r\n"
            assert endpoint.peers[0].seen == expected

    play(script())


def test_a_client_that_waits_for_100_gets_it_from_the_endpoint() -> None:
    async def script() -> None:
        async def behave(peer: Peer) -> None:
            await peer.until()
            await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            await peer.exactly(5)
            await peer.send(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
            await peer.rest()

        async with origin(behave) as endpoint, proxying({"a": endpoint.port}) as scene:
            client = await scene.client()
            await client.send(b"PUT http://a/ HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
            assert await client.until() == b"HTTP/1.1 100 Continue\r\n" + VIA + b"\r\n"
            await client.send(b"hello")
            assert (await client.until()).startswith(b"HTTP/1.1 201 Created\r\n")
            assert b"Expect: 100-continue\r\n" in endpoint.peers[0].seen

    play(script())


def test_an_answer_before_the_end_of_the_request_is_not_held_back() -> None:
    """An endpoint that refuses an upload may answer and stop reading; the client must hear why."""

    async def script() -> None:
        heard = asyncio.Event()

        async def behave(peer: Peer) -> None:
            await peer.until()
            await peer.send(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig")
            await heard.wait()

        async with origin(behave) as endpoint, proxying({"a": endpoint.port}) as scene:
            client = await scene.client()
            await client.send(b"POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n")
            sending = asyncio.ensure_future(client.send(b"x" * 10_000_000))
            assert (await client.until(b"big")).startswith(b"HTTP/1.1 413 Too Large\r\n")
            heard.set()
            await client.rest()
            await sending

    play(script())


def test_a_client_that_leaves_in_the_middle_of_its_body_takes_the_endpoints_connection_with_it() -> None:
    async def script() -> None:
        async def behave(peer: Peer) -> None:
            await peer.rest()

        async with origin(behave) as endpoint, proxying({"a": endpoint.port}) as scene:
            client = await scene.client()
            await client.send(b"POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe")
            async with asyncio.timeout(60):
                while not endpoint.peers:
                    await asyncio.sleep(0.01)
            client.close()
            await endpoint.ended(1)

    play(script())


def test_a_client_that_breaks_off_while_it_waits_takes_the_endpoints_connection_with_it() -> None:
    async def script() -> None:
        async def behave(peer: Peer) -> None:
            await peer.rest()

        async with origin(behave) as endpoint, proxying({"a": endpoint.port}) as scene:
            client = await scene.client()
            await client.send(GET)
            async with asyncio.timeout(60):
                while not endpoint.peers:
                    await asyncio.sleep(0.01)
            sock = client.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.reset()
            await endpoint.ended(1)

    play(script())


def test_a_chunk_that_turns_out_wrong_ends_everything_with_400() -> None:
    async def script() -> None:
        async def behave(peer: Peer) -> None:
            await peer.rest()

        async with origin(behave) as endpoint, proxying({"a": endpoint.port}) as scene:
            head = b"POST http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            answer = await scene.ask(head + b"5\r\nhello\r\nxx\r\n")
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            await endpoint.ended(1)
            assert not endpoint.peers[0].seen.endswith(b"0\r\n\r\n")

    play(script())


def test_an_endpoint_that_falls_silent_is_told_as_504() -> None:
    async def script() -> None:
        async def behave(peer: Peer) -> None:
            await peer.rest()

        async with origin(behave) as endpoint, proxying({"a": endpoint.port}, idle_seconds=0.1) as scene:
            answer = await scene.ask(GET)
            assert answer.startswith(b"HTTP/1.1 504 Gateway Timeout\r\n")
            assert b"UMB546 no answer from a:80" in answer

    play(script())


def test_a_websocket_is_carried_with_the_bytes_that_came_early_on_either_side() -> None:
    async def script() -> None:
        switching = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX: y\r\n\r\n"

        async def behave(peer: Peer) -> None:
            await peer.until()
            await peer.send(switching + b"early")
            await peer.rest()
            await peer.send(b"late")

        async with origin(behave) as endpoint, proxying({"a": endpoint.port}) as scene:
            client = await scene.client()
            request = (
                b"GET http://a/chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
            )
            await client.send(request + b"Sec-WebSocket-Key: x\r\n\r\nframes")
            expected = b"HTTP/1.1 101 Switching Protocols\r\nX: y\r\n" + VIA
            expected += b"Upgrade: websocket\r\nConnection: upgrade\r\n\r\nearly"
            assert await client.until(b"early") == expected
            client.end()
            assert await client.rest() == b"late"
            expected = b"GET /chat HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Key: x\r\nUpgrade: websocket\r\n"
            assert endpoint.peers[0].seen == expected + b"Connection: upgrade\r\n" + VIA + b"\r\nframes"

    play(script())


def test_a_large_body_passes_in_both_directions_without_being_held() -> None:
    size = 30_000_000

    async def script() -> None:
        async def behave(peer: Peer) -> None:
            await peer.until()
            left = size
            while left:
                left -= len(await peer.reader.read(1 << 20))
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            for _ in range(size // 100_000):
                await peer.send(b"x" * 100_000)
            await peer.rest()

        async with origin(behave) as endpoint, proxying({"a": endpoint.port}) as scene:
            client = await scene.client()
            await client.send(b"POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size)
            for _ in range(size // 100_000):
                await client.send(b"y" * 100_000)
            await client.until()
            left = size
            async with asyncio.timeout(60):
                while left:
                    left -= len(await client.reader.read(1 << 20))
            assert scene.metrics.traffic.to_endpoint.total == size
            assert scene.metrics.traffic.to_client.total == size

    play(script())
