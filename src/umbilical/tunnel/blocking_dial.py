"""One tunnel for a program that does one thing at a time: blocking sockets, every wait within one deadline.

It enters a server's Unix socket as kube-apiserver does, in either protocol, or goes without a tunnel; a dial that
fails is told in kube-apiserver's words. The data plane of server and agent has nothing to do with this.
"""

import errno
import os
import socket
import time
from typing import Final, Protocol

from umbilical.konnectivity import dial_failure
from umbilical.wire import http1
from umbilical.wire.errors import ProtocolViolation

RECEIVE_BYTES: Final = 64 * 1024


class DialRefused(Exception):
    """There is no connection; `str()` is what kube-apiserver would print behind the URL."""


class Deadline:
    """One point in time that many waits share."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Raises TimeoutError once there is none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("context deadline exceeded")
        return left


class Stream(Protocol):
    """An open connection; `receive` returns b"" once the endpoint has closed it."""

    def send(self, payload: bytes) -> None: ...
    def receive(self) -> bytes: ...
    def close(self) -> None: ...


class SocketStream:
    """A socket that leads to the endpoint: a direct one, or one behind CONNECT."""

    def __init__(self, sock: socket.socket, deadline: Deadline, early: bytes = b"") -> None:
        self._socket: Final = sock
        self._deadline: Final = deadline
        self._early = early

    def send(self, payload: bytes) -> None:
        self._socket.settimeout(self._deadline.remaining())
        self._socket.sendall(payload)

    def receive(self) -> bytes:
        if self._early:
            taken, self._early = self._early, b""
            return taken
        self._socket.settimeout(self._deadline.remaining())
        return self._socket.recv(RECEIVE_BYTES)

    def close(self) -> None:
        self._socket.close()


def dial_direct(address: str, deadline: Deadline) -> SocketStream:
    """Dial as kube-apiserver without an egress selector."""
    try:
        host, port = dial_failure.split_host_port(address)
        sock = socket.create_connection((host, port), timeout=deadline.remaining())
    except dial_failure.BadAddress as error:
        raise DialRefused(dial_failure.bad_address_text("tcp", error)) from None
    except TimeoutError:
        raise DialRefused(dial_failure.dial_timeout_text("tcp", address)) from None
    except (socket.gaierror, UnicodeError):
        raise DialRefused(dial_failure.lookup_error_text("tcp", host, "")) from None
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "EIO")
        raise DialRefused(dial_failure.dial_error_text("tcp", address, name)) from None
    return SocketStream(sock, deadline)


def dial_connect(socket_path: str, address: str, deadline: Deadline) -> SocketStream:
    """Dial through a server in mode http-connect."""
    try:
        sock = open_socket(socket_path, deadline)
    except OSError as error:
        raise DialRefused(unix_dial_text(socket_path, error)) from None
    try:
        # kube-apiserver writes this Host whatever it dials.
        sock.sendall(f"CONNECT {address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        early = _read_reply(sock, socket_path, address, deadline)
    except (OSError, ProtocolViolation) as error:
        sock.close()
        text = f"reading HTTP response from CONNECT to {address} via proxy {socket_path} failed: {_read_fault(error)}"
        raise DialRefused(text) from None
    except DialRefused:
        sock.close()
        raise
    return SocketStream(sock, deadline, early)


def open_socket(path: str, deadline: Deadline) -> socket.socket:
    """Connect to a server's Unix socket."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(deadline.remaining())
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock


def unix_dial_text(path: str, error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return dial_failure.dial_timeout_text("unix", path)
    words = os.strerror(error.errno).lower() if error.errno else str(error)
    return f"dial unix {path}: connect: {words}"


def _read_fault(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "i/o timeout"
    return "EOF" if isinstance(error, ConnectionError) else str(error)


def _read_reply(sock: socket.socket, socket_path: str, address: str, deadline: Deadline) -> bytes:
    received = b""
    while (reply := http1.parse_connect_reply(received)) is None:
        sock.settimeout(deadline.remaining())
        chunk = sock.recv(RECEIVE_BYTES)
        if not chunk:
            raise ConnectionError("the server closed the connection")
        received += chunk
    if reply.status != 200:
        status = f"{reply.status} {reply.reason}".strip()
        raise DialRefused(f"proxy error from {socket_path} while dialing {address}, code {reply.status}: {status}")
    return received[reply.end_offset :]
