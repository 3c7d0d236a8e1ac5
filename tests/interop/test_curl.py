"""curl through the http-connect frontend over mutual TLS: the way operators test a Konnectivity server by hand."""

import http.server
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.interop.conftest import StartPair
from tests.support.joined_server import HttpServer
from tests.support.tunnel_pair import Shape, TunnelPair, free_port
from tests.support.tunnel_pki import FolderAuthority, Pair
from tests.support.web_server import Handler, serving

IMPLEMENTATIONS = ["ours", pytest.param("upstream", marks=pytest.mark.real("proxy-server", "proxy-agent"))]
pytestmark = pytest.mark.real("curl")


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_curl_with_p_flag_reaches_a_plain_endpoint(start_pair: StartPair, implementation: str) -> None:
    pair = _mtls_pair(start_pair, implementation)
    with _serve(None) as port:
        done = _curl(pair, pair.pki.client, ["-p", f"http://127.0.0.1:{port}/metrics"])
    assert (done.returncode, done.stdout) == (0, "kubelet_up 1\n"), done.stderr


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_curl_without_a_client_certificate_is_turned_away(start_pair: StartPair, implementation: str) -> None:
    pair = _mtls_pair(start_pair, implementation)
    with _serve(None) as port:
        done = _curl(pair, None, ["-p", f"http://127.0.0.1:{port}/metrics"])
    assert done.returncode != 0
    assert done.stdout == ""


def _mtls_pair(start_pair: StartPair, implementation: str) -> TunnelPair:
    return start_pair(Shape(implementation, implementation, "http-connect", "tcp-mtls"))


def _curl(pair: TunnelPair, client: Pair | None, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = ["curl", "--silent", "--show-error", "--max-time", "20", "-x", f"https://127.0.0.1:{pair.ports.frontend}"]
    command += ["--proxy-cacert", str(pair.pki.authority.certificate_file)]
    if client is not None:
        command += ["--proxy-cert", str(client.certificate), "--proxy-key", str(client.key)]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=30, check=False)


class _Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"kubelet_up 1\n")

    def log_message(self, format: str, *args: Any) -> None:
        """The client's side is what the test reads."""


@contextmanager
def _serve(context: ssl.SSLContext | None) -> Iterator[int]:
    with HttpServer(("127.0.0.1", free_port()), _Metrics) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="kubelet")
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(10)


PROGRAM: Final = str(Path(sys.executable).parent / "umbilical")
SECONDS: Final = 120.0
LINES: Final = "".join(f'kubelet_metric{{number="{number}"}} {number}\n' for number in range(5000)).encode()


class Kubelet(Handler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(LINES), 10_000):
            chunk = LINES[start : start + 10_000]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        told = f"{self.headers['Content-Type']} {self.headers['X-More']} ".encode() + body
        self.answer(201, told)


@contextmanager
def kubelet(authority: FolderAuthority) -> Iterator[str]:
    context = authority.server_context(authority.serving("kubelet"))
    context.load_verify_locations(str(authority.certificate_file))
    context.verify_mode = ssl.CERT_REQUIRED
    with serving(Kubelet, context) as port:
        yield f"https://127.0.0.1:{port}"


def theirs(pair: TunnelPair, inner: list[str]) -> subprocess.CompletedProcess[bytes]:
    pki = pair.pki
    proxy = ["-x", f"https://127.0.0.1:{pair.ports.frontend}", "--proxy-cacert", str(pki.authority.certificate_file)]
    proxy += ["--proxy-cert", str(pki.client.certificate), "--proxy-key", str(pki.client.key)]
    return subprocess.run(["curl", "-sS", *proxy, *inner], capture_output=True, timeout=SECONDS, check=False)


def ours(pair: TunnelPair, inner: list[str]) -> subprocess.CompletedProcess[bytes]:
    pki = pair.pki
    files = ["--ca", pki.authority.certificate_file, "--cert", pki.client.certificate, "--key", pki.client.key]
    command = [PROGRAM, "proxy", "curl", "--server", f"127.0.0.1:{pair.ports.frontend}", *map(str, files), *inner]
    return subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)


def certificates(authority: FolderAuthority, client: Pair, prefix: str) -> list[str]:
    pair = [f"--{prefix}cert", str(client.certificate), f"--{prefix}key", str(client.key)]
    return ["--cacert", str(authority.certificate_file), *pair]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_both_bring_the_same_from_a_kubelet_like_endpoint(
    start_pair: StartPair, tmp_path: Path, implementation: str
) -> None:
    pair = start_pair(Shape(implementation, implementation, "http-connect", "tcp-mtls"))
    (tmp_path / "kubelet").mkdir()
    authority = FolderAuthority(tmp_path / "kubelet", "kubelet-ca")
    client = authority.client("kube-apiserver")
    their_files, our_files = certificates(authority, client, ""), certificates(authority, client, "client-")
    with kubelet(authority) as url:
        for inner in ([f"{url}/metrics"], [f"{url}/run", "-H", "X-More: 1", "-d", "a=b"]):
            their, our = theirs(pair, [*their_files, *inner]), ours(pair, [*our_files, *inner])
            assert (their.returncode, their.stderr) == (0, b"")
            assert (our.returncode, our.stderr) == (0, b"")
            assert our.stdout == their.stdout
        assert our.stdout == b"application/x-www-form-urlencoded 1 a=b"
        without = ours(pair, ["-k", f"{url}/metrics"])
    assert without.returncode == 4, "the endpoint wants a certificate"
    assert without.stdout == b""


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_where_curl_says_502_ours_says_why(start_pair: StartPair, implementation: str) -> None:
    pair = start_pair(Shape(implementation, implementation, "http-connect", "tcp-mtls"))
    url = f"http://127.0.0.1:{free_port()}/"
    their, our = theirs(pair, ["-p", url]), ours(pair, [url])
    assert (their.returncode, our.returncode) == (56, 4)
    assert b"502" in their.stderr
    assert our.stderr.startswith(b"UMB501 ")
    assert b"connection refused" in our.stderr


def test_a_reader_that_has_seen_enough_is_no_fault(start_pair: StartPair, tmp_path: Path) -> None:
    pair = start_pair(Shape("ours", "ours", "http-connect", "tcp-mtls"))
    (tmp_path / "kubelet").mkdir()
    authority = FolderAuthority(tmp_path / "kubelet", "kubelet-ca")
    files = certificates(authority, authority.client("kube-apiserver"), "client-")
    pki = pair.pki
    entrance = ["--ca", pki.authority.certificate_file, "--cert", pki.client.certificate, "--key", pki.client.key]
    with kubelet(authority) as url:
        command = [PROGRAM, "proxy", "curl", "--server", f"127.0.0.1:{pair.ports.frontend}", *map(str, entrance)]
        process = subprocess.Popen([*command, *files, f"{url}/metrics"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10) == LINES[:10]
        process.stdout.close()
        with process.stderr:
            told = process.stderr.read()
        process.wait(SECONDS)
    assert told == b""
