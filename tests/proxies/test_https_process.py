"""The HTTP proxy as a process: the user's proxy from a file, TLS for clients, and a tunnel of the test's own."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemons import get, play
from tests.support.http_scene import Peer, answering, origin
from tests.support.proxy_process import TunnelMaker, running
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import FolderAuthority

from umbilical.dialer.settings import DialerSettings, UnixServer
from umbilical.proxies.environment_proxy import ProxyRules
from umbilical.proxies.https_process import run_https, through_tunnel
from umbilical.proxies.proxy_connect import ProxyUrl
from umbilical.proxies.settings import HttpsSettings, ListenerSettings, OutboundSettings
from umbilical.tunnel.errors import StartupError
from umbilical.tunnel.settings import ListenAddress, TlsFiles

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
OUTBOUND = OutboundSettings(DialerSettings((UnixServer(Path("/nowhere")),)))


def settings(port: int, health: int = 0, **values: Any) -> HttpsSettings:
    listener = ListenerSettings(
        (ListenAddress("127.0.0.1", port),), health=ListenAddress("127.0.0.1", health) if health else None
    )
    return HttpsSettings(listener, OUTBOUND, **values)


async def ask(port: int, request: bytes, **tls: Any) -> bytes:
    client = Peer(await asyncio.open_connection("127.0.0.1", port, **tls))
    await client.send(request)
    answer = await client.rest()
    client.close()
    return answer


def test_it_serves_counts_and_is_ready(tmp_path: Path) -> None:
    async def script() -> None:
        where, health, maker = free_port(), free_port(), TunnelMaker()
        async with origin(answering(HELLO)) as endpoint, running(run_https(settings(where, health), maker), where):
            url = f"http://127.0.0.1:{endpoint.port}/".encode()
            answer = await ask(where, b"GET " + url + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert answer.endswith(b"hello")
            status, metrics = await get(ListenAddress("127.0.0.1", health), "/metrics")
            assert status == 200
            assert 'umbilical_proxy_requests_total{protocol="http",result="ok"} 1' in metrics
            assert (await get(ListenAddress("127.0.0.1", health), "/livez"))[0] == 200

    play(script())


def test_the_users_proxy_is_read_from_a_file_and_reached_through_the_tunnel(tmp_path: Path) -> None:
    async def script() -> None:
        where, maker = free_port(), TunnelMaker()
        maker.outlet.names["proxy.corp"] = "127.0.0.1"
        async with origin(answering(HELLO)) as proxy:
            url = tmp_path / "HTTP_PROXY"
            url.write_text(f"http://user:p%40ss@proxy.corp:{proxy.port}\n")
            async with running(run_https(settings(where, http_proxy_file=url), maker), where):
                request = b"GET http://a.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                assert (await ask(where, request)).endswith(b"hello")
                assert maker.outlet.asked[-1] == ("proxy.corp", proxy.port)
                assert proxy.peers[0].seen.startswith(b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n")
                assert b"Proxy-Authorization: Basic dXNlcjpwQHNz\r\n" in proxy.peers[0].seen

    play(script())


def test_it_speaks_tls_with_clients_if_it_has_a_certificate(tmp_path: Path) -> None:
    authority = FolderAuthority(tmp_path, "ca")
    serving = authority.serving("proxy")

    async def script() -> None:
        where, maker = free_port(), TunnelMaker()
        tls = TlsFiles(serving.certificate, serving.key)
        async with (
            origin(answering(HELLO)) as endpoint,
            running(run_https(settings(where, listen_tls=tls), maker), where),
        ):
            url = f"http://127.0.0.1:{endpoint.port}/".encode()
            context = authority.client_context(None)
            request = b"GET " + url + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            assert (await ask(where, request, ssl=context, server_hostname="localhost")).endswith(b"hello")

    play(script())


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"http_proxy": "socks5://p:1"}, "UMB532"),
        ({"https_proxy": "http://"}, "UMB531"),
        ({"https_proxy_file": Path("/nowhere/HTTPS_PROXY")}, "UMB548"),
        ({"proxy_authority": Path("/nowhere/ca")}, "UMB533"),
    ],
)
def test_what_cannot_be_used_keeps_it_from_starting(values: dict[str, Any], code: str) -> None:
    async def script() -> None:
        with pytest.raises(StartupError) as fault:
            await run_https(settings(free_port(), **values), TunnelMaker())
        assert fault.value.code == code

    play(script())


def test_a_users_proxy_under_a_clouds_domain_is_still_behind_the_tunnel() -> None:
    rules = ProxyRules(None, ProxyUrl("http", "proxy.azure.com", 3128), "")
    assert through_tunnel(OUTBOUND, rules).never_direct == ("proxy.azure.com",)
    assert through_tunnel(OUTBOUND, rules).dialer == OUTBOUND.dialer
