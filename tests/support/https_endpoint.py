"""A web server on loopback for tunnels to end at, plain or TLS, that tells what it was asked."""

import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.support.joined_server import HttpServer

PATIENCE_SECONDS: Final = 60.0


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_SECONDS

    def do_GET(self) -> None:
        self._answer(f"GET {self.path} for {self.headers['Host']}".encode())

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """The test's output is for the test."""


class _Server(HttpServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle, or does not trust us, is no news here."""


@contextmanager
def web_server(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Yields the port."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="web")
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(PATIENCE_SECONDS)
