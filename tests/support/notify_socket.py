"""A service manager's end of the notify protocol: a datagram socket that the test made, and who sent what."""

import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

PATIENCE_SECONDS: Final = 60.0
_CREDENTIALS: Final = struct.Struct("iII")


class Notification(NamedTuple):
    lines: tuple[str, ...]
    sender: int
    """Process id, from the kernel."""


class NotifySocket:
    def __init__(self, address: str) -> None:
        """`address` is the value of NOTIFY_SOCKET: a path, or @ and an abstract name."""
        self.address: Final = address
        self.sock: Final = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.sock.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.heard: Final[list[Notification]] = []

    def next(self, seconds: float = PATIENCE_SECONDS) -> Notification:
        """Wait for a notification. Raises TimeoutError."""
        self.sock.settimeout(seconds)
        octets, parts, _, _ = self.sock.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS.size))
        sender = _CREDENTIALS.unpack(parts[0][2])[0]
        self.heard.append(Notification(tuple(octets.decode().split("\n")), sender))
        return self.heard[-1]

    def until(self, line: str) -> Notification:
        """Wait for a notification with this line. Raises TimeoutError."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            notification = self.next(max(0.01, deadline - time.monotonic()))
            if line in notification.lines:
                return notification
        raise TimeoutError(f"no notification {line!r}: {self.heard}")

    def drain(self) -> list[Notification]:
        """Return what has arrived, without waiting."""
        before = len(self.heard)
        try:
            while True:
                self.next(0.0)
        except BlockingIOError:
            return self.heard[before:]


@contextmanager
def notify_socket(place: Path | str) -> Iterator[NotifySocket]:
    ear = NotifySocket(str(place))
    try:
        yield ear
    finally:
        ear.sock.close()


def with_variables(variables: Mapping[str, str]) -> list[str]:
    """Return the beginning of a command that runs a program with these variables, in the same process."""
    return ["env", *(f"{name}={value}" for name, value in variables.items())]


def abstract_name() -> str:
    return f"@umbilical-test-{os.getpid()}-{os.urandom(4).hex()}"
