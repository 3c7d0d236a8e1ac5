"""TLS between clients and the proxy itself."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemons import play
from tests.support.http_scene import LoopbackWays, Peer, answering, origin
from tests.support.tunnel_pki import FolderAuthority, Pair

from umbilical.proxies.https import HttpProxy
from umbilical.proxies.https_tls import TlsDoor
from umbilical.proxies.listener import Listener
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.settings import ListenerSettings
from umbilical.tunnel.errors import StartupError
from umbilical.tunnel.settings import ListenAddress, TlsFiles

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@pytest.fixture
def authority(tmp_path: Path) -> FolderAuthority:
    return FolderAuthority(tmp_path, "listener-ca")


@asynccontextmanager
async def door(files: TlsFiles, port: int, **settings: Any) -> AsyncIterator[Listener]:
    made = ListenerSettings(listen=(ListenAddress("127.0.0.1", 0),), **settings)
    metrics = ProxyMetrics()
    proxy = HttpProxy(LoopbackWays({"a": port}), made, metrics)
    listener = Listener(made, TlsDoor(proxy, made, files, metrics.certificates), metrics)
    listener.listen("the HTTP proxy")
    try:
        yield listener
    finally:
        await listener.close()
        await asyncio.sleep(0)


def files_of(pair: Pair, authority: Path | None = None) -> TlsFiles:
    return TlsFiles(pair.certificate, pair.key, authority)


async def client_of(listener: Listener, authority: FolderAuthority, pair: Pair | None = None) -> Peer:
    context = authority.client_context(pair)
    return Peer(await asyncio.open_connection(*listener.addresses[0], ssl=context, server_hostname="localhost"))


def test_requests_and_tunnels_pass_through_tls(authority: FolderAuthority) -> None:
    async def script() -> None:
        files = files_of(authority.serving("proxy"))
        async with origin(answering(HELLO)) as endpoint, door(files, endpoint.port) as listener:
            client = await client_of(listener, authority)
            await client.send(b"GET http://a/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert (await client.rest()).endswith(b"hello")
            client.close()
            client = await client_of(listener, authority)
            await client.send(b"CONNECT a:80 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
            assert await client.until(b"hello") == ESTABLISHED + HELLO
            client.close()

    play(script())


def test_the_first_bytes_of_a_handshake_are_never_lost(authority: FolderAuthority) -> None:
    """They may be there before the proxy has looked at the connection for the first time."""

    async def script() -> None:
        files = files_of(authority.serving("proxy"))
        async with origin(answering()) as endpoint, door(files, endpoint.port) as listener:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = authority.client_context(None).wrap_bio(incoming, outgoing, server_hostname="localhost")
            with pytest.raises(ssl.SSLWantReadError):
                tls.do_handshake()
            with socket.create_connection(listener.addresses[0], 60) as sock:
                sock.sendall(outgoing.read())  # all before the loop has turned once
                sock.setblocking(False)
                loop = asyncio.get_running_loop()
                async with asyncio.timeout(60):
                    while tls.version() is None or tls.cipher() is None:
                        incoming.write(await loop.sock_recv(sock, 65536))
                        try:
                            tls.do_handshake()
                        except ssl.SSLWantReadError:
                            continue
                assert tls.selected_alpn_protocol() is None

    play(script())


def test_a_client_without_a_certificate_is_turned_away_where_one_is_asked_for(authority: FolderAuthority) -> None:
    async def script() -> None:
        files = files_of(authority.serving("proxy"), authority.certificate_file)
        async with origin(answering(HELLO)) as endpoint, door(files, endpoint.port) as listener:
            request = b"GET http://a/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            stranger = await client_of(listener, authority)
            await stranger.send(request)
            with suppress(ssl.SSLError):  # the alert, or the reset behind it: whichever is first
                assert await stranger.rest() == b""
            stranger.close()
            assert endpoint.peers == []
            friend = await client_of(listener, authority, authority.client("friend"))
            await friend.send(request)
            assert (await friend.rest()).endswith(b"hello")
            friend.close()

    play(script())


def test_a_client_that_speaks_no_tls_or_nothing_at_all_is_let_go(authority: FolderAuthority) -> None:
    async def script() -> None:
        files = files_of(authority.serving("proxy"))
        async with origin(answering()) as endpoint, door(files, endpoint.port, handshake_seconds=0.1) as listener:
            for said in (b"GET http://a/ HTTP/1.1\r\n\r\n", b"", b"\x16\x03"):
                client = Peer(await asyncio.open_connection(*listener.addresses[0]))
                await client.send(said)
                assert b"HTTP" not in await client.rest()
                client.close()
            async with asyncio.timeout(60):
                await listener.until_idle()

    play(script())


def test_files_that_do_not_fit_keep_it_from_starting(authority: FolderAuthority) -> None:
    one, two = authority.serving("one"), authority.serving("two")
    settings = ListenerSettings(())
    metrics = ProxyMetrics()
    proxy = HttpProxy(LoopbackWays({}), settings, metrics)
    with pytest.raises(StartupError, match="key pair"):
        TlsDoor(proxy, settings, TlsFiles(one.certificate, two.key), metrics.certificates)
