"""A listener on loopback that does one thing to every client, in a thread: TLS of some kind, or none at all."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# An empty SETTINGS frame: what HTTP/2 servers say first (RFC 9113 §3.4).
SETTINGS: Final = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
SECONDS: Final = 20.0

Deed = Callable[[socket.socket], None]


@contextmanager
def listener(deed: Deed, host: str = "127.0.0.1") -> Iterator[int]:
    """Yield the port. A client that ends early is none of the listener's business."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        thread = threading.Thread(target=_serve, args=(server, deed), name="listener")
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(SECONDS)


def speaks_first(context: ssl.SSLContext) -> Deed:
    def deed(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as secure:
            secure.sendall(SETTINGS)
            _until_end(secure)

    return deed


def answers(context: ssl.SSLContext) -> Deed:
    """Wait for the client's first words before saying anything."""

    def deed(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as secure:
            if secure.recv(100):
                secure.sendall(SETTINGS)
            _until_end(secure)

    return deed


def says_nothing(context: ssl.SSLContext) -> Deed:
    def deed(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as secure:
            _until_end(secure)

    return deed


def hangs_up(context: ssl.SSLContext) -> Deed:
    def deed(client: socket.socket) -> None:
        context.wrap_socket(client, server_side=True).close()

    return deed


def plain_text(client: socket.socket) -> None:
    client.sendall(b"220 mail ready\r\n")
    _until_end(client)


def swallows(client: socket.socket) -> None:
    _until_end(client)


def _until_end(client: socket.socket) -> None:
    while client.recv(4096):
        continue


def _serve(server: socket.socket, deed: Deed) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with contextlib.closing(client), contextlib.suppress(OSError):
            client.settimeout(SECONDS)
            deed(client)
