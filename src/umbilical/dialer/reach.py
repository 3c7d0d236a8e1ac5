"""A connected socket to one server: its Unix socket, or one of the addresses of its name."""

import asyncio
import errno
import os
import socket
from typing import Final

from umbilical.dialer.settings import TcpServer, UnixServer
from umbilical.konnectivity.dial_failure import join_host_port

BUSY_SECONDS: Final = 0.005
"""Pause between attempts at a Unix socket with a full queue: the kernel does not report when there is room again."""
KEEPALIVE_SECONDS: Final = 15
"""A vanished server machine is detected after a few of these (Go's default)."""
KEEPALIVE_COUNT: Final = 9


class Unreached(Exception):
    """No address of the server accepts a connection; `str()` is the error of the last one."""


def name_of(server: UnixServer | TcpServer) -> str:
    """Return the server's name in messages."""
    return f"unix:{server.path}" if isinstance(server, UnixServer) else join_host_port(server.host, server.port)


async def reach(server: UnixServer | TcpServer, seconds: float) -> socket.socket:
    """Return a non-blocking socket. `seconds` is the timeout for each address. Raises Unreached."""
    if isinstance(server, UnixServer):
        return await _attempt(socket.AF_UNIX, str(server.path), seconds)
    why = "its name has no address"
    for family, address in await _addresses(server, seconds):
        try:
            return await _attempt(family, address, seconds)
        except Unreached as error:
            why = str(error) if address[0] == server.host else f"{address[0]}: {error}"
    raise Unreached(why)


async def _addresses(server: TcpServer, seconds: float) -> list[tuple[int, tuple[str, int]]]:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, server.host)
        except (OSError, ValueError):
            continue
        return [(family, (server.host, server.port))]
    return await _look_up(server, seconds)


async def _look_up(server: TcpServer, seconds: float) -> list[tuple[int, tuple[str, int]]]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            found = await loop.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise Unreached(f"its name was not resolved within {seconds:g} s") from None
    except (OSError, UnicodeError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise Unreached(f"its name could not be resolved: {words}") from None
    return [(family, (str(address[0]), int(address[1]))) for family, _, _, _, address in found]


async def _attempt(family: int, address: str | tuple[str, int], seconds: float) -> socket.socket:
    try:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    except OSError as error:
        raise Unreached(words_of(error)) from None
    try:
        if isinstance(address, str) and _is_connected(sock, address):
            return sock
        async with asyncio.timeout(seconds):
            if isinstance(address, str):
                await _connect_unix(sock, address)
            else:
                await asyncio.get_running_loop().sock_connect(sock, address)
                _keep_alive(sock)
    except TimeoutError:
        sock.close()
        raise Unreached(f"no connection within {seconds:g} s") from None
    except OSError as error:
        sock.close()
        raise Unreached(words_of(error)) from None
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect_unix(sock: socket.socket, path: str) -> None:
    """Connect without asyncio, which takes EAGAIN for "in progress": for a Unix socket it means a full queue."""
    pause = BUSY_SECONDS
    while not _is_connected(sock, path):
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.1)


def _is_connected(sock: socket.socket, path: str) -> bool:
    """Connect; False while the queue of the Unix socket is full."""
    try:
        sock.connect(path)
    except BlockingIOError:
        return False
    return True


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT)


def words_of(error: OSError) -> str:
    """Return the kernel's message: asyncio replaces it in exceptions that it creates."""
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno).lower()
    return error.strerror or str(error) or type(error).__name__
