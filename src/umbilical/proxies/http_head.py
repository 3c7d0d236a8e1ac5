"""Heads of requests that strangers send to a proxy, read as strictly as RFC 9112 allows.

A head that two readers could understand differently is refused and never repaired: what is passed on has one meaning.
Nothing here waits; bytes come in pieces of any size.
"""

import re
from typing import Final

from umbilical.record import Record

Field = tuple[bytes, bytes]
"""A name as it was spelt, and a value without the whitespace around it."""

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # RFC 9110 section 5.6.2
_REQUEST_LINE: Final = re.compile(rb"(%s) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])" % _TOKEN)
_FIELD_LINE: Final = re.compile(rb"(%s):[ \t]*([\t\x20-\x7e\x80-\xff]*)" % _TOKEN)
_SPACE_IN_NAME: Final = re.compile(rb"%s[ \t]+:" % _TOKEN)
_FORBIDDEN: Final = re.compile(rb"\r(?!\n)|(?<!\r)\n|\0")
"""RFC 9112 section 2.2 lets a reader take some of these for others; the next one may not."""
_TOKEN_BYTES: Final = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_END: Final = b"\r\n\r\n"
_LEADING_LINES: Final = 2
"""Empty lines before a request that some old clients send behind a body; RFC 9112 section 2.2."""


class BadRequest(Exception):
    """A request that is not served; the connection is closed behind the answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status: Final = status
        self.why: Final = why


class HeadLimits(Record):
    """Against clients that send heads without end."""

    head_bytes: int = 64 * 1024
    """All of it. The largest tokens and cookies in use are a quarter of that."""
    line_bytes: int = 16 * 1024
    """The request line."""
    fields: int = 128


class RequestHead(Record):
    method: str
    target: str
    is_http10: bool
    fields: tuple[Field, ...]

    def values(self, name: bytes) -> list[bytes]:
        """All values of the fields of this name, which is in lower case."""
        return [value for field, value in self.fields if field.lower() == name]

    def options(self, name: bytes) -> list[bytes]:
        """The members of a comma-separated list, in lower case."""
        members = [part.strip(b" \t").lower() for value in self.values(name) for part in value.split(b",")]
        return [member for member in members if member]


class HeadReader:
    """Collects one head, without searching any byte twice."""

    def __init__(self, limits: HeadLimits) -> None:
        self._limits: Final = limits
        self._buffer = bytearray()
        self._scanned = 0
        self._leading = 0
        self.rest = b""
        """What came behind the head, once `feed` has returned it."""

    @property
    def has_begun(self) -> bool:
        return bool(self._buffer)

    def feed(self, data: bytes) -> RequestHead | None:
        """Take more; return the head once it is whole. Raises BadRequest as soon as it cannot become one."""
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
        """A client that speaks TLS or SOCKS learns at once that it is wrong here."""
        if self._buffer and self._buffer != b"\r" and self._buffer[0] not in _TOKEN_BYTES:
            raise BadRequest(400, "what came is no HTTP: the first byte can begin no method")

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
    """Parse a whole head, without the empty line at its end."""
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
        raise BadRequest(400, "the first line is no request line")
    method, target, major, minor = match.groups()
    if major != b"1":
        raise BadRequest(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
    return method.decode("ascii"), target.decode("ascii"), minor == b"0"


def parse_field(line: bytes) -> Field:
    """One line of a head or of trailers."""
    match = _FIELD_LINE.fullmatch(line)
    if match is not None:
        return match[1], match[2].rstrip(b" \t")
    if line[:1] in (b" ", b"\t"):
        raise BadRequest(400, "a header line is folded")
    if _SPACE_IN_NAME.match(line):
        raise BadRequest(400, "whitespace between a header's name and its colon")
    raise BadRequest(400, "a header line is malformed, or holds a control character")


def _check_host(head: RequestHead) -> None:
    """RFC 9112 section 3.2. A CONNECT says whom it means by its target alone; Go's server lets it go without, too."""
    hosts = head.values(b"host")
    if len(hosts) > 1:
        raise BadRequest(400, "more than one Host header")
    if not hosts and not head.is_http10 and head.method != "CONNECT":
        raise BadRequest(400, "no Host header")
