"""CONNECT through the proxy; accepted, refused and closed connections."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.http_testbed import LoopbackRouter, Peer, answering, between, origin, proxying
from tests.support.tunnel_pki import FolderAuthority, Pair

from umbilical.dialer.failure import REPORTS, DialReason
from umbilical.fault import StartupError
from umbilical.proxies.http_head import HeadLimits
from umbilical.proxies.https import HttpLimits, HttpProxy
from umbilical.proxies.https_process import TlsService
from umbilical.proxies.listener import ProxyListener
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.settings import ListenerSettings
from umbilical.tunnel.settings import ListenAddress, TlsFiles

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
GET = b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"


async def echo(peer: Peer) -> None:
    while data := await peer.reader.read(65536):
        await peer.send(data)


async def count_then_answer(peer: Peer) -> None:
    data = await peer.rest()
    await peer.send(b"%d bytes" % len(data))


async def test_connect_carries_bytes_both_ways() -> None:
    async with between(echo) as (client, _, testbed):
        await client.send(b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n")
        assert await client.until() == ESTABLISHED
        await client.send(b"ping")
        assert await client.exactly(4) == b"ping"
        await testbed.counts('umbilical_proxy_requests_total{protocol="connect",result="ok"} 1')


async def test_connect_one_byte_at_a_time() -> None:
    async with between(echo) as (client, _, _):
        await client.send_bytewise(b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nX: y\r\n\r\nabc")
        assert await client.until() == ESTABLISHED
        assert await client.exactly(3) == b"abc"


async def test_the_end_of_one_direction_leaves_the_other_open() -> None:
    async with between(count_then_answer) as (client, _, _):
        await client.send(b"CONNECT a:1 HTTP/1.1\r\n\r\n" + b"x" * 100_000)
        client.end()
        assert await client.rest() == ESTABLISHED + b"100000 bytes"


async def test_an_endpoint_that_speaks_first_is_heard_behind_the_200() -> None:
    async def greet(peer: Peer) -> None:
        await peer.send(b"220 hello\r\n")
        await peer.rest()

    async with between(greet) as (client, _, _):
        await client.send(b"CONNECT a:25 HTTP/1.1\r\n\r\n")
        assert await client.exactly(len(ESTABLISHED) + 11) == ESTABLISHED + b"220 hello\r\n"


@pytest.mark.parametrize("reason", list(DialReason))
async def test_a_failed_dial_is_answered_by_its_cause(reason: DialReason) -> None:
    async with proxying({}) as testbed:
        testbed.router.failures["a"] = reason
        for request in (b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", GET):
            answer = await testbed.ask(request)
            report = REPORTS[reason]
            assert answer.startswith(b"HTTP/1.1 %d " % report.http_status)
            lines = answer.partition(b"\r\n\r\n")[2].decode().splitlines()
            assert lines[0].startswith(f"{report.code} no connection to a:")
            assert lines[1:] == ["  why: agent one: a is broken", f"  next: {report.remedy}"]
        await testbed.counts(f'umbilical_proxy_requests_total{{protocol="connect",result="{reason.value}"}} 1')
        await testbed.counts(f'umbilical_proxy_requests_total{{protocol="http",result="{reason.value}"}} 1')


NOT_SERVED = {
    "no port": (b"CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", 400, b"the port is missing"),
    "a bare IPv6 address": (b"CONNECT ::1:443 HTTP/1.1\r\nHost: a\r\n\r\n", 400, b"brackets"),
    "a URL": (b"CONNECT http://a:1/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, b"the port is not"),
    "a body": (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 400, b"body"),
    "chunks": (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, b"body"),
    "a path": (b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 400, b"not a proxy request"),
    "https": (b"GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, b"needs CONNECT"),
    "a host that is none": (b"GET http://a/ HTTP/1.1\r\nHost: a b\r\n\r\n", 400, b"neither a name"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, b"HTTP/1.1"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00", 400, b"not HTTP"),
    "half a head": (b"GET http://a/ HTT", 400, b"within a request head"),
}


@pytest.mark.parametrize(("request_bytes", "status", "words"), NOT_SERVED.values(), ids=NOT_SERVED)
async def test_what_is_not_served_is_told_so_and_dials_nothing(request_bytes: bytes, status: int, words: bytes) -> None:
    async with proxying({}) as testbed:
        client = await testbed.client()
        await client.send(request_bytes)
        client.end()
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert words in answer
        assert b"Connection: close\r\n" in answer
        assert testbed.router.dials == []


async def test_a_missing_port_can_be_given_a_default() -> None:
    async with between(echo, default_connect_port=80) as (client, _, _):
        await client.send(b"CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await client.until() == ESTABLISHED


async def test_a_connection_that_says_nothing_is_left_without_a_word() -> None:
    async with proxying({}) as testbed:
        client = await testbed.client()
        client.end()
        assert await client.rest() == b""


async def test_a_client_that_never_asks_for_anything_is_let_go() -> None:
    async with proxying({}, HttpLimits(keep_alive_seconds=0.05)) as testbed:
        assert await testbed.ask(b"") == b""


async def test_slow_clients_are_all_given_up_and_leave_nothing_behind() -> None:
    async def drip(client: Peer) -> bytes:
        reading = asyncio.ensure_future(client.rest())
        await client.send(b"GET http://a/ HTTP/1.1\r\n")
        while not reading.done():
            await client.send(b"X-Y: z\r\n")
            await asyncio.sleep(0.02)
        return await reading

    async with proxying({}, handshake_seconds=0.2) as testbed:
        clients = [await testbed.client() for _ in range(50)]
        answers = await asyncio.gather(*(drip(client) for client in clients))
        assert {answer[:13] for answer in answers if answer} == {b"HTTP/1.1 408 "}
        assert testbed.router.dials == []
        for client in clients:
            client.close()
        async with asyncio.timeout(60):
            await testbed.listener.until_idle()


async def test_floods_of_headers_end_at_the_limits() -> None:
    limits = HttpLimits(head=HeadLimits(head_bytes=1000, line_bytes=500, fields=10))
    async with proxying({}, limits) as testbed:
        start = b"GET http://a/ HTTP/1.1\r\nHost: a\r\n"
        assert (await testbed.ask(start + b"X: " + b"y" * 2_000_000)).startswith(b"HTTP/1.1 431 ")
        assert (await testbed.ask(start + b"X: y\r\n" * 20 + b"\r\n")).startswith(b"HTTP/1.1 431 ")
        assert (await testbed.ask(b"GET http://a/" + b"x" * 600)).startswith(b"HTTP/1.1 414 ")
        await testbed.counts('umbilical_proxy_requests_total{protocol="http",result="bad-request"} 3')


async def test_an_idle_tunnel_is_closed() -> None:
    async with between(echo, idle_seconds=0.1) as (client, endpoint, _):
        await client.send(b"CONNECT a:1 HTTP/1.1\r\n\r\n")
        assert await client.rest() == ESTABLISHED
        await endpoint.ended(1)


async def test_a_drain_lets_idle_clients_go_and_finishes_what_is_under_way() -> None:
    gate = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.until()
        await gate.wait()
        await peer.send(HELLO)
        await peer.rest()

    async with (
        origin(answering(HELLO)) as quick,
        origin(slow) as late,
        proxying({"a": quick.port, "b": late.port}) as testbed,
    ):
        idle, busy = await testbed.client(), await testbed.client()
        await idle.send(GET)
        await idle.until(b"hello")
        await busy.send(b"GET http://b/ HTTP/1.1\r\nHost: b\r\n\r\n")
        async with asyncio.timeout(60):
            while not late.peers or not testbed.proxy.waiting:
                await asyncio.sleep(0.01)
        testbed.listener.stop_accepting()
        assert await idle.rest() == b""
        gate.set()
        assert (await busy.rest()).endswith(b"hello")


async def test_a_drain_serves_a_request_that_has_begun_to_come() -> None:
    async with between(answering(HELLO, HELLO)) as (client, _, testbed):
        await client.send(GET)
        await client.until(b"hello")
        async with asyncio.timeout(60):
            while not any(waiting.is_idle for waiting in testbed.proxy.waiting):
                await asyncio.sleep(0.01)
            await client.send(GET[:10])
            while any(waiting.is_idle for waiting in testbed.proxy.waiting):
                await asyncio.sleep(0.01)
        testbed.listener.stop_accepting()
        await client.send(GET[10:])
        answer = await client.rest()
        assert b"Connection: close" in answer
        assert answer.endswith(b"hello")


@pytest.fixture
def authority(tmp_path: Path) -> FolderAuthority:
    return FolderAuthority(tmp_path, "listener-ca")


@asynccontextmanager
async def door(files: TlsFiles, port: int, **settings: Any) -> AsyncIterator[ProxyListener]:
    made = ListenerSettings(listen=(ListenAddress("127.0.0.1", 0),), **settings)
    metrics = ProxyMetrics()
    proxy = HttpProxy(LoopbackRouter({"a": port}), made, metrics)
    listener = ProxyListener(made, TlsService(proxy, made, files, metrics.certificates), metrics)
    listener.listen("the HTTP proxy")
    try:
        yield listener
    finally:
        await listener.close()
        await asyncio.sleep(0)


def files_of(pair: Pair, authority: Path | None = None) -> TlsFiles:
    return TlsFiles(pair.certificate, pair.key, authority)


async def client_of(listener: ProxyListener, authority: FolderAuthority, pair: Pair | None = None) -> Peer:
    context = authority.client_context(pair)
    return Peer(await asyncio.open_connection(*listener.addresses[0], ssl=context, server_hostname="localhost"))


async def test_requests_and_tunnels_pass_through_tls(authority: FolderAuthority) -> None:
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


async def test_the_first_bytes_of_a_handshake_are_never_lost(authority: FolderAuthority) -> None:
    """Bytes may arrive before the proxy reads the connection for the first time."""

    files = files_of(authority.serving("proxy"))
    async with origin(answering()) as endpoint, door(files, endpoint.port) as listener:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = authority.client_context(None).wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        with socket.create_connection(listener.addresses[0], 60) as sock:
            sock.sendall(outgoing.read())  # all before the loop's first turn
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


async def test_a_client_without_a_certificate_is_turned_away_where_one_is_asked_for(authority: FolderAuthority) -> None:
    files = files_of(authority.serving("proxy"), authority.certificate_file)
    async with origin(answering(HELLO)) as endpoint, door(files, endpoint.port) as listener:
        request = b"GET http://a/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        stranger = await client_of(listener, authority)
        await stranger.send(request)
        with suppress(ssl.SSLError):  # the alert or the reset, whichever is first
            assert await stranger.rest() == b""
        stranger.close()
        assert endpoint.peers == []
        friend = await client_of(listener, authority, authority.client("friend"))
        await friend.send(request)
        assert (await friend.rest()).endswith(b"hello")
        friend.close()


async def test_a_client_that_speaks_no_tls_or_nothing_at_all_is_let_go(authority: FolderAuthority) -> None:
    files = files_of(authority.serving("proxy"))
    async with origin(answering()) as endpoint, door(files, endpoint.port, handshake_seconds=0.1) as listener:
        for said in (b"GET http://a/ HTTP/1.1\r\n\r\n", b"", b"\x16\x03"):
            client = Peer(await asyncio.open_connection(*listener.addresses[0]))
            await client.send(said)
            assert b"HTTP" not in await client.rest()
            client.close()
        async with asyncio.timeout(60):
            await listener.until_idle()


def test_files_that_do_not_fit_keep_it_from_starting(authority: FolderAuthority) -> None:
    one, two = authority.serving("one"), authority.serving("two")
    settings = ListenerSettings(())
    metrics = ProxyMetrics()
    proxy = HttpProxy(LoopbackRouter({}), settings, metrics)
    with pytest.raises(StartupError, match="key pair"):
        TlsService(proxy, settings, TlsFiles(one.certificate, two.key), metrics.certificates)
