"""A proxy as a process: before there is a tunnel, while it works, and its drain."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemons import answers, get, kill_self
from tests.support.http_testbed import Peer, answering, origin
from tests.support.proxy_process import TunnelMaker, running
from tests.support.proxy_testbed import ask, connect_request, drop, echo, endpoint, eventually, rest_of
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import FolderAuthority

from umbilical.dialer.settings import DialerSettings, UnixServer
from umbilical.dialer.streams import Opener, Streams
from umbilical.fault import StartupError
from umbilical.proxies import process
from umbilical.proxies.https_process import run_https, through_tunnel
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.process import DeferredOutbound, run_proxy
from umbilical.proxies.proxy_connect import ProxyUrl
from umbilical.proxies.proxy_rules import ProxyRules
from umbilical.proxies.settings import HttpsSettings, ListenerSettings, OutboundSettings, Socks5Settings
from umbilical.proxies.socks5 import Socks5, run_socks5
from umbilical.tunnel.settings import ListenAddress, TlsFiles

MISSING = StartupError("UMB022", "cannot load the CA", "open ca.crt: no such file or directory", "give it")
HALF = StartupError("UMB021", "cannot load the CA", "there is no PEM certificate in it", "give it")
WRONG = StartupError("UMB537", "names cannot be resolved", "no kubeconfig", "give it")


def _settings(**settings: Any) -> ListenerSettings:
    values: dict[str, Any] = {
        "listen": (ListenAddress("127.0.0.1", free_port()),),
        "health": ListenAddress("127.0.0.1", free_port()),
    }
    return ListenerSettings(**(values | settings))


def _health(settings: ListenerSettings) -> ListenAddress:
    assert settings.health is not None
    return settings.health


async def _run(settings: ListenerSettings, maker: TunnelMaker) -> int:
    def make_service(opener: Opener, metrics: ProxyMetrics) -> Socks5:
        return Socks5(settings, opener, metrics, None)

    return await run_proxy(settings, maker, make_service, "SOCKS5")


async def _client(settings: ListenerSettings) -> Streams:
    return await asyncio.open_connection("127.0.0.1", settings.listen[0].port)


async def test_it_is_ready_when_a_server_was_reached_and_says_so_in_its_metrics() -> None:
    settings, maker = _settings(), TunnelMaker()
    async with running(_run(settings, maker), settings.listen[0].port) as task:
        await answers(_health(settings), "/readyz", 200)
        await eventually(lambda: ("127.0.0.1", 1) in maker.outbound.asked)
        assert "umbilical_proxy_tunnel_healthy 1" in (await get(_health(settings), "/metrics"))[1]
    assert task.result() == 0
    assert maker.outbound.closed == 2


async def test_it_listens_before_its_files_are_there_and_waits_for_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "FILES_SECONDS", 0.01)
    monkeypatch.setattr(process, "FILES_TRIES", 1_000_000)

    settings, maker = _settings(), TunnelMaker(*[MISSING] * 3, HALF, *[MISSING] * 1_000_000)
    async with endpoint(echo) as port, running(_run(settings, maker), settings.listen[0].port):
        await eventually(lambda: maker.calls > 6)
        assert (await get(_health(settings), "/livez"))[0] == 200
        status, text = await get(_health(settings), "/readyz")
        assert (status, "no such file" in text) == (503, True)
        client = await _client(settings)
        assert await ask(client, "127.0.0.1", port) == 1
        await drop(client)
        maker.faults = []
        await answers(_health(settings), "/readyz", 200)
        client = await _client(settings)
        assert await ask(client, "127.0.0.1", port) == 0
        await drop(client)
    assert [record.getMessage()[:14] for record in caplog.records if "waiting for file:" in record.getMessage()] == [
        "UMB022 waiting",
        "UMB021 waiting",
        "UMB022 waiting",
    ]


async def test_files_that_never_come_end_the_process_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "FILES_SECONDS", 0.0)
    monkeypatch.setattr(process, "FILES_TRIES", 5)

    maker = TunnelMaker(*[MISSING] * 100)
    with pytest.raises(StartupError, match="no such file"):
        await _run(_settings(), maker)


async def test_the_waits_between_looks_for_files_are_bounded() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    late = DeferredOutbound(TunnelMaker(*[MISSING] * 10_000), ProxyMetrics())
    with pytest.raises(StartupError):
        await late.run(sleep)
    assert pauses == [process.FILES_SECONDS] * process.FILES_TRIES


async def test_what_will_be_as_wrong_in_an_hour_ends_it_before_it_listens() -> None:
    settings, maker = _settings(), TunnelMaker(WRONG)
    with pytest.raises(StartupError) as fault:
        await _run(settings, maker)
    assert fault.value.code == "UMB537"
    assert maker.calls == 1


async def test_after_a_signal_whoever_is_here_may_finish_and_nobody_comes() -> None:
    settings, maker = _settings(), TunnelMaker()
    async with endpoint(echo) as port, running(_run(settings, maker), settings.listen[0].port) as task:
        await answers(_health(settings), "/readyz", 200)
        client = await _client(settings)
        assert await ask(client, "127.0.0.1", port) == 0
        kill_self()
        await answers(_health(settings), "/readyz", 503)
        assert (await get(_health(settings), "/livez"))[0] == 200
        assert (await get(_health(settings), "/readyz"))[1] == "not ready: draining\n"
        with pytest.raises(OSError):
            await _client(settings)
        client[1].write(b"still here")
        assert await client[0].readexactly(10) == b"still here"
        assert not task.done()
        await drop(client)
        assert await asyncio.wait_for(task, 60) == 0


async def test_the_patience_of_a_drain_ends(caplog: pytest.LogCaptureFixture) -> None:
    settings, maker = _settings(drain_seconds=0.05), TunnelMaker()
    async with endpoint(echo) as port, running(_run(settings, maker), settings.listen[0].port) as task:
        client = await _client(settings)
        assert await ask(client, "127.0.0.1", port) == 0
        kill_self()
        assert await rest_of(client[0]) == b""
        assert await asyncio.wait_for(task, 60) == 0
        await drop(client)
    assert "drain ended with 1 connections open" in caplog.text


async def test_a_second_signal_ends_the_patience() -> None:
    settings, maker = _settings(drain_seconds=3600.0), TunnelMaker()
    async with endpoint(echo) as port, running(_run(settings, maker), settings.listen[0].port) as task:
        client = await _client(settings)
        assert await ask(client, "127.0.0.1", port) == 0
        kill_self()
        await answers(_health(settings), "/readyz", 503)
        kill_self()
        assert await asyncio.wait_for(task, 60) == 1
        assert await rest_of(client[0]) == b""
        await drop(client)


HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
OUTBOUND = OutboundSettings(DialerSettings((UnixServer(Path("/nowhere")),)))


def settings(port: int, health: int = 0, **values: Any) -> HttpsSettings:
    listener = ListenerSettings(
        (ListenAddress("127.0.0.1", port),), health=ListenAddress("127.0.0.1", health) if health else None
    )
    return HttpsSettings(listener, OUTBOUND, **values)


async def told(port: int, request: bytes, **tls: Any) -> bytes:
    client = Peer(await asyncio.open_connection("127.0.0.1", port, **tls))
    await client.send(request)
    answer = await client.rest()
    client.close()
    return answer


async def test_it_serves_counts_and_is_ready(tmp_path: Path) -> None:
    where, health, maker = free_port(), free_port(), TunnelMaker()
    async with origin(answering(HELLO)) as endpoint, running(run_https(settings(where, health), maker), where):
        url = f"http://127.0.0.1:{endpoint.port}/".encode()
        answer = await told(where, b"GET " + url + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer.endswith(b"hello")
        status, metrics = await get(ListenAddress("127.0.0.1", health), "/metrics")
        assert status == 200
        assert 'umbilical_proxy_requests_total{protocol="http",result="ok"} 1' in metrics
        assert (await get(ListenAddress("127.0.0.1", health), "/livez"))[0] == 200


async def test_the_users_proxy_is_read_from_a_file_and_reached_through_the_tunnel(tmp_path: Path) -> None:
    where, maker = free_port(), TunnelMaker()
    maker.outbound.names["proxy.corp"] = "127.0.0.1"
    async with origin(answering(HELLO)) as proxy:
        url = tmp_path / "HTTP_PROXY"
        url.write_text(f"http://user:p%40ss@proxy.corp:{proxy.port}\n")
        async with running(run_https(settings(where, http_proxy_file=url), maker), where):
            request = b"GET http://a.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            assert (await told(where, request)).endswith(b"hello")
            assert maker.outbound.asked[-1] == ("proxy.corp", proxy.port)
            assert proxy.peers[0].seen.startswith(b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n")
            assert b"Proxy-Authorization: Basic dXNlcjpwQHNz\r\n" in proxy.peers[0].seen


async def test_it_speaks_tls_with_clients_if_it_has_a_certificate(tmp_path: Path) -> None:
    authority = FolderAuthority(tmp_path, "ca")
    serving = authority.serving("proxy")

    where, maker = free_port(), TunnelMaker()
    tls = TlsFiles(serving.certificate, serving.key)
    async with origin(answering(HELLO)) as endpoint, running(run_https(settings(where, listen_tls=tls), maker), where):
        url = f"http://127.0.0.1:{endpoint.port}/".encode()
        context = authority.client_context(None)
        request = b"GET " + url + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert (await told(where, request, ssl=context, server_hostname="localhost")).endswith(b"hello")


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"http_proxy": "socks5://p:1"}, "UMB532"),
        ({"https_proxy": "http://"}, "UMB531"),
        ({"https_proxy_file": Path("/nowhere/HTTPS_PROXY")}, "UMB548"),
        ({"proxy_authority": Path("/nowhere/ca")}, "UMB533"),
    ],
)
async def test_what_cannot_be_used_keeps_it_from_starting(values: dict[str, Any], code: str) -> None:
    with pytest.raises(StartupError) as fault:
        await run_https(settings(free_port(), **values), TunnelMaker())
    assert fault.value.code == code


def test_a_users_proxy_under_a_clouds_domain_is_still_behind_the_tunnel() -> None:
    rules = ProxyRules(None, ProxyUrl("http", "proxy.azure.com", 3128), "")
    assert through_tunnel(OUTBOUND, rules).never_direct == ("proxy.azure.com",)
    assert through_tunnel(OUTBOUND, rules).dialer == OUTBOUND.dialer


def _settings_process(port: int, credentials: Path | None = None) -> Socks5Settings:
    listener = ListenerSettings((ListenAddress("127.0.0.1", port),))
    outbound = OutboundSettings(DialerSettings((UnixServer(Path("/nowhere")),)))
    return Socks5Settings(listener, outbound, credentials)


async def test_with_a_file_of_credentials_a_password_is_asked_for(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ann:s3cret\n")

    where, maker = free_port(), TunnelMaker()
    async with endpoint(echo) as port, running(run_socks5(_settings_process(where, users), maker), where):
        reader, writer = await asyncio.open_connection("127.0.0.1", where)
        writer.write(b"\x05\x01\x00")
        assert await rest_of(reader) == b"\x05\xff"
        await drop((reader, writer))
        reader, writer = await asyncio.open_connection("127.0.0.1", where)
        writer.write(b"\x05\x01\x02\x01\x03ann\x06s3cret" + connect_request("127.0.0.1", port) + b"hello")
        assert (await reader.readexactly(4 + 10 + 5))[-5:] == b"hello"
        await drop((reader, writer))


async def test_a_file_that_cannot_be_used_keeps_it_from_starting(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="credentials"):
        await run_socks5(_settings_process(free_port(), tmp_path / "users"), TunnelMaker())
