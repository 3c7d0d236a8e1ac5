"""CONNECT through a proxy: its URL, its TLS, its answers."""

import asyncio
import base64
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.proxies.name_testbed import ScriptedTunnel, pipe
from tests.proxies.proxy_testbed import ESTABLISHED, Loopback, ScriptedProxy, tls_in_front_of
from tests.support.coroutines import play
from tests.support.tunnel_pki import FolderAuthority

from umbilical.dialer import connect as dialer_connect
from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.streams import Streams
from umbilical.fault import StartupError
from umbilical.proxies import proxy_connect
from umbilical.proxies.direct import connect
from umbilical.proxies.proxy_connect import ProxyTls, ProxyUrl, connect_through, parse_proxy_url


def url(text: str) -> ProxyUrl:
    found = parse_proxy_url(text, "--https-proxy")
    assert found is not None
    return found


async def through(proxy: ScriptedProxy, text: str = "p.example", tls: ProxyTls | None = None) -> Streams:
    """Open h.example:443 through a proxy with this URL."""
    return await connect_through(url(text), Loopback(proxy.port), "h.example", 443, tls or ProxyTls())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://proxy.example", "http://proxy.example:80"),
        ("https://proxy.example", "https://proxy.example:443"),
        ("HTTP://Proxy.Example:3128/", "http://proxy.example:3128"),
        ("proxy.example:3128", "http://proxy.example:3128"),
        ("10.0.0.1:3128", "http://10.0.0.1:3128"),
        ("http://[fd00::1]:3128", "http://[fd00::1]:3128"),
        ("me:secret@proxy.example", "http://proxy.example:80"),
    ],
)
def test_a_url_has_its_default_port_and_its_text_no_credentials(text: str, shown: str) -> None:
    assert str(url(text)) == shown
    assert repr(url(text)) == f"ProxyUrl({shown})"


@pytest.mark.parametrize(
    ("text", "credentials"),
    [
        ("http://proxy.example", None),
        ("http://me:secret@proxy.example", "me:secret"),
        ("http://me@proxy.example", "me:"),
        ("http://me:@proxy.example", "me:"),
        ("http://me%40corp:p%40ss%3Aw%2Frd%25@proxy.example", "me@corp:p@ss:w/rd%"),
        ("http://j%C3%BCrgen:stra%C3%9Fe@proxy.example", "jürgen:straße"),
    ],
)
def test_credentials_are_decoded_once(text: str, credentials: str | None) -> None:
    expected = "" if credentials is None else "Basic " + base64.b64encode(credentials.encode()).decode()
    assert url(text).authorization == expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("socks5://me:s3cret@proxy.example:1080", "UMB532"),
        ("ftp://me:s3cret@proxy.example", "UMB532"),
        ("http://me:s3cret@proxy.example:port", "UMB531"),
        ("http://me:s3cret@proxy.example:99999", "UMB531"),
        ("http://me:s3cret@", "UMB531"),
        ("http://me:s3cret@[fd00::1", "UMB531"),
        ("http://me:s3cret@pro xy.example", "UMB531"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_in_three_lines_that_do_not_show_it(text: str, code: str) -> None:
    with pytest.raises(StartupError) as caught:
        url(text)
    error = caught.value
    assert error.code == code
    assert error.what.startswith("--https-proxy ")
    assert "s3cret" not in f"{error.what} {error.why} {error.remedy}"


@given(st.text(max_size=60))
def test_any_text_is_a_proxy_or_is_refused(text: str) -> None:
    try:
        found = parse_proxy_url(text, "--https-proxy")
    except StartupError:
        return
    assert found is None or (found.host and 0 <= found.port < 65536)


async def test_the_endpoint_is_asked_for_by_name_with_credentials_and_its_first_bytes_are_kept() -> None:
    async with ScriptedProxy(ESTABLISHED + b"220 mail.corp.example\r\n") as proxy:
        opener = Loopback(proxy.port)
        target = url("http://me:p%40ss@proxy.example:3128")
        reader, writer = await connect_through(target, opener, "mail.corp.example", 25, ProxyTls())
        assert await reader.readline() == b"220 mail.corp.example\r\n"
        writer.write(b"EHLO")
        assert await reader.readexactly(4) == b"EHLO"
        writer.close()
        assert opener.dials == [("proxy.example", 3128)]
        (head,) = proxy.requests
        assert head.startswith("CONNECT mail.corp.example:25 HTTP/1.1\r\nHost: mail.corp.example:25\r\n")
        assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:p@ss').decode()}\r\n" in head


async def test_without_credentials_none_are_sent_and_an_ipv6_endpoint_stands_in_brackets() -> None:
    async with ScriptedProxy() as proxy:
        _, writer = await connect_through(url("proxy.example"), Loopback(proxy.port), "fd00::1", 443, ProxyTls())
        writer.close()
        assert proxy.requests == ["CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\n\r\n"]


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.0 200 OK\r\nVia: 1.0 squid\r\n\r\n",
        b"HTTP/1.1 204 Fine\n\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + ESTABLISHED,
    ],
    ids=["1.0", "bare-lf", "after-100"],
)
async def test_any_success_opens_the_tunnel(reply: bytes) -> None:
    async with ScriptedProxy(reply) as proxy:
        reader, writer = await through(proxy)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()


def refusal(reply: bytes, *, closes: bool = True) -> DialFailed:
    async def scenario() -> DialFailed:
        async with ScriptedProxy(reply) as proxy:
            proxy.closes = closes
            with pytest.raises(DialFailed) as caught:
                await through(proxy, "me:s3cret@p.example")
            return caught.value

    return play(scenario())


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("403 Forbidden", DialReason.FORBIDDEN),
        ("407 Proxy Authentication Required", DialReason.FORBIDDEN),
        ("502 Bad Gateway", DialReason.PROXY),
        ("503 Service Unavailable", DialReason.PROXY),
        ("302 Found", DialReason.PROXY),
        ("101 Switching Protocols", DialReason.PROXY),
    ],
)
def test_a_refusal_is_told_with_its_status_and_its_text(status: str, reason: DialReason) -> None:
    failure = refusal(f"HTTP/1.1 {status}\r\nContent-Length: 12\r\n\r\nask the boss".encode())
    assert failure.reason is reason
    assert failure.hop == "proxy http://p.example:80"
    assert failure.text == f"refused CONNECT h.example:443: {status}: ask the boss"


def test_only_the_beginning_of_a_long_refusal_is_shown_on_one_line() -> None:
    body = b"<html>\r\n\x1b[31m" + b"no " * 400
    failure = refusal(b"HTTP/1.1 403 Forbidden\r\n\r\n" + body)
    assert "\n" not in failure.text
    assert "\x1b" not in failure.text
    assert len(failure.text) < 600
    assert "no no no" in failure.text


@pytest.mark.parametrize("length", ["9" * 5000, "many", "-1", "٣"])
def test_a_length_that_is_none_does_not_hide_the_text_of_a_refusal(length: str) -> None:
    failure = refusal(f"HTTP/1.1 403 Forbidden\r\nContent-Length: {length}\r\n\r\nask the boss".encode())
    assert failure.text.endswith("403 Forbidden: ask the boss")


def test_a_refusal_whose_text_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer_connect, "BODY_SECONDS", 0.01)
    failure = refusal(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 99\r\n\r\npart", closes=False)
    assert failure.text.endswith("403 Forbidden: part") or failure.text.endswith("403 Forbidden")


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200000,
    ],
    ids=["nothing", "half", "ssh", "no-status", "endless-line"],
)
def test_what_is_no_answer_is_the_proxys_failure(reply: bytes) -> None:
    assert refusal(reply).reason is DialReason.PROXY


def test_a_proxy_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_connect, "REPLY_SECONDS", 0.01)
    failure = refusal(b"", closes=False)
    assert failure.reason is DialReason.PROXY
    assert "no answer to CONNECT within" in failure.text


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (DialReason.REFUSED, DialReason.PROXY),
        (DialReason.NAME, DialReason.PROXY),
        (DialReason.TIMEOUT, DialReason.PROXY),
        (DialReason.UNREACHABLE, DialReason.PROXY),
        (DialReason.NO_AGENT, DialReason.NO_AGENT),
        (DialReason.SERVER, DialReason.SERVER),
    ],
)
async def test_a_proxy_that_cannot_be_reached_is_not_mistaken_for_the_endpoint(
    reason: DialReason, told: DialReason
) -> None:
    opener = ScriptedTunnel({"p.example": reason})
    with pytest.raises(DialFailed) as caught:
        await connect_through(url("p.example"), opener, "h.example", 443, ProxyTls())
    assert caught.value.reason is told


async def test_a_host_that_cannot_stand_in_a_request_is_refused_before_anybody_is_dialled() -> None:
    opener = ScriptedTunnel()
    with pytest.raises(DialFailed) as caught:
        await connect_through(url("p.example"), opener, "h.example\r\nX: y", 443, ProxyTls())
    assert caught.value.reason is DialReason.NAME
    assert opener.dials == []


@pytest.fixture
def authority(tmp_path: Path) -> FolderAuthority:
    return FolderAuthority(tmp_path)


def serving(authority: FolderAuthority, *names: str) -> ssl.SSLContext:
    return authority.server_context(authority.serving(f"serving-{names[0]}", names))


async def test_each_proxy_is_verified_by_the_name_in_its_own_url(authority: FolderAuthority) -> None:
    tls = ProxyTls(authority.certificate_file)
    for name in ("one.example", "two.example", "127.0.0.1"):
        async with ScriptedProxy(ESTABLISHED + b"early", serving(authority, name)) as proxy:
            reader, writer = await through(proxy, f"https://me:secret@{name}", tls)
            assert await reader.readexactly(5) == b"early"
            writer.write(b"x" * 300_000)
            assert await reader.readexactly(300_000) == b"x" * 300_000
            writer.close()


async def test_a_certificate_for_another_name_or_of_another_authority_gets_no_credentials(
    authority: FolderAuthority, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    stranger = FolderAuthority(other)
    for context in (serving(authority, "two.example"), serving(stranger, "one.example")):
        async with ScriptedProxy(ESTABLISHED, context) as proxy:
            with pytest.raises(DialFailed) as caught:
                await through(proxy, "https://me:secret@one.example", ProxyTls(authority.certificate_file))
            assert caught.value.reason is DialReason.PROXY
            assert caught.value.text.startswith("TLS: ")
            assert proxy.requests == []


async def test_without_an_extra_authority_the_systems_are_asked(authority: FolderAuthority) -> None:
    async with ScriptedProxy(ESTABLISHED, serving(authority, "one.example")) as proxy:
        with pytest.raises(DialFailed, match="TLS: "):
            await through(proxy, "https://one.example")


async def test_tls_to_the_proxy_goes_over_tls_that_is_there_already(authority: FolderAuthority) -> None:
    """As through a tunnel: one TLS ends at the server, the other at the proxy."""

    tls = ProxyTls(authority.certificate_file)
    inner, outer = serving(authority, "one.example"), serving(authority, "server.example")
    async with ScriptedProxy(ESTABLISHED + b"early", inner) as proxy, tls_in_front_of(proxy.port, outer) as port:

        async def tunnelled() -> Streams:
            return await tls.wrap(await connect("127.0.0.1", port), "server.example")

        opener = ScriptedTunnel({"one.example": tunnelled})
        reader, writer = await connect_through(url("https://one.example"), opener, "h.example", 443, tls)
        assert await reader.readexactly(5) == b"early"
        writer.write(b"y" * 600_000)
        assert await reader.readexactly(600_000) == b"y" * 600_000
        writer.close()


@pytest.mark.parametrize(
    ("said", "seconds", "words"),
    [
        ("", 0.01, "no TLS handshake within"),
        ("HTTP/1.1 400 Bad Request\r\n\r\n", 50.0, "TLS"),
        ("its end", 50.0, "TLS"),
    ],
    ids=["nothing", "HTTP", "its end"],
)
async def test_a_proxy_that_does_not_speak_tls_is_told_so(
    said: str, seconds: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_connect, "HANDSHAKE_SECONDS", seconds)
    ours, (_, theirs) = await pipe()
    if said == "its end":
        theirs.close()
        await asyncio.sleep(0)
    else:
        theirs.write(said.encode())

    async def opened() -> Streams:
        return ours

    with pytest.raises(DialFailed, match=words) as caught:
        await connect_through(
            url("https://one.example"), ScriptedTunnel({"one.example": opened}), "h.example", 443, ProxyTls()
        )
    theirs.close()
    assert caught.value.reason is DialReason.PROXY


@pytest.mark.parametrize("content", [None, "no certificate\n"], ids=["missing", "empty"])
def test_a_file_without_authorities_is_refused_at_the_start(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "extra.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StartupError) as caught:
        ProxyTls(path)
    assert caught.value.code == "UMB533"
