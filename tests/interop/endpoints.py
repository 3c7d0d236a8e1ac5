"""TCP endpoints for tunnels to end at; each runs in threads of the test process, on loopback."""

import hashlib
import http.server
import queue
import random
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tests.support.joined_server import HttpServer, JoinedThreads
from tests.support.tunnel_pair import free_port

IDLE_SECONDS: Final = 60.0
Behaviour = Callable[[socket.socket], None]


class _Server(JoinedThreads, socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = 1024
    behaviour: Behaviour

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is no news here."""


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Server)
        self.request.settimeout(IDLE_SECONDS)
        self.server.behaviour(self.request)


@contextmanager
def endpoint(behaviour: Behaviour) -> Iterator[str]:
    """Serve the behaviour, one thread per connection; yields `host:port`."""
    with _Server(("127.0.0.1", free_port()), _Handler) as server:
        server.behaviour = behaviour
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="endpoint")
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(10)


def refused_address() -> str:
    """Return an address where nobody listens."""
    return f"127.0.0.1:{free_port()}"


def echo(sock: socket.socket) -> None:
    while octets := sock.recv(1 << 16):
        sock.sendall(octets)


def transfer(sock: socket.socket) -> None:
    """Obey one line: `up N` takes N bytes and answers their digest, `down N` sends N bytes of `pattern(N)`.

    Then wait for the client to close first: upstream's server may die of a close from both sides.
    """
    with sock.makefile("rb") as lines:
        for line in lines:
            verb, size = line.split()
            if verb == b"up":
                digest = hashlib.sha256()
                rest = int(size)
                while rest and (octets := lines.read(min(rest, 1 << 16))):
                    digest.update(octets)
                    rest -= len(octets)
                sock.sendall(digest.hexdigest().encode())
            else:
                sock.sendall(pattern(int(size)))


def pattern(size: int) -> bytes:
    """Return bytes that tell a lost, doubled or swapped piece from the right one."""
    return random.Random(size).randbytes(size)


class Recorder:
    """Takes everything until the end and puts the byte count (and a reset, if there was one) into `ends`."""

    def __init__(self) -> None:
        self.ends: queue.Queue[int] = queue.Queue()

    def __call__(self, sock: socket.socket) -> None:
        count = 0
        try:
            while octets := sock.recv(1 << 16):
                count += len(octets)
        except OSError:
            pass
        self.ends.put(count)


@contextmanager
def http_endpoint(body: bytes = b"hello") -> Iterator[str]:
    """Answer every GET with the body."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Tests read the client's side."""

    with HttpServer(("127.0.0.1", free_port()), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="http-endpoint")
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(10)
