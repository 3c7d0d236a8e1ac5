"""What the HTTP proxy logs, and what it never does."""

import asyncio

import pytest
from tests.support.daemons import play
from tests.support.http_scene import answering, origin, proxying

from umbilical.dialer.failure import Reason

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def test_a_request_and_a_tunnel_are_one_line_each_without_paths(caplog: pytest.LogCaptureFixture) -> None:
    async def script() -> None:
        async with origin(answering(HELLO)) as endpoint, proxying({"a": endpoint.port}) as scene:
            await scene.ask(b"GET http://a/p?token=secret HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            client = await scene.client()
            await client.send(b"CONNECT a:443 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
            client.end()
            await client.rest()
            client.close()
            async with asyncio.timeout(60):
                await scene.listener.until_idle()

    with caplog.at_level("INFO"):
        play(script())
    lines = [record.getMessage() for record in caplog.records if record.name == "umbilical.tunnels"]
    assert "target=a:80 method=GET" in lines[0]
    assert "target=a:443 up=18 down=" in lines[1]
    assert "secret" not in caplog.text


def test_a_storm_of_refusals_is_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def script() -> None:
        async with proxying({}) as scene:
            scene.ways.failures["a"] = Reason.REFUSED
            for _ in range(20):
                await scene.ask(b"CONNECT a:443 HTTP/1.1\r\n\r\n")

    with caplog.at_level("INFO"):
        play(script())
    lines = [record for record in caplog.records if "UMB501" in record.getMessage()]
    assert len(lines) == 1
    assert "status=502: no connection to a:443" in lines[0].getMessage()
