"""Real sockets for programs without asyncio."""

import hashlib
import http.client
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
import requests
import urllib3
from tests.support.coroutines import PATIENCE_SECONDS
from tests.support.dialer_testbed import settings_for
from tests.support.https_endpoint import web_server
from tests.support.in_process import RunningServer, Stage, banner, echo, read_to_end
from tests.support.scripted_frontend import answering, read_head, silent, unix_frontend
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import TunnelPki

from umbilical.dialer.blocking import BlockingDialer, TunnelSocket
from umbilical.dialer.requests_adapter import TunnelAdapter
from umbilical.dialer.settings import DialerSettings, TcpServer, UnixServer
from umbilical.dialer.urllib3_pools import tunnel_pool_manager
from umbilical.fault import StartupError
from umbilical.tunnel.settings import TlsFiles

MIB: Final = 1024 * 1024


@pytest.fixture(params=[("http-connect", False), ("grpc", True)], ids=str)
def server(request: pytest.FixtureRequest, stage: Stage) -> RunningServer:
    mode, tcp = request.param
    running, _ = stage.start_pair(mode, tcp=tcp)
    return running


@pytest.fixture
def dialer(server: RunningServer) -> Iterator[BlockingDialer]:
    with BlockingDialer(settings_for(server.stage.pki, server.frontend)) as dialer:
        yield dialer


def opened(dialer: BlockingDialer, address: str) -> TunnelSocket:
    host, _, port = address.rpartition(":")
    return dialer.open(host, int(port), PATIENCE_SECONDS)


def test_bytes_pass_both_ways(stage: Stage, server: RunningServer, dialer: BlockingDialer) -> None:
    endpoint = stage.endpoint().serve(echo)
    payload = random.Random(3).randbytes(2 * MIB)
    with opened(dialer, endpoint.address) as sock:
        sender = threading.Thread(target=sock.sendall, args=(payload,))
        sender.start()
        received = bytearray()
        while len(received) < len(payload):
            received += sock.recv(1 << 16)
        sender.join(PATIENCE_SECONDS)
    assert received == payload
    server.wait_until_quiet()


def test_the_endpoint_s_first_words_and_its_end_are_read(stage: Stage, dialer: BlockingDialer) -> None:
    def greet(sock: socket.socket) -> None:
        sock.sendall(b"hello and goodbye")

    with opened(dialer, stage.endpoint().serve(greet).address) as sock, sock.makefile("rb") as lines:
        assert lines.read() == b"hello and goodbye"


def test_a_program_that_ends_its_side_still_gets_its_answer(stage: Stage) -> None:
    server, _ = stage.start_pair(tcp=True)

    def digest(sock: socket.socket) -> None:
        sock.sendall(hashlib.sha256(read_to_end(sock)).digest() + bytes(MIB))

    endpoint = stage.endpoint().serve(digest)
    with BlockingDialer(settings_for(stage.pki, server.frontend)) as dialer, opened(dialer, endpoint.address) as sock:
        sock.sendall(b"all of it")
        sock.shutdown(socket.SHUT_WR)
        assert read_to_end(sock) == hashlib.sha256(b"all of it").digest() + bytes(MIB)
    server.wait_until_quiet()


def test_a_socket_that_is_closed_ends_its_tunnel(stage: Stage, server: RunningServer, dialer: BlockingDialer) -> None:
    endpoint = stage.endpoint()
    sock = opened(dialer, endpoint.address)
    with endpoint.accept() as far:
        sock.close()
        assert far.recv(1) == b""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while dialer._pumps:  # though the endpoint has not ended its side, and perhaps never will
            assert time.monotonic() < deadline
            time.sleep(0.001)
    server.wait_until_quiet()


def test_http_client_takes_such_a_socket(stage: Stage, dialer: BlockingDialer) -> None:
    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody")
        read_head(sock)

    connection = http.client.HTTPConnection("endpoint.example", timeout=PATIENCE_SECONDS)
    connection.sock = opened(dialer, stage.endpoint().serve(serve).address)
    connection.request("GET", "/")
    assert connection.getresponse().read() == b"body"
    connection.close()


def test_many_threads_may_use_one_dialer(stage: Stage, dialer: BlockingDialer) -> None:
    endpoint = stage.endpoint().serve(banner)

    def one(_: int) -> bytes:
        with opened(dialer, endpoint.address) as sock:
            return sock.recv(8, socket.MSG_WAITALL)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(40))) == [b"BANNER\r\n"] * 40


def test_a_tunnel_that_breaks_is_an_error_and_not_an_end(tmp_path: Path) -> None:
    def cut(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\npart")
        sock.recv(1)  # one of many: closing with bytes unread resets

    with unix_frontend(tmp_path / "s", cut) as path, BlockingDialer(DialerSettings((UnixServer(path),))) as dialer:
        for receive in (_receive, _receive_into):
            with opened(dialer, "10.0.0.1:1") as sock:
                sock.sendall(b"many bytes")
                with pytest.raises(ConnectionResetError):
                    receive(sock)


def _receive(sock: socket.socket) -> None:
    while sock.recv(100):
        pass


def _receive_into(sock: socket.socket) -> None:
    while sock.recv_into(bytearray(100)):
        pass


def test_an_orderly_end_of_nothing_is_no_error() -> None:
    left, right = socket.socketpair()
    with TunnelSocket(fileno=left.detach()) as sock:
        right.close()
        assert sock.recv(0) == b""
        assert sock.recv(1) == b""
        assert sock.recv_into(bytearray(1)) == 0


def test_closing_the_dialer_closes_what_it_opened(stage: Stage, server: RunningServer) -> None:
    endpoint = stage.endpoint()
    dialer = BlockingDialer(settings_for(stage.pki, server.frontend))
    with opened(dialer, endpoint.address) as sock, endpoint.accept():
        dialer.close()
        dialer.close()
        assert sock.recv(1) == b""
    with pytest.raises(RuntimeError, match="closed"):
        opened(dialer, endpoint.address)
    server.wait_until_quiet()


def test_a_dialer_that_opened_nothing_has_no_thread_to_end(tunnel_pki: TunnelPki) -> None:
    before = threading.active_count()
    with BlockingDialer(DialerSettings((UnixServer(Path("/none")),))):
        assert threading.active_count() == before
    with pytest.raises(StartupError):
        BlockingDialer(DialerSettings((TcpServer("127.0.0.1", 1),), TlsFiles()))


def test_closing_the_dialer_ends_a_dial_that_another_thread_waits_for(tmp_path: Path) -> None:
    asked = threading.Event()

    def hear(sock: socket.socket) -> None:
        read_head(sock)
        asked.set()
        silent(sock)

    with unix_frontend(tmp_path / "s", hear) as path, ThreadPoolExecutor(1) as pool:
        dialer = BlockingDialer(DialerSettings((UnixServer(path),), reply_seconds=10 * PATIENCE_SECONDS))
        waiting = pool.submit(dialer.open, "10.0.0.1", 443)
        assert asked.wait(PATIENCE_SECONDS)
        dialer.close()
        with pytest.raises(RuntimeError, match="the dialer is closed"):
            waiting.result(PATIENCE_SECONDS)


@pytest.fixture
def dialer_pools(stage: Stage) -> Iterator[BlockingDialer]:
    server, _ = stage.start_pair(tcp=True)
    with BlockingDialer(settings_for(stage.pki, server.frontend)) as dialer_pools:
        yield dialer_pools


@pytest.fixture
def session(dialer_pools: BlockingDialer) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.mount("http://", TunnelAdapter(dialer_pools))
        session.mount("https://", TunnelAdapter(dialer_pools, pool_maxsize=2))
        yield session


def test_requests_go_through_the_tunnel_and_the_endpoint_is_verified(stage: Stage, session: requests.Session) -> None:
    authority = stage.pki.authority
    with web_server() as plain, web_server(authority.server_context(stage.pki.server)) as secure:
        answer = session.get(f"http://127.0.0.1:{plain}/x", timeout=PATIENCE_SECONDS)
        assert answer.text == f"GET /x for 127.0.0.1:{plain}"
        url = f"https://127.0.0.1:{secure}/"
        with pytest.raises(requests.exceptions.SSLError):
            session.get(url, timeout=PATIENCE_SECONDS)
        trusted = str(authority.certificate_file)
        answer = session.post(url, data=bytes(200_000), timeout=PATIENCE_SECONDS, verify=trusted)
        assert answer.content == bytes(200_000)


def test_proxies_of_the_environment_are_passed_over(session: requests.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with web_server() as port:
        assert session.get(f"http://127.0.0.1:{port}/", timeout=PATIENCE_SECONDS).ok


def test_a_failed_dial_is_a_connection_error_with_its_cause(session: requests.Session) -> None:
    with pytest.raises(requests.exceptions.ConnectionError, match="UMB501"):
        session.get(f"http://127.0.0.1:{free_port()}/", timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(("module", "missing"), [("requests_adapter", "requests"), ("urllib3_pools", "urllib3")])
def test_without_the_library_one_learns_which(module: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] == missing or name == f"umbilical.dialer.{module}":
            monkeypatch.setitem(sys.modules, name, sys.modules[name])  # put back at the end
            del sys.modules[name]
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ModuleNotFoundError, match=f"needs {missing}: pip install"):
        __import__(f"umbilical.dialer.{module}")


def test_http_and_https_requests_go_through_and_connections_are_kept(
    stage: Stage, dialer_pools: BlockingDialer
) -> None:
    authority = stage.pki.authority
    with (
        web_server() as plain,
        web_server(authority.server_context(stage.pki.server)) as secure,
        tunnel_pool_manager(dialer_pools, ca_certs=str(authority.certificate_file), timeout=PATIENCE_SECONDS) as pools,
    ):
        for _ in range(3):
            assert pools.request("GET", f"http://127.0.0.1:{plain}/a").data == f"GET /a for 127.0.0.1:{plain}".encode()
            assert pools.request("GET", f"https://127.0.0.1:{secure}/b").status == 200
        assert stage.servers[0].gauges().established_connections == 2
        body = bytes(300_000)
        assert pools.request("POST", f"https://127.0.0.1:{secure}/", body=body).data == body


def test_a_dial_that_fails_is_told_with_its_cause(dialer_pools: BlockingDialer) -> None:
    with (
        tunnel_pool_manager(dialer_pools, retries=False) as pools,
        pytest.raises(urllib3.exceptions.NewConnectionError, match="UMB501 the endpoint refused the connection"),
    ):
        pools.request("GET", f"http://127.0.0.1:{free_port()}/")


def test_an_endpoint_or_a_server_that_is_silent_is_a_timeout(tmp_path: Path) -> None:
    reply = b"HTTP/1.1 504 Gateway Timeout\r\n\r\ndial tcp 10.0.0.1:80: i/o timeout"
    for name, deed, seconds in (("slow", answering(reply), PATIENCE_SECONDS), ("silent", silent, 0.05)):
        with (
            unix_frontend(tmp_path / name, deed) as path,
            BlockingDialer(DialerSettings((UnixServer(path),))) as dialer_pools,
            tunnel_pool_manager(dialer_pools, retries=False, timeout=seconds) as pools,
            pytest.raises(urllib3.exceptions.ConnectTimeoutError),
        ):
            pools.request("GET", "http://10.0.0.1/")


def test_an_ipv6_endpoint_is_asked_for_without_its_brackets(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def deed(sock: socket.socket) -> None:
        asked.append(read_head(sock))

    with (
        unix_frontend(tmp_path / "s", deed) as path,
        BlockingDialer(DialerSettings((UnixServer(path),))) as dialer_pools,
        tunnel_pool_manager(dialer_pools, retries=False) as pools,
        pytest.raises(urllib3.exceptions.NewConnectionError),
    ):
        pools.request("GET", "http://[fd00::7]:8080/")
    assert asked[0].startswith(b"CONNECT [fd00::7]:8080 HTTP/1.1\r\n")
