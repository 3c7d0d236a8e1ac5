"""The service manager that started this process (systemd), if there is one: the sockets that it passed, and what it is
told: ready, the loop turns, reloading, stopping.

The protocols are sd_listen_fds(3) and sd_notify(3). Their variables are taken out of the environment, so that workers
neither send notifications in our place nor look for sockets that they do not have.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, MutableMapping
from contextlib import AsyncExitStack
from typing import Final

from umbilical.fault import StartupError
from umbilical.tunnel import causes
from umbilical.tunnel.daemon import end_task, own_task
from umbilical.tunnel.settings import TcpFrontend, UnixFrontend

logger = logging.getLogger(__name__)

FIRST_PASSED: Final = 3
"""Number of the first socket that is passed: SD_LISTEN_FDS_START."""
STATUS_SECONDS: Final = 5.0
"""Longest time between two notifications: a status for people, and a sign of life if one is expected."""
RETRY_SECONDS: Final = 0.1
"""Until a notification is sent again that the manager had no room for. Linux queues 10 datagrams by default."""
_MICROSECONDS: Final = 1_000_000
_MOST_DIGITS: Final = 18
_LONGEST_PATH: Final = 107
"""sun_path has 108 bytes, the last one is 0."""

Environment = MutableMapping[str, str]


class ServiceManager:
    """Without an address it is told nothing."""

    def __init__(
        self, address: str | bytes = "", watchdog_seconds: float = 0.0, passed: tuple[socket.socket, ...] = ()
    ) -> None:
        self._address: Final = address
        # Half of what is allowed, as sd_watchdog_enabled(3) recommends, or more often.
        self._pause: Final = min(watchdog_seconds / 2 or STATUS_SECONDS, STATUS_SECONDS)
        self._watchdog: Final = "WATCHDOG=1" if watchdog_seconds else ""
        self._passed: Final = passed
        self._unsent: Final[list[str]] = []
        self._status = ""
        self._told_failure = False

    def ready(self, stack: AsyncExitStack, status: Callable[[], str]) -> None:
        """Tell that all ports are open, and from now on that the loop turns, until the stack closes."""
        if self._address:
            self._tell("READY=1", self._changed(status))
            stack.push_async_callback(end_task, own_task(self._keep_telling(status)))

    async def _keep_telling(self, status: Callable[[], str]) -> None:
        """A timer of the one loop that serves tunnels: when that loop hangs, no notification is sent."""
        while True:
            await asyncio.sleep(self._pause)
            if not self._unsent:
                self._tell(self._watchdog, self._changed(status))

    def _changed(self, status: Callable[[], str]) -> str:
        before, self._status = self._status, status()
        return "" if self._status == before else f"STATUS={self._status}"

    def reloading(self, reload: Callable[[], None]) -> None:
        """Reload between the two notifications that enclose it."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            reload()
        finally:
            self._tell("READY=1")

    def stopping(self) -> None:
        """Tell that the process finishes its tunnels and exits; the watchdog goes on until then."""
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        notification = "\n".join(filter(None, lines))
        if self._address and notification:
            self._unsent.append(notification)
            if len(self._unsent) == 1:
                self._send()

    def _send(self) -> None:
        """Send in order. Without a lasting connection: a manager that starts itself anew has a new socket."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
                while self._unsent:
                    sock.sendto(self._unsent[0].encode(), self._address)
                    del self._unsent[0]
        except BlockingIOError:
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._send)
        except OSError as error:
            self._unsent.clear()
            self._note(error)

    def _note(self, error: OSError) -> None:
        if not self._told_failure:
            self._told_failure = True
            _warn(f"it takes no notification: {error.strerror or error}")

    def clients_socket(self, frontend: UnixFrontend | TcpFrontend) -> socket.socket | None:
        """Return the socket for clients, if it was passed. Raises StartupError: another one was."""
        if not self._passed:
            return None
        if not isinstance(frontend, UnixFrontend):
            raise _not_usable("clients connect over TCP, and only a Unix socket for clients can be passed")
        if len(self._passed) > 1:
            raise _not_usable(f"{len(self._passed)} sockets were passed, and only the one for clients can be used")
        sock = self._passed[0]
        if not _listens(sock):
            raise _not_usable("it is not a listening Unix stream socket")
        place = os.fsdecode(sock.getsockname())
        if os.path.realpath(place) != os.path.realpath(frontend.path):
            raise _not_usable(f"it listens on {place!r}, and clients are expected on {str(frontend.path)!r}")
        sock.setblocking(False)
        return sock


def _listens(sock: socket.socket) -> bool:
    is_stream = (sock.family, sock.type & ~socket.SOCK_NONBLOCK) == (socket.AF_UNIX, socket.SOCK_STREAM)
    return is_stream and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def take(environment: Environment, pid: int) -> ServiceManager:
    """Read and remove the variables of both protocols. Raises StartupError: the sockets that were passed cannot be
    used. Another bad value is a warning: tunnels work without notifications."""
    named = {name: environment.pop(name, None) for name in (*_NOTIFICATIONS, *_SOCKETS)}
    passed = passed_sockets(named["LISTEN_FDS"], named["LISTEN_PID"], pid)
    address, seconds = _notifications(named, pid)
    return ServiceManager(address, seconds, passed)


_NOTIFICATIONS: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_SOCKETS: Final = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")


def _notifications(named: dict[str, str | None], pid: int) -> tuple[str | bytes, float]:
    address: str | bytes = ""
    seconds = 0.0
    try:
        address = notification_address(named["NOTIFY_SOCKET"])
        seconds = watchdog_seconds(named["WATCHDOG_USEC"], named["WATCHDOG_PID"], pid)
    except ValueError as fault:
        _warn(str(fault))
    return address, seconds


def notification_address(text: str | None) -> str | bytes:
    """Return the address for `sendto`; empty without one. Raises ValueError: it is not a path, nor abstract."""
    if not text:
        return ""
    if text[0] not in "/@" or len(text) == 1 or len(os.fsencode(text)) > _LONGEST_PATH:
        raise ValueError(f"NOTIFY_SOCKET={text!r} is neither a path nor @ and an abstract name")
    return b"\0" + os.fsencode(text[1:]) if text[0] == "@" else text


def watchdog_seconds(text: str | None, owner: str | None, pid: int) -> float:
    """Return the longest time between two signs of life; 0 if none are expected of the process `pid`.

    Raises ValueError: one of the two values is not a number.
    """
    if text is None:
        return 0.0
    microseconds = _number("WATCHDOG_USEC", text)
    if microseconds == 0:
        raise ValueError("WATCHDOG_USEC=0 leaves no time")
    is_ours = owner is None or _number("WATCHDOG_PID", owner) == pid
    return microseconds / _MICROSECONDS if is_ours else 0.0


def passed_sockets(
    count: str | None, owner: str | None, pid: int, first: int = FIRST_PASSED
) -> tuple[socket.socket, ...]:
    """Take the sockets that were passed to the process `pid`; the first has the number `first`. Raises StartupError."""
    if count is None or owner is None:
        return ()
    try:
        if _number("LISTEN_PID", owner) != pid:
            return ()
        numbers = range(first, first + _number("LISTEN_FDS", count))
    except ValueError as fault:
        raise _not_usable(str(fault)) from None
    return tuple(_taken(number) for number in numbers)


def _taken(number: int) -> socket.socket:
    try:
        os.set_inheritable(number, False)
        return socket.socket(fileno=number)
    except OSError as error:
        raise _not_usable(f"file {number} is not an open socket: {error.strerror or error}") from None


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise ValueError(f"{name}={text!r} is not a number")
    return int(text)


def _not_usable(why: str) -> StartupError:
    remedy = "compare ListenStream= of the socket unit with the path that the server is given"
    return StartupError("UMB025", "cannot use the socket that the service manager passed", why, remedy)


def _warn(text: str) -> None:
    cause = causes.FailureCause("UMB431", text)
    logger.warning("%s the service manager cannot be told: %s", cause.code, cause.text, extra=cause.fields)
