"""Clients of http-connect that can end their own side of a tunnel and go on reading: Unix socket and TLS."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.support.grpc_channel import PATIENCE_SECONDS
from tests.support.tunnel_client import Frontend


class TlsHalf:
    """A TLS client that can end its own side and go on reading, which `ssl.SSLSocket` cannot."""

    def __init__(self, frontend: Frontend) -> None:
        context = frontend.tls
        assert context is not None
        self._socket = socket.create_connection(("127.0.0.1", frontend.port), timeout=PATIENCE_SECONDS)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        self._until_done(self._tls.do_handshake)

    def _until_done(self, step: Any, *arguments: Any) -> Any:
        while True:
            try:
                result = step(*arguments)
            except ssl.SSLWantReadError:
                self._flush()
                octets = self._socket.recv(1 << 16)
                if octets:
                    self._incoming.write(octets)
                else:
                    self._incoming.write_eof()
            else:
                self._flush()
                return result

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.sendall(self._outgoing.read())

    def sendall(self, octets: bytes) -> None:
        self._until_done(self._tls.write, octets)

    def recv(self, size: int) -> bytes:
        try:
            return bytes(self._until_done(self._tls.read, size))
        except ssl.SSLZeroReturnError:
            return b""

    def end(self) -> None:
        with suppress(ssl.SSLWantReadError):  # it wants the other side's end, which may come much later
            self._tls.unwrap()
        self._flush()
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


class PlainHalf:
    def __init__(self, frontend: Frontend) -> None:
        self._socket = frontend.connect()

    def sendall(self, octets: bytes) -> None:
        self._socket.sendall(octets)

    def recv(self, size: int) -> bytes:
        return self._socket.recv(size)

    def end(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def half_closing(frontend: Frontend, address: str) -> Iterator[TlsHalf | PlainHalf]:
    """A client with an open tunnel that can end its own side alone."""
    client = TlsHalf(frontend) if frontend.tls is not None else PlainHalf(frontend)
    try:
        client.sendall(f"CONNECT {address} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        assert head.startswith(b"HTTP/1.1 200")
        yield client
    finally:
        client.close()


def rest_of(client: TlsHalf | PlainHalf) -> bytes:
    received = bytearray()
    while octets := client.recv(1 << 16):
        received += octets
    return bytes(received)
