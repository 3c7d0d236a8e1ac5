"""Parser for request heads of untrusted clients, as strict as RFC 9112 allows, and for their targets.

An ambiguous head is refused, never repaired: what is forwarded has one meaning. A target is `host:port` of a CONNECT,
`http://host/path` of all others. Nothing here waits; bytes may arrive in any pieces.
"""

import re
import socket
from typing import Final

from umbilical.konnectivity.dial_failure import join_host_port
from umbilical.record import Record

Field = tuple[bytes, bytes]
"""A header's name as sent, and its value without surrounding whitespace."""

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # RFC 9110 section 5.6.2
_REQUEST_LINE: Final = re.compile(rb"(%s) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])" % _TOKEN)
_FIELD_LINE: Final = re.compile(rb"(%s):[ \t]*([\t\x20-\x7e\x80-\xff]*)" % _TOKEN)
_SPACE_IN_NAME: Final = re.compile(rb"%s[ \t]+:" % _TOKEN)
_FORBIDDEN: Final = re.compile(rb"\r(?!\n)|(?<!\r)\n|\0")
"""RFC 9112 section 2.2 allows lenient readers; the next hop may read them differently."""
_TOKEN_BYTES: Final = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_END: Final = b"\r\n\r\n"
_LEADING_LINES: Final = 2
"""Empty lines that some old clients send after a body; RFC 9112 section 2.2."""


class BadRequest(Exception):
    """A request that is refused; the connection is closed after the response."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status: Final = status
        self.why: Final = why


class HeadLimits(Record):
    """Limits for request heads."""

    head_bytes: int = 64 * 1024
    """The whole head. The largest tokens and cookies in use are a quarter of that."""
    line_bytes: int = 16 * 1024
    """The request line."""
    fields: int = 128


class RequestHead(Record):
    method: str
    target: str
    is_http10: bool
    fields: tuple[Field, ...]

    def values(self, name: bytes) -> list[bytes]:
        """Return all values of a header; `name` is in lower case."""
        return [value for field, value in self.fields if field.lower() == name]

    def options(self, name: bytes) -> list[bytes]:
        """Return the members of a comma-separated list, in lower case."""
        members = [part.strip(b" \t").lower() for value in self.values(name) for part in value.split(b",")]
        return [member for member in members if member]


class HeadReader:
    """Collects one head; searches each byte once."""

    def __init__(self, limits: HeadLimits) -> None:
        self._limits: Final = limits
        self._buffer = bytearray()
        self._scanned = 0
        self._leading = 0
        self.rest = b""
        """The bytes after the head, once `feed` has returned it."""

    @property
    def has_begun(self) -> bool:
        return bool(self._buffer)

    def feed(self, data: bytes) -> RequestHead | None:
        """Add bytes; return the head once it is complete. Raises BadRequest as soon as it is invalid."""
        self._buffer += data
        self._skip_leading_lines()
        self._check_first_byte()
        end = self._buffer.find(_END, max(self._scanned - len(_END) + 1, 0))
        self._check_bytes(end)
        if end < 0:
            self._check_sizes(len(self._buffer))
            self._scanned = len(self._buffer)
            return None
        self._check_sizes(end + len(_END))
        self.rest = bytes(self._buffer[end + len(_END) :])
        return parse_request(bytes(self._buffer[:end]), self._limits)

    def _skip_leading_lines(self) -> None:
        while self._leading < _LEADING_LINES and self._buffer.startswith(b"\r\n"):
            del self._buffer[:2]
            self._leading += 1

    def _check_first_byte(self) -> None:
        """Refuse a client that speaks TLS or SOCKS at its first byte."""
        if self._buffer and self._buffer != b"\r" and self._buffer[0] not in _TOKEN_BYTES:
            raise BadRequest(400, "not HTTP: the first byte is not valid in a method")

    def _check_bytes(self, end: int) -> None:
        last = end + len(_END) if end >= 0 else len(self._buffer) - self._buffer.endswith(b"\r")
        if found := _FORBIDDEN.search(self._buffer, max(self._scanned - 1, 0), max(last, 0)):
            names = {b"\r": "a CR without LF", b"\n": "an LF without CR", b"\0": "a NUL"}
            raise BadRequest(400, f"{names[found[0]]} in the head")

    def _check_sizes(self, size: int) -> None:
        limits = self._limits
        if self._buffer.find(b"\r\n", 0, limits.line_bytes + 2) < 0 and size > limits.line_bytes:
            raise BadRequest(414, f"the request line is longer than {limits.line_bytes} bytes")
        if size > limits.head_bytes:
            raise BadRequest(431, f"the head is longer than {limits.head_bytes} bytes")


def parse_request(head: bytes, limits: HeadLimits) -> RequestHead:
    """Parse a complete head without its final empty line."""
    first, *lines = head.split(b"\r\n")
    method, target, is_http10 = _request_line(first)
    if len(lines) > limits.fields:
        raise BadRequest(431, f"more than {limits.fields} header fields")
    parsed = RequestHead(method, target, is_http10, tuple(parse_field(line) for line in lines))
    _check_host(parsed)
    return parsed


def _request_line(line: bytes) -> tuple[str, str, bool]:
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise BadRequest(400, "the first line is not a request line")
    method, target, major, minor = match.groups()
    if major != b"1":
        raise BadRequest(505, "only HTTP/1.1 and HTTP/1.0 are supported")
    return method.decode("ascii"), target.decode("ascii"), minor == b"0"


def parse_field(line: bytes) -> Field:
    """Parse one line of a head or of trailers."""
    match = _FIELD_LINE.fullmatch(line)
    if match is not None:
        return match[1], match[2].rstrip(b" \t")
    if line[:1] in (b" ", b"\t"):
        raise BadRequest(400, "a header line is folded")
    if _SPACE_IN_NAME.match(line):
        raise BadRequest(400, "whitespace between a header's name and its colon")
    raise BadRequest(400, "a header line is malformed, or contains a control character")


def _check_host(head: RequestHead) -> None:
    """RFC 9112 section 3.2. For CONNECT Host may be missing, as in Go's server: its target names the host."""
    hosts = head.values(b"host")
    if len(hosts) > 1:
        raise BadRequest(400, "more than one Host header")
    if not hosts and not head.is_http10 and head.method != "CONNECT":
        raise BadRequest(400, "no Host header")


HTTP_PORT: Final = 80
_LAST_PORT: Final = 65535
_NAME: Final = re.compile(r"[A-Za-z0-9_~-]+(?:\.[A-Za-z0-9_~-]+)*\.?")
_MAX_NAME: Final = 254  # RFC 1035, with a last dot
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)")


class RequestTarget(Record):
    host: str
    """A name or an address; IPv6 without brackets."""
    port: int
    authority: str = ""
    """As the client wrote it; sent to the endpoint as `Host`."""
    path: str = ""
    """Path and query; empty for CONNECT."""

    @property
    def address(self) -> str:
        return join_host_port(self.host, self.port)


def connect_target(text: str, default_port: int | None = None) -> RequestTarget:
    """Parse the target of a CONNECT; without a default the port is required. Raises BadRequest."""
    host, port = _split(text)
    if port is None and default_port is None:
        raise BadRequest(400, "CONNECT needs host:port, and the port is missing")
    return RequestTarget(host, default_port or 0 if port is None else port, authority=text)


def absolute_target(method: str, text: str) -> RequestTarget:
    """Parse a URL, as clients send it to a proxy. Raises BadRequest for all other forms."""
    match = _SCHEME.fullmatch(text)
    if match is None:
        raise BadRequest(400, "not a proxy request: CONNECT host:port or an http:// URL is required")
    scheme, authority, rest = match.groups()
    if scheme.lower() == "https":
        raise BadRequest(400, "https:// needs CONNECT: the proxy opens no TLS for clients")
    if scheme.lower() != "http":
        raise BadRequest(400, "only http:// URLs and CONNECT are supported")
    if "#" in rest:
        raise BadRequest(400, "a fragment in the request's target")
    host, port = _split(authority)
    return RequestTarget(host, HTTP_PORT if port is None else port, authority, _path(method, rest))


def check_host_field(value: str) -> None:
    """Refuse an invalid Host (RFC 9112 section 3.2), although the target is used."""
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
            raise BadRequest(400, "the text in brackets is not an IPv6 address")
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
    """A zone is refused: it names an interface of the client's machine."""
    try:
        socket.inet_pton(socket.AF_INET6, literal)
    except OSError:
        return False
    return True
