"""A client of the tunnel for tests: both frontend modes, over a Unix socket or over TCP with mutual TLS.

Independent of our own wire code on purpose: `h2` and `protobuf` speak for gRPC, plain sockets for CONNECT.
"""

import random
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

from tests.support import packet_messages
from tests.support.grpc_channel import PATIENCE_SECONDS, ChannelClosed, GrpcChannel, GrpcStream
from tests.support.packet_messages import PacketType

PROXY_PATH: Final = "/ProxyService/Proxy"
# What one write of Go's copy loop is; kube-apiserver's packets are of this size or less.
CHUNK_BYTES: Final = 32 * 1024
# Every socket made here, so that a test that fails in the middle leaves none of them open.
_opened: Final[list[socket.socket]] = []


def close_leftovers() -> None:
    """Close what a test left open; closing twice is fine."""
    while _opened:
        _opened.pop().close()


class DialRefused(Exception):
    """The tunnel was not opened; carries the status line (http-connect only) and the text for the client."""

    def __init__(self, text: str, status_line: str = "") -> None:
        super().__init__(f"{status_line}: {text}" if status_line else text)
        self.text = text
        self.status_line = status_line


class Tunnel(Protocol):
    """An open tunnel; `receive` returns b"" once the endpoint has closed."""

    def send(self, payload: bytes) -> None: ...
    def receive(self, size: int, timeout: float = ...) -> bytes: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class Dial(Protocol):
    """A dial under way: `finish` waits for its end, `abandon` goes away from it as a dying client does."""

    def finish(self, timeout: float = ...) -> Tunnel: ...
    def abandon(self) -> None: ...


def receive_exactly(tunnel: Tunnel, size: int, timeout: float = PATIENCE_SECONDS) -> bytes:
    """Return so many bytes, or fewer if the tunnel ends before."""
    deadline = time.monotonic() + timeout
    received = bytearray()
    while len(received) < size:
        chunk = tunnel.receive(size - len(received), max(0.01, deadline - time.monotonic()))
        if not chunk:
            break
        received += chunk
    return bytes(received)


def assert_echoes(tunnel: Tunnel, octets: bytes = b"still here") -> None:
    tunnel.send(octets)
    assert receive_exactly(tunnel, len(octets)) == octets


def receive_to_end(tunnel: Tunnel, timeout: float = PATIENCE_SECONDS) -> bytes:
    return receive_exactly(tunnel, 1 << 62, timeout)


@dataclass(frozen=True)
class Frontend:
    """Where and how a server takes clients. Exactly one of `unix_path` and `port` is set."""

    mode: str
    unix_path: Path | None = None
    port: int = 0
    tls: ssl.SSLContext | None = None

    def connect(self) -> socket.socket:
        """Return a socket to the frontend, with TLS done where there is TLS."""
        _opened.append(self._connect())
        return _opened[-1]

    def _connect(self) -> socket.socket:
        if self.unix_path is not None:
            plain = socket.socket(socket.AF_UNIX)
            plain.settimeout(PATIENCE_SECONDS)
            try:
                plain.connect(str(self.unix_path))
            except OSError:
                plain.close()
                raise
            return plain
        tcp = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert self.tls is not None
        try:
            return self.tls.wrap_socket(tcp, server_hostname="127.0.0.1")
        except OSError:
            tcp.close()
            raise

    def channel(self) -> GrpcChannel:
        authority = quote(str(self.unix_path), safe="") if self.unix_path else f"127.0.0.1:{self.port}"
        return GrpcChannel(self.connect(), authority)

    def dial(self, address: str) -> Dial:
        if self.mode == "grpc":
            return GrpcDial(self.channel(), address)
        return ConnectDial(self.connect(), address)

    def open(self, address: str, timeout: float = PATIENCE_SECONDS) -> Tunnel:
        """Dial and wait. Raises DialRefused."""
        return self.dial(address).finish(timeout)


class ConnectDial:
    """A CONNECT request that was sent."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.socket = sock
        sock.sendall(f"CONNECT {address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())

    def finish(self, timeout: float = PATIENCE_SECONDS) -> "SocketTunnel":
        self.socket.settimeout(timeout)
        received = self._read_head()
        head, end, rest = received.partition(b"\r\n\r\n")
        status_line = head.split(b"\r\n", 1)[0].decode("latin-1")
        if end and status_line.startswith("HTTP/1.1 200"):
            return SocketTunnel(self.socket, rest)
        body = rest + receive_to_end(SocketTunnel(self.socket), timeout)
        self.socket.close()
        raise DialRefused(body.decode("utf-8", "replace"), status_line)

    def abandon(self) -> None:
        self.socket.close()

    def _read_head(self) -> bytes:
        received = b""
        while b"\r\n\r\n" not in received:
            try:
                chunk = self.socket.recv(65536)
            except TimeoutError:
                self.socket.close()
                raise
            except OSError:
                chunk = b""
            if not chunk:
                break
            received += chunk
        return received


class SocketTunnel:
    """After the 200 line the socket is the tunnel."""

    def __init__(self, sock: socket.socket, early: bytes = b"") -> None:
        self.socket = sock
        self._early = early

    def send(self, payload: bytes) -> None:
        self.socket.settimeout(PATIENCE_SECONDS)
        self.socket.sendall(payload)

    def receive(self, size: int, timeout: float = PATIENCE_SECONDS) -> bytes:
        if self._early:
            taken, self._early = self._early[:size], self._early[size:]
            return taken
        self.socket.settimeout(timeout)
        try:
            return self.socket.recv(min(size, 1 << 18))
        except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return b""

    def close(self) -> None:
        self.socket.close()

    def abort(self) -> None:
        """Reset the connection instead of closing it."""
        if self.socket.family != socket.AF_UNIX:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()


class GrpcDial:
    """A Proxy stream on which DIAL_REQ was sent; by default alone on its connection, as kube-apiserver's are."""

    def __init__(self, channel: GrpcChannel, address: str, *, owns_channel: bool = True) -> None:
        self.channel = channel
        self.owns_channel = owns_channel
        self.dial_id = random.getrandbits(62)
        self.stream: GrpcStream = channel.open(PROXY_PATH)
        self.stream.send(packet_messages.dial_request(address, self.dial_id))

    def finish(self, timeout: float = PATIENCE_SECONDS) -> "GrpcTunnel":
        try:
            answer = self.stream.receive(timeout)
        except (ChannelClosed, TimeoutError):
            self.abandon()
            raise
        if answer is None:
            self.abandon()
            raise DialRefused(f"the stream ended: {self.stream.trailers}")
        assert answer.type == PacketType.DIAL_RSP, f"expected DIAL_RSP, got {answer}"
        assert answer.dialResponse.random == self.dial_id
        if answer.dialResponse.error:
            self.abandon()
            raise DialRefused(answer.dialResponse.error)
        return GrpcTunnel(self.stream, answer.dialResponse.connectID, owns_channel=self.owns_channel)

    def cancel(self) -> None:
        """Say DIAL_CLS, as a client does whose context has ended."""
        self.stream.send(packet_messages.close_dial(self.dial_id))

    def abandon(self) -> None:
        if self.owns_channel:
            self.channel.close()
        elif not self.stream.ended:
            self.stream.cancel()


class GrpcTunnel:
    def __init__(self, stream: GrpcStream, connection_id: int, *, owns_channel: bool) -> None:
        self.stream = stream
        self.connection_id = connection_id
        self.close_error: str | None = None
        self._owns_channel = owns_channel
        self._received = bytearray()

    def send(self, payload: bytes) -> None:
        for start in range(0, len(payload), CHUNK_BYTES):
            self.stream.send(packet_messages.data(self.connection_id, payload[start : start + CHUNK_BYTES]))

    def receive(self, size: int, timeout: float = PATIENCE_SECONDS) -> bytes:
        while not self._received and self.close_error is None:
            self._take(self.stream.receive(timeout))
        taken = bytes(self._received[:size])
        del self._received[: len(taken)]
        return taken

    def close(self) -> None:
        """Ask for the end and wait for the answer, as konnectivity-client does."""
        try:
            if self.close_error is None:
                self.stream.send(packet_messages.close_request(self.connection_id))
            while self.close_error is None:
                self._take(self.stream.receive())
        except (OSError, ChannelClosed):
            pass
        finally:
            self._leave()

    def abort(self) -> None:
        """Go without a word."""
        self._leave()

    def _take(self, packet: Any | None) -> None:
        if packet is None:
            self.close_error = "the stream ended"
        elif packet.type == PacketType.DATA:
            self._received += packet.data.data
        elif packet.type == PacketType.CLOSE_RSP:
            self.close_error = packet.closeResponse.error

    def _leave(self) -> None:
        if self._owns_channel:
            self.stream.channel.close()
        elif not self.stream.ended:
            self.stream.cancel()
