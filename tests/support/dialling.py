"""Dials under test: owners that record, a resolver with a script, and a listener that answers no connect."""

import socket
from collections.abc import Callable
from typing import Final

from tests.support.data_plane import turn_until
from tests.support.socket_pairs import kept
from tests.support.tunnel_pair import free_port

from umbilical.tunnel.dialing import Address, Dial, DialOwner, EndpointDialer
from umbilical.tunnel.loop import Loop


class Caller(DialOwner):
    """Wants one dial and writes down how it went."""

    def __init__(self) -> None:
        self.sock: socket.socket | None = None
        self.mask = 0
        self.failures: list[str] = []
        self.then: Callable[[], object] = _nothing

    def is_over(self) -> bool:
        return self.sock is not None or bool(self.failures)

    def dial_succeeded(self, sock: socket.socket, mask: int) -> None:
        assert self.sock is None
        self.then()
        self.sock, self.mask = kept(sock), mask

    def dial_failed(self, text: str) -> None:
        self.failures.append(text)
        self.then()


def _nothing() -> None:
    """The default of `Caller.then`."""


class ScriptedResolver:
    """Knows the names it was told; a name with a text fails with it, any other waits for `answer`."""

    def __init__(self, names: dict[str, list[Address] | str] | None = None) -> None:
        self.names: Final = names or {}
        self.waiting: list[Dial] = []
        self.asked: list[tuple[str, int]] = []

    def resolve(self, dial: Dial, host: str, port: int) -> None:
        self.asked.append((host, port))
        known = self.names.get(host)
        if known is None:
            self.waiting.append(dial)
        elif isinstance(known, str):
            dial.unresolved(known)
        else:
            dial.resolved(known)


def dialer(
    plane: Loop, resolver: ScriptedResolver | None = None, timeout_seconds: float = 10.0, limit: int = 100
) -> EndpointDialer:
    return EndpointDialer(plane, resolver or ScriptedResolver(), timeout_seconds, limit)


def ask(plane: Loop, where: EndpointDialer, address: str, network: str = "tcp") -> Caller:
    """One dial to its end."""
    caller = Caller()
    where.dial(caller, network, address)
    turn_until(plane, caller.is_over)
    return caller


def failure(plane: Loop, where: EndpointDialer, address: str, network: str = "tcp") -> str:
    caller = ask(plane, where, address, network)
    assert caller.sock is None
    (text,) = caller.failures
    return text


def listening(host: str = "127.0.0.1", backlog: int = 64) -> tuple[socket.socket, int]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = kept(socket.create_server((host, 0), family=family, backlog=backlog))
    return sock, sock.getsockname()[1]


def closed_port() -> int:
    """Return a port that nobody listens on; none that the kernel gives away, not even to the dial itself."""
    return free_port()


def silent_port(host: str = "127.0.0.1") -> int:
    """Return a port where a connect gets no answer: its backlog is full, so the kernel drops what comes."""
    sock, port = listening(host, backlog=0)
    for _ in range(3):
        filler = kept(socket.socket(sock.family))
        filler.setblocking(False)
        filler.connect_ex((host, port))
    return port
