"""Reaching the server: name, TCP, and the way through HTTPS_PROXY, as grpc-go does it. Control plane, on asyncio."""

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

KEEPALIVE_SECONDS: Final = 15
"""Go's default for TCP keepalive probes."""
USER_TIMEOUT_MILLISECONDS: Final = 20_000
"""Unacknowledged bytes for this long end the connection; grpc-go sets it whenever keepalive is on."""

MAX_REPLY_BYTES: Final = 64 * 1024
Found = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]
"""One answer of getaddrinfo."""
Address = tuple[socket.AddressFamily, tuple[Any, ...]]
"""Where one connect goes: the family, and what the socket is given."""


def display(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def connect(host: str, port: int, address: Address | None = None) -> socket.socket:
    """A connected, non-blocking socket to the server, perhaps through a proxy. Raises OSError with the failing hop.

    With an address there is nothing to look up and nothing else to try.
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
    """Host, port and authorization of the proxy that the environment prescribes for the server; None: go direct.

    Raises OSError when the setting cannot be read.
    """
    setting = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or ""
    if not setting or _is_local(host) or is_bypassed(host, port):
        return None
    try:
        parts = urllib.parse.urlsplit(setting if "//" in setting else f"http://{setting}")
        port_given = parts.port
    except ValueError:
        # What exactly is wrong would show the setting, and that may hold a password.
        raise OSError("HTTPS_PROXY is not a URL with a host and a port") from None
    if not parts.hostname:
        return None
    authorization = ""
    if parts.username is not None:
        pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return parts.hostname, port_given or (443 if parts.scheme == "https" else 80), authorization


def is_proxied(host: str, port: int) -> bool:
    """Whether a proxy looks the name up; one that cannot be read does so too, and fails with its reason at connect."""
    try:
        return proxy_for(host, port) is not None
    except OSError:
        return True


def _is_local(host: str) -> bool:
    """Go never uses a proxy for this machine."""
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
    """Whether the host is an address already: no answer of a resolver will ever change it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host.partition("%")[0])
    except (OSError, ValueError):  # ValueError: a null character
        return False
    return True


async def look_up(host: str, port: int) -> list[Address]:
    """Every address of a name, at least one. Raises OSError."""
    try:
        # As bytes: for text, Python loads the tables of international names first, which an address does not need.
        found = _ask(host.encode(), port) if is_literal(host) else await _ask_aside(host, port)
    except socket.gaierror as error:
        raise OSError(f"lookup {host}: {error.strerror or error}") from error
    except ValueError as error:  # a label that is empty or too long
        raise OSError(f"lookup {host}: {error}") from error
    if not found:
        raise OSError(f"lookup {host}: no address")
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


async def _open(addresses: Sequence[Address]) -> socket.socket:
    """Connect to the first that lets us; the failure of the last is raised."""
    loop = asyncio.get_running_loop()
    failure = OSError("no address")
    for family, address in addresses:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            words = os.strerror(error.errno) if error.errno else str(error)  # asyncio puts its own in strerror
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
    """getaddrinfo in a daemon thread: asyncio would wait for its own threads at exit, and a lookup may hang."""
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
            pass  # the loop has closed: the agent is leaving

    threading.Thread(target=work, name="lookup", daemon=True).start()
    answer = await answered
    if isinstance(answer, Exception):
        raise answer
    return answer


def tune(sock: socket.socket) -> None:
    """Options of a long-lived connection between agent and server."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MILLISECONDS)


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
            raise OSError("closed before it answered CONNECT")
        head += piece
        if piece == b"\n" or len(head) > MAX_REPLY_BYTES:
            reply = http1.parse_connect_reply(head, MAX_REPLY_BYTES)
    if reply.status != 200:
        raise OSError(f"refused CONNECT {target}: {reply.status} {reply.reason}")
