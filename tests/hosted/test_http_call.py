"""One HTTP call through the tunnel, and its TLS."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.support.tunnel_pki import FolderAuthority

from umbilical.fault import HostedError
from umbilical.hosted.endpoint_tls import EndpointTls, endpoint_context, read, untrusting, words
from umbilical.hosted.http_call import HttpAnswer, HttpCall, HttpExchange, Pipe, Url, names, parse_url
from umbilical.tunnel.settings import TlsFiles

URL = Url("http", "node", 10250, "/metrics")


class ScriptedPipe(Pipe):
    """Returns scripted chunks, and keeps what was written."""

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


async def exchanged(chunks: list[bytes], call: HttpCall | None = None) -> tuple[HttpAnswer, bytes, bytes]:
    pipe = ScriptedPipe(chunks)
    exchange = HttpExchange(pipe)
    await exchange.send(call or HttpCall("GET", URL))
    answer = await exchange.answer()
    body = b"".join([octets async for octets in exchange.body()])
    return answer, body, pipe.written


def test_urls_are_read() -> None:
    for text, url, authority in (
        ("http://node", Url("http", "node", 80, "/"), "node"),
        ("https://node:443/a?b=c", Url("https", "node", 443, "/a?b=c"), "node"),
        ("https://10.0.0.1:10250/metrics", Url("https", "10.0.0.1", 10250, "/metrics"), "10.0.0.1:10250"),
        ("https://[fd00::1]:8443/x", Url("https", "fd00::1", 8443, "/x"), "[fd00::1]:8443"),
        ("http://node?q#fragment", Url("http", "node", 80, "/?q"), "node"),
    ):
        assert parse_url(text) == url
        assert url.authority == authority


def test_what_is_no_url_to_ask_for_is_refused() -> None:
    for text in (
        *("", "node", "node:80/x", "ftp://node/", "http://", "http://:80/", "http://node:port/", "http://node:99999/"),
        *("http://user@node/", "http://user:password@node/", "http://no de/", "http://[::1/"),
        "http://node/\r\nHost: x",
    ):
        with pytest.raises(ValueError) as error:
            parse_url(text)
        assert "password" not in str(error.value)


@given(st.text(max_size=60))
def test_any_text_is_a_url_or_a_value_error(text: str) -> None:
    try:
        url = parse_url(text)
    except ValueError:
        return
    assert url.host
    assert 0 < url.port <= 65535


async def test_a_request_is_complete_and_given_headers_win() -> None:
    call = HttpCall("POST", URL, (("host", "other"), ("X-More", "1")), b"body")
    _, _, written = await exchanged([b"HTTP/1.1 204 No Content\r\n\r\n"], call)
    head, _, body = written.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /metrics HTTP/1.1"
    assert [line for line in lines if line.lower().startswith("host")] == ["host: other"]
    assert {"Connection: close", "Accept: */*", "Content-Length: 4", "X-More: 1"} <= set(lines)
    assert body == b"body"
    assert names(call.headers) == {"host", "x-more"}


async def test_a_body_comes_whole_however_it_is_framed_and_cut() -> None:
    for size in (1000, 1):
        for framed in (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            b"HTTP/1.0 200 OK\r\n\r\nhello",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        ):
            answer, body, _ = await exchanged([framed[at : at + size] for at in range(0, len(framed), size)])
            assert (answer.status, body) == (200, b"hello")


async def test_the_head_is_shown_as_it_came_and_head_has_no_body() -> None:
    answer, _, _ = await exchanged([b"HTTP/1.1 404 Not Found\r\nX-Case: Kept\r\nContent-Length: 0\r\n\r\n"])
    assert answer.head == "HTTP/1.1 404 Not Found\r\nX-Case: Kept\r\nContent-Length: 0\r\n\r\n"
    answer, body, _ = await exchanged([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"], HttpCall("HEAD", URL))
    assert (answer.status, body) == (200, b"")


async def test_an_answer_that_is_none_or_not_whole_is_told() -> None:
    for chunks in (
        [],
        [b"SSH-2.0-OpenSSH\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", b"RESET"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
        [b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000],
    ):
        with pytest.raises(HostedError, match="UMB575"):
            await exchanged(chunks)


async def test_what_cannot_be_sent_is_told() -> None:
    with pytest.raises(HostedError, match="not valid HTTP"):
        await exchanged([], HttpCall("GET", URL, (("bad name", "x"),)))
    with pytest.raises(HostedError, match="Broken pipe"):
        await HttpExchange(ScriptedPipe([], BrokenPipeError(32, "Broken pipe"))).send(HttpCall("GET", URL))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_a_fault(octets: bytes) -> None:
    with contextlib.suppress(HostedError):
        asyncio.run(exchanged([octets]))


@pytest.fixture
def authority(tmp_path: Path) -> FolderAuthority:
    return FolderAuthority(tmp_path)


def test_an_authority_alone_is_trusted_or_without_one_the_machines(authority: FolderAuthority, tmp_path: Path) -> None:
    context = endpoint_context(EndpointTls(TlsFiles(authority=authority.certificate_file)))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1
    context = endpoint_context(EndpointTls(TlsFiles()))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_nothing_is_verified_when_that_was_asked_for_or_for_a_second_look(authority: FolderAuthority) -> None:
    for context in (
        endpoint_context(EndpointTls(TlsFiles(), is_verified=False)),
        untrusting(endpoint_context(EndpointTls(TlsFiles(authority=authority.certificate_file)))),
    ):
        assert context.verify_mode is ssl.CERT_NONE
        assert not context.check_hostname


def test_files_that_cannot_be_used_are_named(authority: FolderAuthority, tmp_path: Path) -> None:
    first, second = authority.client("first"), authority.client("second")
    missing = tmp_path / "missing.crt"
    for files in (
        TlsFiles(authority=missing),
        TlsFiles(missing, first.key),
        TlsFiles(first.certificate, second.key),
        TlsFiles(authority=first.key),
    ):
        with pytest.raises(HostedError) as fault:
            endpoint_context(EndpointTls(files))
        assert fault.value.code == "UMB577"
        assert str(tmp_path) in fault.value.what


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(authority: FolderAuthority, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    locked = tmp_path / "locked.key"
    key = ec.generate_private_key(ec.SECP256R1())
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    with pytest.raises(HostedError, match="encrypted"):
        endpoint_context(EndpointTls(TlsFiles(authority.client("somebody").certificate, locked)))


def test_errors_are_told_in_words_and_no_certificate_is_none() -> None:
    for error, said in (
        (TimeoutError(), "no answer in time"),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (ConnectionError(), "the connection was closed"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)"), "wrong version number"),
    ):
        assert said in words(error)
    assert read(None) is None
    assert read(b"") is None
    assert read(b"no certificate") is None
