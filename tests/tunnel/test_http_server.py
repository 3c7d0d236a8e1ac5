"""Request targets of strangers at the health and admin ports: what is refused, and what a redirect may contain."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.raw_http import talking

from umbilical.tunnel import http_server
from umbilical.tunnel.admin import AgentAdminRoutes, ServerAdminRoutes, ServerHealthRoutes
from umbilical.tunnel.http_server import HttpRoutes
from umbilical.wire.errors import ProtocolViolation

SERVER_HEALTH = ServerHealthRoutes(lambda: True, lambda: b"up 1\n", lambda: 3)
AGENT_ADMIN = AgentAdminRoutes(8093, profiling=False)
PROFILING = ServerAdminRoutes(lambda: b"up 1\n", profiling=True)

HOSTILE_TARGETS = (
    b"//x%0d%0aSet-Cookie:a=b", b"//x%0aSet-Cookie:a=b", b"/%00", b"/%7f", b"/%c2%85", b"/%e2%80%a8",
    b"/a\rSet-Cookie:a=b", b"//a?\rSet-Cookie:a=b", b"//a?\x01", b"/%zz", b"/%", b"/%ff", b"/\xff",
    b"healthz", b"http://[x", b"http://h/%0d",
)  # fmt: skip


@pytest.mark.parametrize("target", HOSTILE_TARGETS)
async def test_a_target_with_control_characters_or_that_is_not_a_url_is_a_bad_request(target: bytes) -> None:
    async with talking(SERVER_HEALTH) as client:
        await client.send(b"GET %s HTTP/1.1\r\nHost: h\r\n\r\n" % target)
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"Cookie" not in answer


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("//evil.com", "/evil.com"),
        ("////evil.com/..//x", "/x"),
        ("/./\\evil.com", "/%5Cevil.com"),
        ("//caf%C3%A9?q=\u20ac", "/caf%C3%A9?q=%E2%82%AC"),
        ("//caf\u00e9\u20ac", "/caf%C3%A9%E2%82%AC"),
        ('//a b"<c>#%3f', "/a%20b%22%3Cc%3E%23%3F"),
        ("http://other/a//b", "/a/b"),
    ],
)
def test_a_redirect_stays_on_this_host_and_is_encoded(target: str, location: str) -> None:
    request = http_server.request_of("GET", target, "h")
    response = asyncio.run(http_server.answer(SERVER_HEALTH, request))
    assert (response.status, dict(response.headers)["Location"]) == (307, location)


async def test_a_path_outside_latin_1_is_not_found_and_the_connection_goes_on() -> None:
    async with talking(SERVER_HEALTH) as client:
        for target in ("/\u20ac", "/%E2%82%AC"):
            await client.send(f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            assert (await client.reply())[0].startswith(b"HTTP/1.1 404 Not Found\r\n")


@given(
    target=st.text(st.characters(exclude_characters=" \n"), min_size=1) | st.text("/.\\%?#:[]@0daefx\r\x00\u2028"),
    routes=st.sampled_from([SERVER_HEALTH, AGENT_ADMIN, PROFILING]),
)
def test_no_target_adds_a_line_to_a_response_or_leaves_this_host(target: str, routes: HttpRoutes) -> None:
    if target.startswith("/debug/pprof/"):
        return
    try:
        request = http_server.request_of("GET", target, "h:1")
    except ProtocolViolation:
        return
    response = asyncio.run(http_server.answer(routes, request))
    for name, value in response.headers:
        assert f"{name}: {value}".isascii()
        assert value.isprintable()
    location = dict(response.headers).get("Location", "/")
    assert location.startswith("//h:8093/metrics") or location[:2] not in ("//", "/\\")
