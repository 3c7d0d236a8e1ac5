"""Listening sockets of the data plane: Unix and TCP; a rule decides when a connection waits in the backlog."""

import errno
import logging
import os
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from umbilical.fault import StartupError
from umbilical.tunnel import causes
from umbilical.tunnel.descriptors import OUT_OF_FILES
from umbilical.tunnel.loop import Handler, Loop
from umbilical.tunnel.settings import ListenAddress, UnixFrontend

logger = logging.getLogger(__name__)

BACKLOG: Final = 4_096
MOST_ACCEPTS_PER_TURN: Final = 64
PAUSE_SECONDS: Final = 0.05
"""Time until a listener that may not accept asks again; connections wait in the backlog."""


SERVE: Final = 254
"""In place of the address family of a client: the receiver is the server on this socket to another worker."""
ATTEND: Final = 255
"""The receiver plays the agent."""
_INT: Final = struct.Struct("i")


class AcceptRule(Handler):
    """Whether a listener may accept now; this one never forbids it."""

    def has_space(self, listener: int) -> bool:
        """Whether one more connection may be accepted; `listener` is the number of the listening socket."""
        return True

    def makes_space(self, listener: int) -> bool:
        """There is none and somebody waits: True if it was made, False if that must wait."""
        return False

    def failed(self, reason: str) -> None:
        """The kernel had no file for a connection, which waits."""


class SocketListener(Handler):
    def __init__(
        self, loop: Loop, sock: socket.socket, accepted: Callable[[socket.socket], None], rule: AcceptRule
    ) -> None:
        self._loop: Final = loop
        self._sock: Final = sock
        self._descriptor: Final = sock.fileno()
        self._accepted: Final = accepted
        self._rule: Final = rule
        self._open = True
        self._family: Final = int(sock.family)
        self._share = 1
        """Connections to accept per turn: as many as recently arrived together, so that few calls find none."""
        self._filled_turn = -1
        loop.add_listener(sock.fileno(), self)

    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    def on_events(self, mask: int) -> None:
        for number in range(self._share):
            if not self._open:
                return
            if not self._rule.has_space(self._descriptor):
                if number > 0:
                    return  # perhaps nobody waits any more; otherwise the next turn reports it
                if not self._rule.makes_space(self._descriptor):
                    self._pause()
                    return
            if not self._accept_one():
                return
        # The listener is level-triggered: connections that still wait are reported in the next turn.
        turn = self._loop.turns
        if turn == self._filled_turn + 1 and self._share < MOST_ACCEPTS_PER_TURN:
            self._share += 1
        self._filled_turn = turn

    def _accept_one(self) -> bool:
        try:
            sock = self._take()
        except BlockingIOError:
            self._share = max(1, self._share >> 1)
            return False
        except OSError as error:
            self._accept_failed(error)
            return False
        if sock is not None:
            sock.setblocking(False)
            self._accepted(sock)
        return sock is not None

    def _take(self) -> socket.socket | None:
        """The next connection; None if there will never be one again. Raises BlockingIOError, or OSError."""
        # `accept` would read three properties per socket. It calls `_accept`, which every CPython has but typeshed
        # does not declare.
        descriptor, _ = self._sock._accept()  # type: ignore[attr-defined]
        return socket.socket(self._family, socket.SOCK_STREAM, 0, descriptor)

    def accept_rest(self) -> None:
        """Accept all that are in the backlog: their kernel has reported a connection already."""
        for _ in range(BACKLOG):
            if not self._open or not self._accept_one():
                return

    def _accept_failed(self, error: OSError) -> None:
        if error.errno in OUT_OF_FILES:
            self._rule.failed(error.strerror or str(error))
            self._pause()

    def _pause(self) -> None:
        self._loop.remove(self._descriptor)
        self._loop.after(PAUSE_SECONDS, self)

    def on_timer(self) -> None:
        if self._open:
            self._loop.add_listener(self._descriptor, self)

    def on_crash(self, error: Exception) -> None:
        logger.error("internal error while accepting a connection: %r", error)

    def close(self) -> None:
        if self._open:
            self._open = False
            # Not `forget`: a service manager may keep the socket open, and then closing it here unregisters nothing.
            self._loop.remove(self._descriptor)
            self._sock.close()


class PassedListener(SocketListener):
    """The connections that another process accepted and passes here, over a socket that keeps messages apart.

    Those that may not be taken yet wait in that socket, and then in the other process's backlog.
    """

    serve: Callable[[socket.socket], None] | None = None
    attend: Callable[[socket.socket], None] | None = None
    """What takes the private sockets between workers (siblings.py), which come the same way."""

    def _take(self) -> socket.socket | None:
        message, parts, _, _ = self._sock.recvmsg(1, socket.CMSG_SPACE(_INT.size), socket.MSG_CMSG_CLOEXEC)
        if not message:
            self.close()  # the other process is gone
            return None
        if not parts:
            raise OSError(errno.EMFILE, "no free file for a connection that was passed")  # the kernel dropped it
        kind, descriptor = message[0], _INT.unpack(parts[0][2][: _INT.size])[0]
        if kind not in (SERVE, ATTEND):
            return socket.socket(kind, socket.SOCK_STREAM, 0, descriptor)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, descriptor)
        sock.setblocking(False)
        taker = self.serve if kind == SERVE else self.attend
        assert taker is not None
        taker(sock)
        return self._take()


def pass_on(over: socket.socket, sock: socket.socket, kind: int = 0) -> None:
    """Send a connection to a `PassedListener`; `kind` is SERVE or ATTEND between workers.

    Raises BlockingIOError if its process does not take more now, OSError if it has ended.
    """
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, _INT.pack(sock.fileno()))
    try:
        over.sendmsg([bytes([kind or sock.family])], [rights])
    except OSError as error:
        if error.errno in (errno.ETOOMANYREFS, errno.ENOBUFS):
            raise BlockingIOError(error.errno, error.strerror) from error
        raise


def listen_tcp(address: ListenAddress, what: str) -> socket.socket:
    """`what` names the listener in errors. An empty host means every interface, IPv6 and IPv4."""
    family = socket.AF_INET6 if not address.host or ":" in address.host else socket.AF_INET
    host = address.host or "::"
    try:
        try:
            sock = _bound(family, host, address.port)
        except OSError as error:
            if address.host or error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
            sock = _bound(socket.AF_INET, "0.0.0.0", address.port)  # a machine without IPv6
    except OSError as error:
        shown = f"{address.host or '*'}:{address.port}"
        raise StartupError(
            "UMB023",
            f"cannot listen on {shown} for {what}",
            error.strerror or str(error),
            f"see who holds the port: ss -ltnp 'sport = :{address.port}'",
        ) from error
    return sock


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def listen_unix(frontend: UnixFrontend) -> socket.socket:
    """Create the socket file with mode 0770; an old socket file is replaced, another kind of file is an error."""
    path = frontend.path
    _clear(path, frontend.replace_existing)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    mask = os.umask(0o007)
    try:
        sock.bind(str(path))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise StartupError(
            "UMB024",
            f"cannot listen on the Unix socket {path}",
            error.strerror or str(error),
            f"check the directory: ls -ld {path.parent}",
        ) from error
    finally:
        os.umask(mask)
    return sock


class SocketFile:
    """A socket file of our own."""

    def __init__(self, path: Path) -> None:
        """Call it after `bind`."""
        self._path: Final = path
        self._identity = _identity(path)

    def remove(self) -> None:
        """While the socket is open: a successor may have replaced the file, or gets its inode once it is closed."""
        ours, self._identity = self._identity, None
        if ours is not None and _identity(self._path) == ours:
            self._path.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _tell_replaced(path: Path) -> None:
    """Warn: a killed server leaves its socket file behind; a running one loses its clients to us."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as probe:
        code = probe.connect_ex(str(path))
    if code == errno.ECONNREFUSED:
        cause = causes.FailureCause("UMB410", "no process listens on it; a previous server was killed")
    else:
        cause = causes.FailureCause("UMB411", "another server listens on it and receives no more clients")
    logger.warning("%s replaced the socket file %s: %s", cause.code, path, cause.text, extra=cause.fields)


def _clear(path: Path, replace: bool) -> None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return  # missing, or `bind` reports the error
    if replace and stat.S_ISSOCK(mode):
        _tell_replaced(path)
        path.unlink(missing_ok=True)
    elif replace:
        raise StartupError(
            "UMB024",
            f"cannot listen on the Unix socket {path}",
            "the path exists and is not a socket",
            f"remove or rename it: ls -l {path}",
        )
