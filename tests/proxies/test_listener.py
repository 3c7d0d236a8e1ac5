"""The listener: limits, exhausted descriptors, slow clients, drain, two thousand connections."""

import asyncio
import errno
import resource
import socket
from collections.abc import Iterator

import pytest
from tests.support.file_limits import no_descriptors
from tests.support.proxy_testbed import (
    HELLO,
    LOOPBACK,
    LoopbackOpener,
    PendingOpener,
    ask,
    connect_request,
    drop,
    echo,
    endpoint,
    eventually,
    rest_of,
    sample,
    socks5_proxy,
)
from tests.support.tunnel_pair import free_port

from umbilical.dialer.streams import Streams
from umbilical.fault import StartupError
from umbilical.proxies import listener as listener_module
from umbilical.proxies.listener import ProxyListener
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.settings import ListenerSettings
from umbilical.tunnel.listening import listen_tcp
from umbilical.tunnel.settings import ListenAddress

CROWD = 2_000


class Echo:
    """An echo service."""

    def __init__(self) -> None:
        self.drained = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await echo(reader, writer)

    def drain(self) -> None:
        self.drained += 1


class Broken(Echo):
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise ZeroDivisionError


async def _closed_without_a_word(client: Streams) -> bool:
    return await rest_of(client[0]) == b""


async def test_it_listens_on_every_address_that_it_was_given() -> None:
    settings = ListenerSettings((LOOPBACK, ListenAddress("::1", 0)))
    listener = ProxyListener(settings, Echo(), ProxyMetrics())
    listener.listen("test")
    assert [host for host, _ in listener.addresses] == ["127.0.0.1", "::1"]
    for host, port in listener.addresses:
        client = await asyncio.open_connection(host, port)
        client[1].write(b"x")
        assert await client[0].readexactly(1) == b"x"
        await drop(client)
    await listener.close()


def _without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:

    def bound(address: ListenAddress, what: str) -> socket.socket:
        if ":" not in address.host:
            return listen_tcp(address, what)
        cause = OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        raise StartupError("UMB023", "cannot listen", "no such address", "ss -ltn") from cause

    monkeypatch.setattr(listener_module, "listen_tcp", bound)


async def test_a_machine_without_ipv6_is_no_obstacle_to_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_ipv6(monkeypatch)

    settings = ListenerSettings((LOOPBACK, ListenAddress("::1", 0)), ipv6_if_there=True)
    listener = ProxyListener(settings, Echo(), ProxyMetrics())
    listener.listen("test")
    assert [host for host, _ in listener.addresses] == ["127.0.0.1"]
    await listener.close()


async def test_an_address_that_was_asked_for_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_ipv6(monkeypatch)

    listener = ProxyListener(ListenerSettings((LOOPBACK, ListenAddress("::1", 0))), Echo(), ProxyMetrics())
    with pytest.raises(StartupError, match="cannot listen"):
        listener.listen("test")
    assert not listener.is_listening


async def test_a_port_that_is_taken_is_told_with_its_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = ListenerSettings((ListenAddress("127.0.0.1", free_port()), ListenAddress("127.0.0.1", port)))
        listener = ProxyListener(settings, Echo(), ProxyMetrics())
        with pytest.raises(StartupError) as fault:
            listener.listen("SOCKS5")
        assert fault.value.code == "UMB023"
        assert str(port) in fault.value.what
        assert not listener.is_listening


async def test_more_than_the_limit_are_closed_at_once_and_counted() -> None:
    async with endpoint(echo) as port, socks5_proxy(LoopbackOpener(), max_connections=2) as proxy:
        clients = [await proxy.connect() for _ in range(2)]
        for client in clients:
            assert await ask(client, "127.0.0.1", port) == 0
        assert proxy.sample("umbilical_proxy_connections") == 2
        third = await proxy.connect()
        assert await _closed_without_a_word(third)
        assert proxy.sample('umbilical_proxy_refused_connections_total{reason="limit"}') == 1
        await drop(third)
        await drop(clients[0])
        await eventually(lambda: proxy.listener.open_connections() == 1)
        fourth = await proxy.connect()
        assert await ask(fourth, "127.0.0.1", port) == 0
        await drop(fourth)
        await drop(clients[1])


async def test_a_fault_of_ours_ends_one_connection_and_not_the_listener(caplog: pytest.LogCaptureFixture) -> None:
    listener = ProxyListener(ListenerSettings((LOOPBACK,)), Broken(), ProxyMetrics())
    listener.listen("test")
    for _ in range(2):
        client = await asyncio.open_connection(*listener.addresses[0])
        assert await _closed_without_a_word(client)
        await drop(client)
    await listener.close()
    assert caplog.text.count("internal error in a connection") == 2


async def test_exhausted_descriptors_are_survived_with_a_rest(caplog: pytest.LogCaptureFixture) -> None:
    async with endpoint(echo) as port, socks5_proxy(LoopbackOpener()) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as sock:
            with no_descriptors():
                await eventually(lambda: proxy.listener._shortage.refusals >= 2)
            assert caplog.text.count("Too many open files") == 1
            sock.setblocking(False)
            client = await asyncio.open_connection(sock=sock)
            assert await ask(client, "127.0.0.1", port) == 0
            await drop(client)


async def test_while_it_rests_it_does_not_spin_and_a_drain_may_begin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_module, "EXHAUSTED_SECONDS", 3600.0)

    async with socks5_proxy(LoopbackOpener()) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)), no_descriptors():
            await eventually(lambda: "Too many open files" in caplog.text)
            for _ in range(100):
                await asyncio.sleep(0)
            assert proxy.listener._shortage.refusals == 1
            proxy.listener.stop_accepting()
            assert not proxy.listener.is_listening


async def test_a_client_that_drips_bytes_does_not_gain_time_by_each() -> None:
    """Slow loris: the whole handshake has one limit, not each read."""

    async with socks5_proxy(LoopbackOpener(), handshake_seconds=0.2) as proxy:
        reader, writer = await proxy.connect()
        writer.write(b"\x05\xff")
        ending = asyncio.get_running_loop().create_task(rest_of(reader))
        while not ending.done():
            writer.write(b"\x01")
            await asyncio.wait({ending}, timeout=0.01)
        assert ending.result() == b""
        await drop((reader, writer))
        assert proxy.sample('umbilical_proxy_requests_total{protocol="socks5",result="bad-request"}') == 1


async def test_a_client_that_floods_before_its_dial_is_done_is_held_back() -> None:
    flood = 30_000_000

    opener = PendingOpener()
    async with socks5_proxy(opener) as proxy:
        reader, writer = await proxy.connect()
        writer.write(HELLO + connect_request("127.0.0.1", 1) + bytes(flood))
        await asyncio.wait_for(opener.asked.wait(), 60)
        left = -1
        while left != writer.transport.get_write_buffer_size():  # until nothing moves for many turns
            left = writer.transport.get_write_buffer_size()
            for _ in range(200):
                await asyncio.sleep(0)
        assert left > flood // 2
        writer.transport.abort()
        await rest_of(reader)


async def test_who_is_here_when_the_drain_begins_may_finish() -> None:
    async with endpoint(echo) as port, socks5_proxy(LoopbackOpener()) as proxy:
        client, where = await proxy.connect(), proxy.port
        assert await ask(client, "127.0.0.1", port) == 0
        proxy.listener.stop_accepting()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", where)
        client[1].write(b"still here")
        assert await client[0].readexactly(10) == b"still here"
        assert not proxy.listener.is_listening
        client[1].write_eof()
        await rest_of(client[0])
        await drop(client)
        await proxy.listener.until_idle()


async def test_who_waits_in_the_backlog_when_the_drain_begins_is_still_served() -> None:
    """Clients in the backlog are already connected; closing the socket would reset them."""

    async with endpoint(echo) as port, socks5_proxy(LoopbackOpener()) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as sock:  # no turn of the loop in between
            proxy.listener.stop_accepting()
            sock.setblocking(False)
            client = await asyncio.open_connection(sock=sock)
            assert await ask(client, "127.0.0.1", port) == 0
            await drop(client)


async def test_without_patience_who_waits_in_the_backlog_is_closed_and_counted() -> None:
    metrics, service = ProxyMetrics(), Echo()
    listener = ProxyListener(ListenerSettings((LOOPBACK,), drain_seconds=0.0), service, metrics)
    listener.listen("test")
    with socket.create_connection(listener.addresses[0]) as sock:
        listener.stop_accepting()
        sock.settimeout(60)
        assert sock.recv(1) == b""
    assert sample(metrics, 'umbilical_proxy_refused_connections_total{reason="draining"}') == 1
    assert service.drained == 1
    await listener.close()


async def test_closing_cuts_whoever_is_left_and_cancels_their_dials() -> None:
    opener = PendingOpener()
    async with socks5_proxy(opener) as proxy:
        reader, writer = await proxy.connect()
        writer.write(HELLO + connect_request("127.0.0.1", 1))
        await asyncio.wait_for(opener.asked.wait(), 60)
        await proxy.listener.close()
        assert opener.cancelled.is_set()
        assert proxy.listener.open_connections() == 0
        assert await rest_of(reader) == b"\x05\x00"
        await drop((reader, writer))
        await proxy.listener.close()


@pytest.fixture
def many_files() -> Iterator[None]:
    """Four descriptors per client, because all ends are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, 4 * CROWD + 500)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
    else:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
async def test_two_thousand_clients_are_served_at_the_same_time() -> None:
    async with endpoint(echo) as port, socks5_proxy(LoopbackOpener()) as proxy:
        clients: list[Streams] = []
        for number in range(CROWD):
            client = await proxy.opened(port)
            client[1].write(b"%d" % number)
            clients.append(client)
        assert proxy.sample("umbilical_proxy_connections") == CROWD
        for number, client in enumerate(clients):
            expected = b"%d" % number
            assert await client[0].readexactly(len(expected)) == expected
        for client in clients:
            await drop(client)
        await proxy.listener.until_idle()
        assert proxy.sample("umbilical_proxy_connections") == 0
        assert proxy.sample('umbilical_proxy_requests_total{protocol="socks5",result="ok"}') == CROWD
