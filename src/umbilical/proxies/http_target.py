"""Whom a request to a proxy is for: `host:port` of a CONNECT, `http://host/path` of all others (RFC 9112, 3.2)."""

import re
import socket
from typing import Final

from umbilical.proxies.http_head import BadRequest
from umbilical.record import Record

HTTP_PORT: Final = 80
_LAST_PORT: Final = 65535
_NAME: Final = re.compile(r"[A-Za-z0-9_~-]+(?:\.[A-Za-z0-9_~-]+)*\.?")
_MAX_NAME: Final = 254  # RFC 1035, with a last dot
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)")


class Target(Record):
    host: str
    """A name or an address; IPv6 without brackets."""
    port: int
    authority: str = ""
    """As the client wrote it: what the endpoint finds in `Host`."""
    path: str = ""
    """Path and query as they are asked of the endpoint itself; empty for CONNECT."""

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def connect_target(text: str, default_port: int | None = None) -> Target:
    """Read the target of a CONNECT; without a default a port must be there. Raises BadRequest."""
    host, port = _split(text)
    if port is None and default_port is None:
        raise BadRequest(400, "CONNECT needs host:port, and there is no port")
    return Target(host, default_port or 0 if port is None else port, authority=text)


def absolute_target(method: str, text: str) -> Target:
    """Read a URL, as clients send it to a proxy. Raises BadRequest for all other forms."""
    match = _SCHEME.fullmatch(text)
    if match is None:
        raise BadRequest(400, "this is a proxy: it serves CONNECT host:port and requests for http:// URLs")
    scheme, authority, rest = match.groups()
    if scheme.lower() == "https":
        raise BadRequest(400, "https:// needs CONNECT: no TLS is opened here on a client's behalf")
    if scheme.lower() != "http":
        raise BadRequest(400, "only http:// URLs are served, and CONNECT")
    if "#" in rest:
        raise BadRequest(400, "a fragment in the request's target")
    host, port = _split(authority)
    return Target(host, HTTP_PORT if port is None else port, authority, _path(method, rest))


def check_host_field(value: str) -> None:
    """RFC 9112 section 3.2: what is no host and port is refused, though the target is what counts."""
    if value:
        _split(value)


def _path(method: str, rest: str) -> str:
    if not rest and method == "OPTIONS":
        return "*"  # RFC 9112 section 3.2.4: the server as a whole
    return rest if rest.startswith("/") else "/" + rest


def _split(authority: str) -> tuple[str, int | None]:
    if "@" in authority:
        raise BadRequest(400, "credentials in the request's target")  # RFC 9110 section 4.2.4
    if authority.startswith("["):
        literal, bracket, port = authority[1:].partition("]")
        if not bracket or (port and not port.startswith(":")) or not _is_ipv6(literal):
            raise BadRequest(400, "no IPv6 address in the brackets")
        return literal, _port(port[1:])
    host, _, port = authority.partition(":")
    if len(host) > _MAX_NAME or not _NAME.fullmatch(host):
        raise BadRequest(400, "the host is neither a name nor an address; IPv6 goes in brackets")
    return host, _port(port)


def _port(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(_LAST_PORT)) or not 0 < int(text) <= _LAST_PORT:
        raise BadRequest(400, f"the port is not one of 1 to {_LAST_PORT}")
    return int(text)


def _is_ipv6(literal: str) -> bool:
    """A zone names an interface of the client's machine, which is nothing to the endpoint's."""
    try:
        socket.inet_pton(socket.AF_INET6, literal)
    except OSError:
        return False
    return True
