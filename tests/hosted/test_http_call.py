"""One HTTP exchange: URLs, complete requests, answers in every framing and one byte at a time, and broken ones."""

import asyncio
import contextlib
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given

from umbilical.hosted.errors import HostedError
from umbilical.hosted.http_call import Answer, Call, Exchange, Url, names, parse_url
from umbilical.hosted.pipe import Pipe

URL = Url("http", "node", 10250, "/metrics")


class ScriptedPipe(Pipe):
    """Hands out chunks as a network would, and keeps what was written."""

    def __init__(self, chunks: list[bytes], write_error: OSError | None = None) -> None:
        self.chunks = list(chunks)
        self.written = b""
        self._write_error = write_error

    async def read(self) -> bytes:
        if not self.chunks:
            return b""
        chunk = self.chunks.pop(0)
        if chunk == b"RESET":
            raise ConnectionResetError(104, "Connection reset by peer")
        return chunk

    async def write(self, payload: bytes) -> None:
        if self._write_error is not None:
            raise self._write_error
        self.written += payload

    def close(self) -> None:
        """There is nothing to close."""


def exchanged(chunks: list[bytes], call: Call | None = None) -> tuple[Answer, bytes, bytes]:
    async def scenario() -> tuple[Answer, bytes, bytes]:
        pipe = ScriptedPipe(chunks)
        exchange = Exchange(pipe)
        await exchange.send(call or Call("GET", URL))
        answer = await exchange.answer()
        body = b"".join([octets async for octets in exchange.body()])
        return answer, body, pipe.written

    return asyncio.run(scenario())


def whole(text: bytes) -> list[bytes]:
    return [text]


def bytewise(text: bytes) -> list[bytes]:
    return [text[n : n + 1] for n in range(len(text))]


@pytest.mark.parametrize(
    ("text", "url", "authority"),
    [
        ("http://node", Url("http", "node", 80, "/"), "node"),
        ("https://node:443/a?b=c", Url("https", "node", 443, "/a?b=c"), "node"),
        ("https://10.0.0.1:10250/metrics", Url("https", "10.0.0.1", 10250, "/metrics"), "10.0.0.1:10250"),
        ("https://[fd00::1]:8443/x", Url("https", "fd00::1", 8443, "/x"), "[fd00::1]:8443"),
        ("http://node?q#fragment", Url("http", "node", 80, "/?q"), "node"),
    ],
)
def test_urls_are_read(text: str, url: Url, authority: str) -> None:
    assert parse_url(text) == url
    assert url.authority == authority


@pytest.mark.parametrize(
    "text",
    [
        *("", "node", "node:80/x", "ftp://node/", "http://", "http://:80/", "http://node:port/", "http://node:99999/"),
        *(
            "http://user@node/",
            "http://user:password@node/",
            "http://no de/",
            "http://node/\r\nHost: x",
            "http://[::1/",
        ),
    ],
)
def test_what_is_no_url_to_ask_for_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_url(text)


def test_a_password_is_not_in_the_refusal() -> None:
    with pytest.raises(ValueError) as error:
        parse_url("http://user:sesame@node/")
    assert "sesame" not in str(error.value)


@given(st.text(max_size=60))
def test_any_text_is_a_url_or_a_value_error(text: str) -> None:
    try:
        url = parse_url(text)
    except ValueError:
        return
    assert url.host
    assert 0 < url.port <= 65535


def test_a_request_is_complete_and_given_headers_win() -> None:
    call = Call("POST", URL, (("host", "other"), ("X-More", "1")), b"body")
    _, _, written = exchanged(whole(b"HTTP/1.1 204 No Content\r\n\r\n"), call)
    head, _, body = written.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /metrics HTTP/1.1"
    assert [line for line in lines if line.lower().startswith("host")] == ["host: other"]
    assert {"Connection: close", "Accept: */*", "Content-Length: 4", "X-More: 1"} <= set(lines)
    assert body == b"body"
    assert names(call.headers) == {"host", "x-more"}


@pytest.mark.parametrize("cut", [whole, bytewise])
@pytest.mark.parametrize(
    "framed",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
def test_a_body_comes_whole_however_it_is_framed_and_cut(framed: bytes, cut: Callable[[bytes], list[bytes]]) -> None:
    answer, body, _ = exchanged(cut(framed))
    assert (answer.status, body) == (200, b"hello")


def test_a_head_is_shown_as_it_came() -> None:
    answer, _, _ = exchanged(whole(b"HTTP/1.1 404 Not Found\r\nX-Case: Kept\r\nContent-Length: 0\r\n\r\n"))
    assert answer.head == "HTTP/1.1 404 Not Found\r\nX-Case: Kept\r\nContent-Length: 0\r\n\r\n"


def test_the_answer_to_head_has_no_body() -> None:
    answer, body, _ = exchanged(whole(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), Call("HEAD", URL))
    assert (answer.status, body) == (200, b"")


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [b"SSH-2.0-OpenSSH\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", b"RESET"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
        [b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000],
    ],
)
def test_an_answer_that_is_none_or_not_whole_is_told(chunks: list[bytes]) -> None:
    with pytest.raises(HostedError) as fault:
        exchanged(chunks)
    assert fault.value.code == "UMB575"


def test_headers_that_are_none_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(HostedError, match="no HTTP request"):
        exchanged([], Call("GET", URL, (("bad name", "x"),)))


def test_a_connection_that_breaks_while_we_write_is_told() -> None:
    async def scenario() -> None:
        await Exchange(ScriptedPipe([], BrokenPipeError(32, "Broken pipe"))).send(Call("GET", URL))

    with pytest.raises(HostedError, match="Broken pipe"):
        asyncio.run(scenario())


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_a_fault(octets: bytes) -> None:
    with contextlib.suppress(HostedError):
        exchanged(whole(octets))
