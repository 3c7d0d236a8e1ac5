"""The dialer: bytes through real servers and agents, and the next server when one fails."""

import asyncio
import hashlib
import logging
import random
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.support.coroutines import PATIENCE_SECONDS, play
from tests.support.dialer_testbed import client_files, dialer_for, echoed, end, failure_at, open_at, settings_for
from tests.support.in_process import Stage, echo, read_to_end, refused_address
from tests.support.live_certificates import LiveFiles
from tests.support.scripted_frontend import answering, unix_frontend
from tests.support.tunnel_pki import FolderAuthority, TunnelPki

from umbilical.dialer.dialer import DEPRIORITIZED_SECONDS, Dialer
from umbilical.dialer.failure import DialReason
from umbilical.dialer.settings import DialerSettings, TcpServer, UnixServer
from umbilical.dialer.trace import Trace
from umbilical.fault import StartupError
from umbilical.tunnel.settings import TlsFiles

MIB: Final = 1024 * 1024
OK: Final = b"HTTP/1.1 200 Connection Established\r\n\r\n"
NO_AGENT: Final = b"HTTP/1.1 500 Internal Server Error\r\n\r\ncurrently no tunnels available: No agent available"
REFUSED: Final = b"HTTP/1.1 502 Bad Gateway\r\n\r\ndial tcp 10.0.0.1:1: connect: connection refused"
BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\n\r\ndial tcp 10.0.0.1:1: socket: too many open files"

modes = pytest.mark.parametrize(
    ("mode", "tcp"), [("http-connect", False), ("http-connect", True), ("grpc", False), ("grpc", True)]
)
both = pytest.mark.parametrize(("mode", "tcp"), [("http-connect", True), ("grpc", False)])


@modes
async def test_bytes_pass_both_ways(stage: Stage, mode: str, tcp: bool) -> None:
    server, _ = stage.start_pair(mode, tcp=tcp)
    endpoint = stage.endpoint().serve(echo)
    payload = random.Random(2).randbytes(3 * MIB + 5)

    async with dialer_for(stage.pki, server.frontend) as dialer:
        streams = await open_at(dialer, endpoint.address)
        assert await echoed(streams, payload) == payload
        await end(streams[1])
    server.wait_until_quiet()


@both
async def test_hundreds_at_once_hear_an_endpoint_that_speaks_first_and_get_their_own_bytes_back(
    stage: Stage, mode: str, tcp: bool
) -> None:
    server, _ = stage.start_pair(mode, tcp=tcp)

    def greet(sock: socket.socket) -> None:
        sock.sendall(b"BANNER\r\n")
        echo(sock)

    endpoint = stage.endpoint().serve(greet)

    async def one(dialer: Dialer, number: int) -> None:
        reader, writer = await open_at(dialer, endpoint.address)
        assert await reader.readexactly(8) == b"BANNER\r\n"
        assert await echoed((reader, writer), b"%03d" % number) == b"%03d" % number
        await end(writer)

    async with dialer_for(stage.pki, server.frontend) as dialer:
        await asyncio.gather(*(one(dialer, number) for number in range(200)))
    server.wait_until_quiet()


@pytest.mark.parametrize("tcp", [False, True])
async def test_the_end_of_our_direction_reaches_the_endpoint_and_its_answer_us(stage: Stage, tcp: bool) -> None:
    server, _ = stage.start_pair(tcp=tcp)

    def digest(sock: socket.socket) -> None:
        received = read_to_end(sock)
        sock.sendall(hashlib.sha256(received).digest() + bytes(2 * MIB))

    endpoint = stage.endpoint().serve(digest)

    async with dialer_for(stage.pki, server.frontend) as dialer:
        reader, writer = await open_at(dialer, endpoint.address)
        writer.write(b"q" * MIB)
        await writer.drain()
        writer.write_eof()
        assert await reader.read() == hashlib.sha256(b"q" * MIB).digest() + bytes(2 * MIB)
        await end(writer)
    server.wait_until_quiet()


@pytest.mark.parametrize("tcp", [False, True])
async def test_an_upload_that_stands_still_outlives_the_end_of_the_answer(stage: Stage, tcp: bool) -> None:
    """The server ends its side while it still holds bytes of the client: SSL_shutdown must not discard them."""
    server, _ = stage.start_pair(tcp=tcp)
    full, ended = threading.Event(), threading.Event()
    taken: list[int] = []

    def answer_first(sock: socket.socket) -> None:
        full.wait(PATIENCE_SECONDS)
        sock.shutdown(socket.SHUT_WR)
        ended.wait(PATIENCE_SECONDS)
        taken.append(len(read_to_end(sock)))

    async with dialer_for(stage.pki, server.frontend) as dialer:
        reader, writer = await open_at(dialer, stage.endpoint().serve(answer_first).address)
        written = 0
        while not full.is_set():
            writer.write(bytes(1 << 16))
            written += 1 << 16
            try:
                async with asyncio.timeout(1.0):
                    await writer.drain()
            except TimeoutError:
                full.set()
        assert await reader.read() == b""
        ended.set()
        writer.write_eof()
        await asyncio.to_thread(stage.eventually, lambda: bool(taken))
        await end(writer)
    assert taken == [written]
    server.wait_until_quiet()


@both
async def test_a_refusal_by_the_endpoint_is_final_and_told_by_name(stage: Stage, mode: str, tcp: bool) -> None:
    server, _ = stage.start_pair(mode, tcp=tcp)
    address = refused_address()

    async with dialer_for(stage.pki, server.frontend) as dialer:
        failure = await failure_at(dialer, address)
        assert (failure.reason, failure.hop) == (DialReason.REFUSED, address)
        assert failure.text == f"dial tcp {address}: connect: connection refused"


@both
async def test_a_server_without_agents_is_told_by_name(stage: Stage, mode: str, tcp: bool) -> None:
    server = stage.start_server(mode, tcp=tcp)

    async with dialer_for(stage.pki, server.frontend) as dialer:
        failure = await failure_at(dialer, "10.0.0.1:1")
        assert failure.reason is DialReason.NO_AGENT
        assert str(server.frontend.unix_path or server.frontend.port) in failure.hop


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Servers:
    """Scripted frontends that record dials."""

    def __init__(self, folder: Path, stack: Callable[..., Path]) -> None:
        self.asked: Final[list[str]] = []
        self._folder, self._stack = folder, stack

    def start(self, name: str, reply: bytes) -> UnixServer:
        deed = answering(reply)

        def noted(sock: socket.socket) -> None:
            self.asked.append(name)
            deed(sock)

        return UnixServer(self._stack(unix_frontend(self._folder / name, noted)))


@pytest.fixture
def servers(tmp_path: Path, stage: Stage) -> Servers:
    return Servers(tmp_path, stage.leftovers.enter_context)


async def dial_once(dialer: Dialer, trace: Trace | None = None) -> None:
    _, writer = await dialer.open("10.0.0.1", 1, trace)
    writer.transport.abort()
    await asyncio.sleep(0)


@pytest.mark.parametrize("reply", [b"", NO_AGENT, BUSY], ids=["gone", "no agent", "busy"])
async def test_when_one_server_fails_the_next_is_tried_and_the_first_comes_last_for_a_while(
    servers: Servers, reply: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    settings = DialerSettings((servers.start("a", reply), servers.start("b", OK)))
    clock = Clock()
    dialer = Dialer(settings, now=clock)

    with caplog.at_level(logging.INFO, "umbilical.dialer"):
        for _ in range(3):
            await dial_once(dialer)
        assert servers.asked == ["a", "b", "b", "b"]
        clock.seconds += DEPRIORITIZED_SECONDS
        await dial_once(dialer)
        assert servers.asked == ["a", "b", "b", "b", "a", "b"]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "failed, using others first" in told[0]


def test_the_endpoint_s_answer_is_final(servers: Servers) -> None:
    dialer = Dialer(DialerSettings((servers.start("a", REFUSED), servers.start("b", OK))))
    failure = play(failure_at(dialer, "10.0.0.1:1"))
    assert failure.reason is DialReason.REFUSED
    assert servers.asked == ["a"]


async def test_when_no_server_can_the_last_one_s_failure_is_told(servers: Servers, tmp_path: Path) -> None:
    dead = UnixServer(tmp_path / "dead")
    dialer = Dialer(DialerSettings((servers.start("a", NO_AGENT), dead)))
    trace = Trace()

    failure = await failure_at(dialer, "10.0.0.1:1")
    assert (failure.reason, failure.hop) == (DialReason.SERVER, f"unix:{dead.path}")
    with pytest.raises(type(failure)):
        await dialer.open("10.0.0.1", 1, trace)
    assert servers.asked == ["a", "a"]
    assert len(trace.passed_over) == 1


async def test_a_server_that_failed_and_works_again_is_logged(
    servers: Servers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    first = UnixServer(tmp_path / "late")
    dialer = Dialer(DialerSettings((first, servers.start("b", OK))), now=clock)

    with caplog.at_level(logging.INFO, "umbilical.dialer"):
        await dial_once(dialer)
        servers.start("late", OK)
        clock.seconds += DEPRIORITIZED_SECONDS + 1
        await dial_once(dialer)
        assert servers.asked == ["b", "late"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_servers_that_all_failed_are_tried_from_the_longest_ago(servers: Servers) -> None:
    clock = Clock()
    three = tuple(servers.start(name, NO_AGENT) for name in "abc")
    dialer = Dialer(DialerSettings(three), now=clock)

    for _ in range(2):
        clock.seconds += 1
        assert (await failure_at(dialer, "10.0.0.1:1")).reason is DialReason.NO_AGENT
    assert servers.asked == list("abcabc")


def test_a_dialer_needs_a_server() -> None:
    with pytest.raises(ValueError, match="at least one server"):
        Dialer(DialerSettings(()))


def test_files_are_judged_at_the_start_and_not_at_the_first_dial(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    files = TlsFiles(tunnel_pki.client.certificate, tunnel_pki.agent.key, tunnel_pki.authority.certificate_file)
    with pytest.raises(StartupError):
        Dialer(DialerSettings((TcpServer("127.0.0.1", 1),), files))


async def test_rotated_certificates_count_for_the_next_dial_and_open_connections_go_on(
    stage: Stage, tmp_path: Path
) -> None:
    live = LiveFiles(tmp_path / "live")
    (tmp_path / "strange").mkdir()
    stranger = FolderAuthority(tmp_path / "strange")
    live.install(stranger.client("nobody"), stage.pki.authority)
    server, _ = stage.start_pair(tcp=True)
    endpoint = stage.endpoint().serve(echo)
    dialer = dialer_for(stage.pki, server.frontend, tls=live.files)

    async def talk(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        streams[1].write(b"ping")
        assert await streams[0].readexactly(4) == b"ping"

    assert (await failure_at(dialer, endpoint.address)).reason is DialReason.TLS
    live.install(stage.pki.client, stage.pki.authority)
    _look_now(dialer)
    first = await open_at(dialer, endpoint.address)
    await talk(first)
    live.install(stranger.client("nobody"), stage.pki.authority)
    _look_now(dialer)
    assert (await failure_at(dialer, endpoint.address)).reason is DialReason.TLS
    await talk(first)
    await end(first[1])
    await dialer.close()


def _look_now(dialer: Dialer) -> None:
    """Check the files, as the watch does every second."""
    assert dialer._watched is not None
    dialer._watched.look()


async def test_closing_ends_the_watch_and_no_connection(stage: Stage) -> None:
    server, _ = stage.start_pair(tcp=True)
    endpoint = stage.endpoint().serve(echo)

    dialer = Dialer(settings_for(stage.pki, server.frontend, tls=client_files(stage.pki)))
    streams = await open_at(dialer, endpoint.address)
    await dialer.close()
    await dialer.close()
    assert dialer._watched is not None
    assert dialer._watched._timer is None
    assert await echoed(streams, b"still here") == b"still here"
    await end(streams[1])
