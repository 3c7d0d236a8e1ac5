"""A client for both proxies: SOCKS5, HTTP CONNECT and plain requests, with blocking sockets.

It shares no code with the proxies, so that a bug in them is not hidden by the same bug here.
"""

import contextlib
import http.client
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

ANSWER_SECONDS: Final = 30.0
_LONGEST_HEAD: Final = 16 * 1024
_LONGEST_BODY: Final = 4 * 1024
# RFC 1928 section 6.
_REPLIES: Final = {
    1: "general SOCKS server failure",
    2: "connection not allowed by ruleset",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "TTL expired",
    7: "command not supported",
    8: "address type not supported",
}


class ProxyProtocol(Enum):
    SOCKS5 = "socks5"
    CONNECT = "connect"
    PLAIN = "plain"


@dataclass(frozen=True)
class ProxyRoute:
    """An endpoint and the proxy to reach it through."""

    kind: ProxyProtocol
    proxy: tuple[str, int]
    host: str
    port: int
    authority: Path | None = None
    """CA file of an endpoint with TLS."""

    @property
    def endpoint(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def to_json(self) -> dict[str, Any]:
        authority = None if self.authority is None else str(self.authority)
        return {"kind": self.kind.value, "proxy": self.proxy, "host": self.host, "port": self.port, "ca": authority}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "ProxyRoute":
        authority = None if content["ca"] is None else Path(content["ca"])
        host, port = content["proxy"]
        return cls(
            ProxyProtocol(content["kind"]),
            (str(host), int(port)),
            str(content["host"]),
            int(content["port"]),
            authority,
        )


class RouteRefused(OSError):
    """The proxy or the endpoint refused; the message is its own."""


def open_route(route: ProxyRoute, seconds: float = ANSWER_SECONDS) -> socket.socket:
    """Open a connection to the endpoint, with TLS if it has a CA; for `PLAIN`, to the proxy.

    Raises RouteRefused: the proxy refused; OSError: it is unreachable or closed the connection.
    """
    stream = socket.create_connection(route.proxy, seconds)
    try:
        if route.kind is ProxyProtocol.SOCKS5:
            _ask_socks(stream, route)
        elif route.kind is ProxyProtocol.CONNECT:
            _ask_connect(stream, route)
        return stream if route.authority is None else _with_tls(stream, route)
    except BaseException:
        stream.close()
        raise


def get(route: ProxyRoute, path: str, seconds: float = ANSWER_SECONDS) -> bytes:
    """GET on a new connection. Raises RouteRefused: refused, or the status is not 200; OSError: no answer."""
    with open_route(route, seconds) as stream:
        send_request(stream, route, path)
        return read_answer(stream)


def send_request(stream: socket.socket, route: ProxyRoute, path: str) -> None:
    target = f"http://{route.endpoint}{path}" if route.kind is ProxyProtocol.PLAIN else path
    stream.sendall(f"GET {target} HTTP/1.1\r\nHost: {route.endpoint}\r\nConnection: close\r\n\r\n".encode())


def read_answer(stream: socket.socket) -> bytes:
    """Read head and body. Raises RouteRefused: the status is not 200; OSError: the connection ended first."""
    answer = http.client.HTTPResponse(stream)
    try:
        answer.begin()
        body = answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"incomplete answer: {type(error).__name__} {error}") from error
    if answer.status != http.client.OK:
        raise RouteRefused(f"{answer.status} {answer.reason}: {_words(body)}")
    return body


def _with_tls(stream: socket.socket, route: ProxyRoute) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=route.authority)
    return context.wrap_socket(stream, server_hostname=route.host)


def _ask_socks(stream: socket.socket, route: ProxyRoute) -> None:
    stream.sendall(b"\x05\x01\x00")
    if _exactly(stream, 2) != b"\x05\x00":
        raise RouteRefused("the SOCKS server requires another authentication method")
    stream.sendall(b"\x05\x01\x00" + _socks_address(route.host) + route.port.to_bytes(2, "big"))
    _, reply, _, kind = _exactly(stream, 4)
    length = {1: 4, 4: 16}.get(kind) or _exactly(stream, 1)[0]
    _exactly(stream, length + 2)
    if reply:
        raise RouteRefused(f"SOCKS reply {reply}: {_REPLIES.get(reply, 'unknown')}")


def _socks_address(host: str) -> bytes:
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        return bytes([1 if address.version == 4 else 4]) + address.packed
    name = host.encode("idna")
    return bytes([3, len(name)]) + name


def _ask_connect(stream: socket.socket, route: ProxyRoute) -> None:
    stream.sendall(f"CONNECT {route.endpoint} HTTP/1.1\r\nHost: {route.endpoint}\r\n\r\n".encode())
    head = b""
    # Byte by byte, so that nothing after the head is read.
    while not head.endswith(b"\r\n\r\n"):
        if len(head) > _LONGEST_HEAD:
            raise ConnectionError("the proxy's answer head is too long")
        head += _exactly(stream, 1)
    status = head.partition(b"\r\n")[0].decode(errors="replace")
    if status.split(" ")[1:2] != ["200"]:
        raise RouteRefused(f"{status.partition(' ')[2]}: {_words(_rest(stream))}")


def _rest(stream: socket.socket) -> bytes:
    rest = b""
    with contextlib.suppress(OSError):
        while len(rest) < _LONGEST_BODY and (chunk := stream.recv(_LONGEST_BODY)):
            rest += chunk
    return rest


def _words(body: bytes) -> str:
    return " ".join(body.decode(errors="replace").split())


def _exactly(stream: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        chunk = stream.recv(count - len(found))
        if not chunk:
            raise ConnectionResetError("the proxy closed the connection")
        found += chunk
    return found
