"""Upstream connections: reuse, and how their end is handled."""

import asyncio

import h11
import pytest
from tests.support.http_testbed import Origin, Peer, answering, origin, proxying

from umbilical.dialer.failure import REPORTS, DialFailed, DialReason
from umbilical.proxies.http_head import BadRequest, absolute_target, check_host_field, connect_target
from umbilical.proxies.http_reply import ProxyAnswer, chunk, last_chunk, malformed, response_head, undialled
from umbilical.proxies.http_upstream import UpstreamConnection, UpstreamLost
from umbilical.proxies.proxy_connect import ProxyUrl
from umbilical.proxies.user_proxy import UpstreamRoute

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = h11.Request(method="GET", target="/", headers=[("Host", "a")])


async def upstream_to(endpoint: Origin, idle_seconds: float = 0) -> UpstreamConnection:
    return UpstreamConnection(("a", 80, ""), await asyncio.open_connection("127.0.0.1", endpoint.port), idle_seconds)


async def ask(upstream: UpstreamConnection) -> list[type]:
    await upstream.send(REQUEST, h11.EndOfMessage())
    events: list[type] = []
    while not events or events[-1] is not h11.EndOfMessage:
        events.append(type(await upstream.receive()))
    return events


async def test_it_is_not_used_again_before_the_answer_is_over() -> None:
    async with origin(answering(ANSWER[:-1])) as endpoint:
        upstream = await upstream_to(endpoint)
        await upstream.send(REQUEST, h11.EndOfMessage())
        await upstream.receive()
        assert not await upstream.is_ready_again()
        upstream.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        ANSWER + b"HTTP/1.1 200 OK\r\n\r\n",
    ],
    ids=["said close", "HTTP/1.0", "more than was asked for"],
)
async def test_it_is_not_used_again_after_such_an_answer(answer: bytes) -> None:
    async with origin(answering(answer)) as endpoint:
        upstream = await upstream_to(endpoint)
        await ask(upstream)
        assert not await upstream.is_ready_again()
        upstream.close()


@pytest.mark.parametrize(
    "late", [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", b""], ids=["an answer", "the end"]
)
async def test_it_is_not_used_again_when_something_came_while_nobody_asked(late: bytes) -> None:
    gate = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.until()
        await peer.send(ANSWER)
        await gate.wait()
        await peer.send(late)
        peer.end()
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


async def test_an_answer_that_came_before_a_reset_is_heard() -> None:
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


async def test_a_reset_without_an_answer_is_a_loss() -> None:
    async def behave(peer: Peer) -> None:
        await peer.until()
        peer.reset()

    async with origin(behave) as endpoint:
        upstream = await upstream_to(endpoint)
        await upstream.send(REQUEST, h11.EndOfMessage())
        with pytest.raises(UpstreamLost):
            await upstream.receive()
        upstream.abort()


CONNECT = {
    "a:443": ("a", 443),
    "a.b.example:1": ("a.b.example", 1),
    "a.example.:8443": ("a.example.", 8443),
    "10.0.0.1:65535": ("10.0.0.1", 65535),
    "[::1]:443": ("::1", 443),
    "[fd00::10:1]:6443": ("fd00::10:1", 6443),
    "under_score.svc:80": ("under_score.svc", 80),
}
NO_TARGETS = [
    *("", ":443", "a:", "a:0", "a:65536", "a:x", "a:+1", "a:-1", "a: 1", "a:1:2", "::1:443", "::1", "[::1]"),
    *("[::1", "[::1]443", "[a]:443", "[fe80::1%eth0]:1", "[fe80::1%25eth0]:1", "user@a:1", "a/b:1", "a..b:1", ".a:1"),
    *("http://a:1", "a%2e:1", "ä:1", "a?b:1", "a:1/", "x" * 255 + ":1", "a:00000443", "a:4\u0663"),
]


@pytest.mark.parametrize(("text", "place"), CONNECT.items())
def test_connect_names_a_host_and_a_port(text: str, place: tuple[str, int]) -> None:
    target = connect_target(text)
    assert (target.host, target.port, target.address) == (*place, text)


@pytest.mark.parametrize("text", NO_TARGETS)
def test_anything_else_is_refused_for_connect(text: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        connect_target(text)
    assert refusal.value.status == 400


def test_a_missing_port_is_refused_with_words_unless_there_is_a_default() -> None:
    with pytest.raises(BadRequest, match="the port is missing"):
        connect_target("a.example")
    assert connect_target("a.example", 80).port == 80
    assert connect_target("[::1]", 80).address == "[::1]:80"
    assert connect_target("a:443", 80).port == 443


URLS = {
    "http://a": ("a", 80, "a", "/"),
    "http://a/": ("a", 80, "a", "/"),
    "HTTP://A.Example/x": ("A.Example", 80, "A.Example", "/x"),
    "http://a:8080/x?y=/z": ("a", 8080, "a:8080", "/x?y=/z"),
    "http://a?q": ("a", 80, "a", "/?q"),
    "http://a:/x": ("a", 80, "a:", "/x"),
    "http://[::1]:81/x": ("::1", 81, "[::1]:81", "/x"),
    "http://a//b/../c;d@e:f": ("a", 80, "a", "//b/../c;d@e:f"),
}


@pytest.mark.parametrize(("text", "parts"), URLS.items())
def test_a_url_names_whom_to_dial_and_what_to_ask(text: str, parts: tuple[str, int, str, str]) -> None:
    target = absolute_target("GET", text)
    assert (target.host, target.port, target.authority, target.path) == parts


NO_URLS = [
    "/", "/x", "*", "a:443", "", "http:/a", "http://", "http:///x", "http://user:pw@a/", "http://a/#f", "http://[::1/",
    "ftp://a/", "https://a/", "http://a:b/", "http://a b/", "http://a\\b/", "//a/b", "http://a%00/",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_URLS)
def test_what_is_no_url_for_this_proxy_is_refused(text: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        absolute_target("GET", text)
    assert refusal.value.status == 400


def test_options_for_a_whole_server_is_asked_as_a_star() -> None:
    assert absolute_target("OPTIONS", "http://a").path == "*"
    assert absolute_target("OPTIONS", "http://a/").path == "/"


def test_a_host_field_is_a_host_or_empty() -> None:
    for good in ("", "a", "a:1", "[::1]:1", "a:"):
        check_host_field(good)
    for bad in ("a b", "a@b", "a/b", "a, b", "[a]"):
        with pytest.raises(BadRequest):
            check_host_field(bad)


ANSWER_REPLY = ProxyAnswer(502, "UMB501", "no connection to a:1", "refused", "look")


def parsed(raw: bytes, method: str = "GET") -> tuple[h11.Response, bytes]:
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(raw)
    head = reader.next_event()
    assert isinstance(head, h11.Response)
    event = reader.next_event()
    return head, bytes(event.data) if isinstance(event, h11.Data) else b""


def test_an_answer_is_three_lines_of_text_that_nobody_stores() -> None:
    head, body = parsed(ANSWER_REPLY.render())
    assert head.status_code == 502
    assert body == b"UMB501 no connection to a:1\n  why: refused\n  next: look\n"
    assert dict(head.headers)[b"content-type"] == b"text/plain; charset=utf-8"
    assert dict(head.headers)[b"connection"] == b"close"
    assert dict(head.headers)[b"cache-control"] == b"no-store"


def test_head_is_told_the_length_and_no_body() -> None:
    raw = ANSWER_REPLY.render("HEAD")
    assert raw.endswith(b"\r\n\r\n")
    head, body = parsed(raw, "HEAD")
    assert (dict(head.headers)[b"content-length"], body) == (b"56", b"")


@pytest.mark.parametrize("reason", list(DialReason))
def test_a_failed_dial_is_told_by_its_cause_and_never_as_our_own_fault(reason: DialReason) -> None:
    refused = undialled("a:1", DialFailed(reason, "server s", "said\r\nSet-Cookie: x"))
    report = REPORTS[reason]
    assert (refused.answer.status, refused.answer.code) == (report.http_status, report.code)
    assert refused.answer.status in (403, 502, 503, 504)
    assert refused.answer.why == "server s: said Set-Cookie: x"
    assert refused.result == reason.value


@pytest.mark.parametrize(
    ("status", "code", "result"),
    [
        (400, "UMB540", "bad-request"),
        (408, "UMB542", "bad-request"),
        (414, "UMB541", "bad-request"),
        (431, "UMB541", "bad-request"),
        (501, "UMB543", "unsupported"),
        (505, "UMB543", "unsupported"),
    ],
)
def test_a_bad_request_is_told_by_its_status(status: int, code: str, result: str) -> None:
    refused = malformed(BadRequest(status, "why"))
    assert (refused.answer.status, refused.answer.code, refused.result) == (status, code, result)


def test_heads_and_chunks_are_what_h11_reads() -> None:
    head = response_head(299, b"", [(b"Transfer-Encoding", b"chunked")])
    raw = head + b"".join(chunk(b"x" * 300)) + last_chunk([(b"X-Sum", b"1")])
    assert raw.startswith(b"HTTP/1.1 299 \r\n")
    assert parsed(raw)[1] == b"x" * 300


def test_connections_are_kept_for_the_same_host_and_port_and_kind() -> None:
    proxy = ProxyUrl("http", "a", 80)
    assert UpstreamRoute("A.example", 80).key == UpstreamRoute("a.EXAMPLE", 80).key
    assert (
        len(
            {
                UpstreamRoute("a", 80).key,
                UpstreamRoute("a", 81).key,
                UpstreamRoute("b", 80).key,
                UpstreamRoute("a", 80, proxy).key,
            }
        )
        == 4
    )
    assert UpstreamRoute("a", 80, proxy).key != UpstreamRoute("a", 80, ProxyUrl("https", "a", 80)).key


def test_a_proxy_is_shown_the_credentials_of_its_url_and_nobody_else() -> None:
    proxy = ProxyUrl("http", "p", 3128, "user", "p@ss")
    assert UpstreamRoute("p", 3128, proxy).fields == [(b"Proxy-Authorization", b"Basic dXNlcjpwQHNz")]
    assert UpstreamRoute("p", 3128, ProxyUrl("http", "p", 3128)).fields == []
    assert UpstreamRoute("p", 3128).fields == []


def test_a_routes_text_shows_no_credentials() -> None:
    assert "p@ss" not in repr(UpstreamRoute("p", 3128, ProxyUrl("http", "p", 3128, "user", "p@ss")))


HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


async def test_a_request_and_a_tunnel_are_one_line_each_without_paths(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        async with origin(answering(HELLO)) as endpoint, proxying({"a": endpoint.port}) as testbed:
            await testbed.ask(b"GET http://a/p?token=secret HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            client = await testbed.client()
            await client.send(b"CONNECT a:443 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
            client.end()
            await client.rest()
            client.close()
            async with asyncio.timeout(60):
                await testbed.listener.until_idle()
    lines = [record.getMessage() for record in caplog.records if record.name == "umbilical.tunnels"]
    assert "target=a:80 method=GET" in lines[0]
    assert "target=a:443 up=18 down=" in lines[1]
    assert "secret" not in caplog.text


async def test_a_storm_of_refusals_is_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        async with proxying({}) as testbed:
            testbed.router.failures["a"] = DialReason.REFUSED
            for _ in range(20):
                await testbed.ask(b"CONNECT a:443 HTTP/1.1\r\n\r\n")
    lines = [record for record in caplog.records if "UMB501" in record.getMessage()]
    assert len(lines) == 1
    assert "status=502: no connection to a:443" in lines[0].getMessage()
