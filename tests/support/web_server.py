"""An HTTP server in a thread, plain or with TLS, that answers as a handler of the test says."""

import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.support.joined_server import HttpServer

SECONDS: Final = 60.0


class Handler(http.server.BaseHTTPRequestHandler):
    """To be subclassed; silent, since the client's side is what a test reads."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on standard error."""

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a whole answer, whose length is told."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def serving(
    handler: type[Handler], context: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> Iterator[int]:
    """Yield the port."""
    with HttpServer((host, port), handler) as server:
        if context is not None:
            # In the accepting thread a client that says nothing would hold up all others.
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="web-server")
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(SECONDS)
