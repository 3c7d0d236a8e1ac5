"""Connecting to a server: name lookup, TCP, and HTTPS_PROXY, as grpc-go does. Runs on asyncio."""

import asyncio
import base64
import os
import socket
import threading
import urllib.parse
from collections.abc import Sequence
from typing import Any, Final

from umbilical.wire import http1
from umbilical.wire.errors import ProtocolViolation

KEEPALIVE_SECONDS: Final = 15.0
"""Go's default for TCP keepalive: silence before the first probe, and the interval of further ones."""
KEEPALIVE_PROBES: Final = 9
"""Go's default: without an answer to so many the kernel ends the connection."""
LONGEST_KEEPALIVE_SECONDS: Final = 32_767.0
"""The kernel's maximum."""
USER_TIMEOUT_MILLISECONDS: Final = 20_000
"""The kernel ends a connection with bytes unacknowledged for this long; grpc-go sets it with keepalive."""

MAX_REPLY_BYTES: Final = 64 * 1024
Found = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]
"""One answer of getaddrinfo."""
Address = tuple[socket.AddressFamily, tuple[Any, ...]]
"""Address family and socket address of one connect."""


def display(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def connect(host: str, port: int, address: Address | None = None) -> socket.socket:
    """Return a connected, non-blocking socket, possibly through a proxy. Raises OSError that names the failing hop.

    With an address there is no lookup and no proxy.
    """
    if address is not None:
        return await _open([address])
    proxy = proxy_for(host, port)
    if proxy is None:
        return await _open(await look_up(host, port))
    proxy_host, proxy_port, authorization = proxy
    try:
        sock = await _open(await look_up(proxy_host, proxy_port))
    except OSError as error:
        raise OSError(f"HTTPS_PROXY {display(proxy_host, proxy_port)}: {error.strerror or error}") from error
    try:
        await _ask_proxy(sock, display(host, port), authorization)
    except (OSError, ProtocolViolation) as error:
        sock.close()
        raise OSError(f"HTTPS_PROXY {display(proxy_host, proxy_port)}: {error}") from error
    except BaseException:
        sock.close()
        raise
    return sock


def proxy_for(host: str, port: int) -> tuple[str, int, str] | None:
    """Return host, port and authorization of the proxy for the server; None: connect directly.

    Raises OSError for a malformed HTTPS_PROXY.
    """
    setting = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or ""
    if not setting or _is_local(host) or is_bypassed(host, port):
        return None
    try:
        parts = urllib.parse.urlsplit(setting if "//" in setting else f"http://{setting}")
        port_given = parts.port
    except ValueError:
        # Details could reveal a password.
        raise OSError("HTTPS_PROXY is not a URL with a host and a port") from None
    if not parts.hostname:
        return None
    authorization = ""
    if parts.username is not None:
        pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return parts.hostname, port_given or (443 if parts.scheme == "https" else 80), authorization


def is_proxied(host: str, port: int) -> bool:
    """Whether a proxy resolves the name. True also for a malformed HTTPS_PROXY, which then fails at connect."""
    try:
        return proxy_for(host, port) is not None
    except OSError:
        return True


def _is_local(host: str) -> bool:
    """Like Go, never use a proxy for this machine."""
    return host in ("localhost", "::1") or host.startswith("127.")


def is_bypassed(host: str, port: int) -> bool:
    """Whether NO_PROXY names the server: `*`, a host, a domain (with a leading `.` or `*.` too), an address, a CIDR."""
    setting = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    entries = [entry.strip().lower() for entry in setting.split(",")]
    return any(_names(entry, host.lower(), port) for entry in entries if entry)


def _names(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    import ipaddress  # only behind a proxy

    try:
        address = ipaddress.ip_address(host)
        return address in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        pass  # one of the two is a name, or the entry has a port
    name, colon, wanted_port = entry.rpartition(":")
    if colon and wanted_port.isdigit():
        return int(wanted_port) == port and _names(name.strip("[]"), host, port)
    entry = entry.removeprefix("*") if entry.startswith("*.") else entry
    return host == entry or host.endswith(entry if entry.startswith(".") else f".{entry}")


def is_literal(host: str) -> bool:
    """Whether the host is an IP address, which needs no lookup."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host.partition("%")[0])
    except (OSError, ValueError):  # ValueError: a null character
        return False
    return True


async def look_up(host: str, port: int) -> list[Address]:
    """Return all addresses of a name, at least one. Raises OSError."""
    try:
        # As bytes: for text, Python loads the tables of international names.
        found = _ask(host.encode(), port) if is_literal(host) else await _ask_aside(host, port)
    except socket.gaierror as error:
        raise OSError(f"lookup {host}: {error.strerror or error}") from error
    except ValueError as error:  # a label that is empty or too long
        raise OSError(f"lookup {host}: {error}") from error
    if not found:
        raise OSError(f"lookup {host}: no address")
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


async def _open(addresses: Sequence[Address]) -> socket.socket:
    """Connect to the first address that accepts; raise the failure of the last."""
    loop = asyncio.get_running_loop()
    failure = OSError("no address")
    for family, address in addresses:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            words = os.strerror(error.errno) if error.errno else str(error)  # strerror has asyncio's own text
            failure = OSError(f"dial {display(str(address[0]), int(address[1]))}: {words}")
            continue
        except BaseException:
            sock.close()
            raise
        tune(sock)
        return sock
    raise failure


def _ask(host: str | bytes, port: int) -> Sequence[Found]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _ask_aside(host: str, port: int) -> Sequence[Found]:
    """Run getaddrinfo in a daemon thread: a hanging lookup in asyncio's own threads would delay the exit."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Sequence[Found] | Exception] = loop.create_future()

    def settle(answer: Sequence[Found] | Exception) -> None:
        if not answered.done():
            answered.set_result(answer)

    def work() -> None:
        answer: Sequence[Found] | Exception
        try:
            answer = _ask(host, port)
        except Exception as error:
            answer = error
        try:
            loop.call_soon_threadsafe(settle, answer)
        except RuntimeError:
            pass  # the loop is closed: the agent is stopping

    threading.Thread(target=work, name="lookup", daemon=True).start()
    answer = await answered
    if isinstance(answer, Exception):
        raise answer
    return answer


def tune(sock: socket.socket) -> None:
    """Set the options of a long-lived connection between agent and server."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    keep_alive(sock, KEEPALIVE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MILLISECONDS)


def keep_alive(sock: socket.socket, interval_seconds: float) -> None:
    """Let the kernel find out that the other host is dead; not with an interval of 0."""
    if interval_seconds <= 0:
        return
    seconds = int(min(max(interval_seconds, 1.0), LONGEST_KEEPALIVE_SECONDS))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)


async def _ask_proxy(sock: socket.socket, target: str, authorization: str) -> None:
    loop = asyncio.get_running_loop()
    headers = [("User-Agent", "umbilical-agent")]
    if authorization:
        headers.append(("Proxy-Authorization", authorization))
    await loop.sock_sendall(sock, http1.format_connect_request(target, headers))
    head = bytearray()
    reply = None
    while reply is None:
        # One byte at a time: what follows the head belongs to TLS.
        piece = await loop.sock_recv(sock, 1)
        if not piece:
            raise OSError("closed the connection before it answered CONNECT")
        head += piece
        if piece == b"\n" or len(head) > MAX_REPLY_BYTES:
            reply = http1.parse_connect_reply(head, MAX_REPLY_BYTES)
    if reply.status != 200:
        raise OSError(f"refused CONNECT {target}: {reply.status} {reply.reason}")
