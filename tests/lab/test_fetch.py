"""One GET from inside a node."""

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest


class _Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"ok" if self.path == "/readyz" else b"not yet"
        self.send_response(200 if self.path == "/readyz" else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def address() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Health) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10)


def _fetch(url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "umbilical.lab.fetch", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_a_good_answer_is_printed_and_the_exit_status_is_0(address: str) -> None:
    done = _fetch(f"{address}/readyz")
    assert (done.returncode, done.stdout) == (0, "ok")


def test_a_bad_answer_is_exit_status_1_and_named(address: str) -> None:
    done = _fetch(f"{address}/healthz")
    assert done.returncode == 1
    assert "503" in done.stderr


def test_nobody_there_is_exit_status_1_and_no_stack_trace(address: str) -> None:
    # Port 1 of loopback: nobody listens there.
    done = _fetch("http://127.0.0.1:1/")
    assert done.returncode == 1
    assert "refused" in done.stderr
    assert "Traceback" not in done.stderr
