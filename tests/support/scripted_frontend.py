"""A server's frontend that a test plays by hand: it takes clients one by one and does one thing to each."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PATIENCE_SECONDS: Final = 60.0
Deed = Callable[[socket.socket], None]


@contextmanager
def unix_frontend(path: Path, deed: Deed) -> Iterator[Path]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with _serving(listener, deed, None):
            yield path


@contextmanager
def tcp_frontend(deed: Deed, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Yields the port on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener, _serving(listener, deed, context):
        yield listener.getsockname()[1]


@contextmanager
def _serving(listener: socket.socket, deed: Deed, context: ssl.SSLContext | None) -> Iterator[None]:
    listener.listen()
    thread = threading.Thread(target=_serve, args=(listener, deed, context), name="frontend")
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_SECONDS)


def _serve(listener: socket.socket, deed: Deed, context: ssl.SSLContext | None) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        client.settimeout(PATIENCE_SECONDS)
        with client, suppress(OSError):
            _do(client, deed, context)


def _do(client: socket.socket, deed: Deed, context: ssl.SSLContext | None) -> None:
    if context is None:
        deed(client)
        return
    with context.wrap_socket(client, server_side=True) as secure:
        deed(secure)


def read_head(sock: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n") and (octet := sock.recv(1)):
        head += octet
    return head


def until_end(sock: socket.socket) -> bytes:
    received = b""
    while octets := sock.recv(1 << 16):
        received += octets
    return received


def answering(*pieces: bytes) -> Deed:
    """Take one request and answer in so many writes, then end."""

    def deed(sock: socket.socket) -> None:
        read_head(sock)
        for piece in pieces:
            sock.sendall(piece)
        sock.shutdown(socket.SHUT_WR)
        until_end(sock)

    return deed


def silent(sock: socket.socket) -> None:
    until_end(sock)
