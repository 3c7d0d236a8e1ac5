"""curl through the http-connect frontend over mutual TLS: the way operators test a Konnectivity server by hand."""

import http.server
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import StartPair
from tests.support.tunnel_pair import Shape, TunnelPair, free_port
from tests.support.tunnel_pki import FolderAuthority, Pair

IMPLEMENTATIONS = ["ours", pytest.param("upstream", marks=pytest.mark.real("proxy-server", "proxy-agent"))]
pytestmark = pytest.mark.real("curl")


@pytest.fixture
def kubelet_authority(tmp_path: Path) -> FolderAuthority:
    """Give a second authority: the endpoint's certificates have nothing to do with the proxy's."""
    folder = tmp_path / "kubelet-pki"
    folder.mkdir()
    return FolderAuthority(folder, "kubelet-ca")


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_curl_reaches_a_kubelet_like_endpoint_with_both_certificates(
    start_pair: StartPair, kubelet_authority: FolderAuthority, implementation: str
) -> None:
    pair = _mtls_pair(start_pair, implementation)
    client = kubelet_authority.client("kubelet-client")
    with _kubelet(kubelet_authority) as url:
        inner = ["--cacert", str(kubelet_authority.certificate_file)]
        inner += ["--cert", str(client.certificate), "--key", str(client.key)]
        done = _curl(pair, pair.pki.client, [*inner, url])
    assert (done.returncode, done.stdout) == (0, "kubelet_up 1\n"), done.stderr


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


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_curl_is_told_of_a_refused_endpoint(start_pair: StartPair, implementation: str) -> None:
    pair = _mtls_pair(start_pair, implementation)
    done = _curl(pair, pair.pki.client, ["-p", f"http://127.0.0.1:{free_port()}/"])
    assert done.returncode == 56
    assert "response 502" in done.stderr


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
def _kubelet(authority: FolderAuthority) -> Iterator[str]:
    context = authority.server_context(authority.serving("kubelet"))
    context.load_verify_locations(str(authority.certificate_file))
    context.verify_mode = ssl.CERT_REQUIRED
    with _serve(context) as port:
        yield f"https://127.0.0.1:{port}/metrics"


@contextmanager
def _serve(context: ssl.SSLContext | None) -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), _Metrics) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="kubelet")
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(10)
