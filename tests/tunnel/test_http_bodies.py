"""Requests with a body at the health port: answered, skipped, and followed by others."""

from tests.support.raw_http import dial, with_listener

from umbilical.tunnel.admin import HttpListener, ServerHealthRoutes
from umbilical.tunnel.http_bodies import MAX_BODY_BYTES

ROUTES = ServerHealthRoutes(lambda: True, lambda: b"up 1\n", lambda: 1)


def test_a_post_is_answered_and_its_body_skipped() -> None:
    async def talk(listener: HttpListener) -> None:
        client = await dial(listener)
        await client.send(b"POST /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n")
        assert (await client.reply())[1] == b"ok"
        await client.send(b"abcGET /readyz HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await client.reply())[1] == b"ok"
        await client.close()

    with_listener(talk, ROUTES)


def test_a_huge_body_ends_the_connection() -> None:
    async def talk(listener: HttpListener) -> None:
        client = await dial(listener)
        await client.send(b"POST /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n")
        assert (await client.reply())[1] == b"ok"
        await client.send(b"x" * (MAX_BODY_BYTES + 65536))
        assert await client.rest() == b""
        await client.close()

    with_listener(talk, ROUTES)


def test_a_body_may_follow_requests_without_one_and_come_in_chunks() -> None:
    async def talk(listener: HttpListener) -> None:
        client = await dial(listener)
        await client.send(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await client.reply())[1] == b"ok"
        chunked = b"POST /readyz HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        await client.send(chunked + b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert (await client.reply())[1] == b"ok"
        assert (await client.rest()).endswith(b"up 1\n")
        await client.close()

    with_listener(talk, ROUTES)


def test_a_body_that_breaks_its_own_rules_ends_the_connection() -> None:
    async def talk(listener: HttpListener) -> None:
        client = await dial(listener)
        await client.send(b"POST /healthz HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nnot a size\r\n")
        assert b"ok" in await client.rest()
        await client.close()

    with_listener(talk, ROUTES)
