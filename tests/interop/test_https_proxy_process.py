"""The HTTP proxy's process beside a real tunnel: it comes before the server, and leaves after its clients."""

import signal
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from tests.interop.endpoints import echo, endpoint
from tests.interop.https_testbed import BODY, HttpsTestbed, curl, pages_at
from tests.support.tunnel_pair import Daemon, Shape, TunnelPair, free_port, http_get, wait_until
from tests.support.tunnel_pki import TunnelPki

PROGRAM: Final = str(Path(sys.executable).parent / "konnectivity-https-proxy")
SHAPE: Final = Shape("ours", "ours", "http-connect", "tcp-mtls")
ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


@pytest.mark.real("curl")
def test_hypershifts_arguments_start_it_before_there_is_a_server(pki: TunnelPki, tmp_path: Path) -> None:
    pair = TunnelPair(SHAPE, pki, tmp_path)
    port, health = free_port(), free_port()
    command = [
        *(PROGRAM, "run", "--konnectivity-hostname=127.0.0.1", f"--konnectivity-port={pair.ports.frontend}"),
        *(f"--serving-port={port}", f"--ca-cert-path={pki.authority.certificate_file}"),
        *(f"--tls-cert-path={pki.client.certificate}", f"--tls-key-path={pki.client.key}"),
        *("--http-proxy=", "--https-proxy=", "--no-proxy=127.0.0.1,localhost,.svc,.cluster.local"),
        *("--disable-resolver", f"--health-port={health}"),
    ]
    daemon = Daemon(command, tmp_path / "https.log")
    with ExitStack() as stack:
        stack.callback(lambda: print(daemon.log_tail(), pair.logs()))
        stack.callback(pair.stop)
        stack.callback(daemon.kill)
        pages = stack.enter_context(pages_at())
        call = ["-x", f"http://127.0.0.1:{port}", f"http://127.0.0.1:{pages}/"]
        daemon.start()
        wait_until(lambda: http_get(f"http://127.0.0.1:{health}/readyz")[0] == 503, "the proxy lives")
        wait_until(lambda: curl(call).stdout.startswith(b"UMB507 "), "a request without a server is told why")
        pair.start()
        wait_until(lambda: curl(call).stdout == BODY, "the proxy serves")
        assert curl(["-p", *call]).stdout == BODY
        assert b"UMB501 no connection to 127.0.0.1:80:" in _ask(port, b"CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n")


def test_a_server_that_is_killed_under_a_request_is_named(pki: TunnelPki, tmp_path: Path) -> None:
    """The endpoint has no part in it, and the answer says so; the log of a tunnel that was cut says the same."""
    with ExitStack() as stack:
        pair = TunnelPair(SHAPE, pki, tmp_path)
        stack.callback(lambda: print(pair.logs()))
        stack.callback(pair.stop)
        pair.start()
        testbed = HttpsTestbed(pair, stack)
        mute = stack.enter_context(endpoint(_listen_only)).encode()
        plain, tunnelled = (
            stack.enter_context(socket.create_connection(("127.0.0.1", testbed.port), 60)) for _ in "ab"
        )
        tunnelled.sendall(b"CONNECT " + mute + b" HTTP/1.1\r\n\r\n")
        assert _receive(tunnelled, len(ESTABLISHED)) == ESTABLISHED
        plain.sendall(b"GET http://" + mute + b"/ HTTP/1.1\r\nHost: " + mute + b"\r\n\r\n")
        wait_until(lambda: pair.server_metric("established_connections") == 2, "two")
        pair.server.kill()
        answer = _rest(plain)
        assert answer.startswith(b"HTTP/1.1 502 "), answer
        assert b"UMB513 the tunnel to " + mute + b" broke" in answer
        assert b"the tunnel broke: server 127.0.0.1:%d: " % pair.ports.frontend in answer
        assert _rest(tunnelled) == b""
        log = testbed.daemons["plain"].log
        wait_until(lambda: log.read_text().count("the tunnel broke: server 127.0.0.1") >= 2, "both are in the log")


def test_it_leaves_when_its_last_tunnel_has_ended(pki: TunnelPki, tmp_path: Path) -> None:
    with ExitStack() as stack:
        pair = TunnelPair(SHAPE, pki, tmp_path)
        stack.callback(lambda: print(pair.logs()))
        stack.callback(pair.stop)
        pair.start()
        testbed = HttpsTestbed(pair, stack)
        address = stack.enter_context(endpoint(echo)).encode()
        with socket.create_connection(("127.0.0.1", testbed.port), 60) as client:
            client.sendall(b"CONNECT " + address + b" HTTP/1.1\r\n\r\n")
            assert _receive(client, len(ESTABLISHED)) == ESTABLISHED
            testbed.daemons["plain"].signal(signal.SIGTERM)
            wait_until(lambda: _is_refused(testbed.port), "nobody new is let in")
            client.sendall(b"still here")
            assert _receive(client, 10) == b"still here"
        assert testbed.daemons["plain"].wait(60) == 0


def _ask(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 60) as client, client.makefile("rb") as answer:
        client.sendall(request)
        return answer.read()


def _receive(client: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        data = client.recv(count - len(received))
        assert data, received
        received += data
    return received


def _is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 60).close()
    except ConnectionRefusedError:
        return True
    return False


def _listen_only(sock: socket.socket) -> None:
    while sock.recv(1 << 16):
        pass


def _rest(sock: socket.socket) -> bytes:
    received = b""
    try:
        while octets := sock.recv(1 << 16):
            received += octets
    except ConnectionResetError:
        pass
    return received
