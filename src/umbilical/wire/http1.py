"""HTTP/1.1 for CONNECT, both directions: the heads of requests and of a proxy's replies.

As lenient and as strict as Go's HTTP server, because clients that work with it must work here. A head that cannot be
served raises ProtocolViolation with the HTTP status in `code`; `violation_reply` encodes the answer.
"""

from collections.abc import Sequence
from typing import Final

from umbilical.wire.errors import ProtocolViolation

MAX_HEAD_BYTES: Final = (1 << 20) + 4096
"""Go's limit for a request head: 1 MiB and the size of its read buffer. A security limit."""

CONNECTION_ESTABLISHED: Final = b"HTTP/1.1 200 Connection Established\r\n\r\n"

MISSING_HOST: Final = "missing required Host header"
MALFORMED_HOST: Final = "malformed Host header"
INVALID_HEADER_NAME: Final = "invalid header name"
UNSUPPORTED_VERSION: Final = "unsupported protocol version"
_REASONS_SENT: Final = (MISSING_HOST, MALFORMED_HOST, INVALID_HEADER_NAME, UNSUPPORTED_VERSION)
"""Go's server adds these reasons to the status line; other violations get the bare status."""

_ALPHANUMERIC: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TOKEN: Final = _ALPHANUMERIC + b"!#$%&'*+-.^_`|~"  # RFC 9110 section 5.6.2
_HOST_HEADER: Final = _ALPHANUMERIC + b"!$%&'()*+,-.:;=[]_~"
_AUTHORITY: Final = _ALPHANUMERIC + b"-_.~!$&'()*+,;=:[]<>\"" + bytes(range(0x80, 0x100))
_CONTROLS: Final = bytes(range(0x20)) + b"\x7f"
_FORBIDDEN_IN_VALUES: Final = _CONTROLS.replace(b"\t", b"")
_DIGITS: Final = b"0123456789"
_MAX_LENGTH_DIGITS: Final = 18
"""Of a Content-Length: less than 2^63, Go's limit."""

_STATUS_WORDS: Final = {
    400: "Bad Request",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    505: "HTTP Version Not Supported",
}
_NOT_ALLOWED_BODY: Final = b"this proxy only supports CONNECT passthrough\n"


class Http1Request:
    """One request head."""

    def __init__(self, method: str, target: str, version: str) -> None:
        self.method = method
        self.target = target
        self.version = version
        self.headers_host: str | None = None
        self.keep_alive = version != "HTTP/1.0" and method != "PRI"
        """Another request may follow on this connection if this one is refused."""
        self.has_body = False
        self.is_chunked = False
        self.content_length = -1
        """-1 without such a header."""
        self.authorization = ""
        """The last such header."""
        self.wants_trace = False
        """The client wants the route of its dial in the reply: `Umbilical-Trace: 1`. Upstream has no such header."""
        self.address = ""
        """The address to dial for CONNECT: the authority of the target, or the Host header if the target has none."""
        self.end_offset = 0
        """End of the head in the parsed buffer; the bytes after it are payload of the tunnel."""


class ConnectReply:
    """The head of a proxy's reply to CONNECT."""

    def __init__(self, status: int, reason: str, end_offset: int) -> None:
        self.status = status
        self.reason = reason
        self.end_offset = end_offset


REMEMBERED_BYTES: Final = 256
MOST_REMEMBERED: Final = 1_024
_remembered: Final[dict[bytes, Http1Request]] = {}
"""Heads of CONNECT requests with no header but Host, and what they mean: an API server sends the same few again and
again, and to parse one takes a tenth of a dial's time."""


class Http1RequestReader:
    """Reads one request head that may arrive in pieces; searches each byte only once."""

    def __init__(self, limit: int = MAX_HEAD_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._scanned = 0
        self._line_checked = False
        self.rest = b""
        """The bytes after the head, once `feed` has returned a request."""

    def feed(self, data: bytes) -> Http1Request | None:
        """Take more bytes; return the request when its head is complete. Raises ProtocolViolation."""
        if not self._buffer:
            known = _remembered.get(data)
            if known is not None and len(data) <= self._limit:
                self.rest = b""
                return known
            end = _head_end(data, 0)
            if end >= 0:  # usual case: the head is one TCP segment and is not copied
                return self._finish(data, end)
        self._buffer += data
        end = _head_end(self._buffer, self._scanned)
        if end >= 0:
            return self._finish(bytes(self._buffer), end)
        _refuse_excess(len(self._buffer), self._limit)
        self._check_line()
        self._scanned = max(len(self._buffer) - 2, 0)  # the blank line may begin within the last two bytes
        return None

    def _check_line(self) -> None:
        """Check the first line early, so that a client of another protocol is refused without waiting for a timeout."""
        if not self._line_checked and self._buffer.find(b"\n", self._scanned) >= 0:
            self._line_checked = True
            _parse_request_line(_first_line(self._buffer))

    def _finish(self, data: bytes, end: int) -> Http1Request:
        self._buffer.clear()
        self._scanned = 0
        self._line_checked = False
        self.rest = data[end:]
        request = _parse_request(data, end, self._limit)
        if not self.rest and request.method == "CONNECT":
            _remember(data, request)
        return request


def _remember(head: bytes, request: Http1Request) -> None:
    is_plain = request.headers_host is not None and head.count(b"\n") == 3  # its only header is Host
    if is_plain and len(head) <= REMEMBERED_BYTES:
        if len(_remembered) >= MOST_REMEMBERED:
            _remembered.clear()
        _remembered[head] = request


def _head_end(data: bytes | bytearray, start: int) -> int:
    """The offset behind the blank line, or -1. As in Go, lines end with LF or CR LF."""
    end = data.find(b"\n\r\n", start)
    bare = data.find(b"\n\n", start, end + 1 if end >= 0 else len(data))  # its second LF may begin the other
    if bare >= 0:
        return bare + 2
    return end + 3 if end >= 0 else -1


def _refuse_excess(size: int, limit: int) -> None:
    if size > limit:
        raise ProtocolViolation(431, f"request head of {size} bytes, limit is {limit}")


def _first_line(data: bytes | bytearray) -> bytes:
    return bytes(data[: data.index(b"\n")]).removesuffix(b"\r")


def _parse_request(data: bytes, end: int, limit: int) -> Http1Request:
    _refuse_excess(end, limit)
    lines = data[:end].replace(b"\r\n", b"\n").split(b"\n")
    request = _parse_request_line(lines[0])
    _parse_headers(request, lines)
    if request.method == "CONNECT":
        request.address = _authority(request.target) or request.headers_host or ""
    elif request.headers_host is None and request.version not in ("HTTP/1.0", "HTTP/2.0"):
        raise ProtocolViolation(400, MISSING_HOST)
    request.end_offset = end
    return request


def _parse_request_line(line: bytes) -> Http1Request:
    parts = line.split(b" ", 2)
    if len(parts) != 3 or not parts[0] or parts[0].translate(None, _TOKEN):
        raise ProtocolViolation(400, f"malformed request line {line[:80]!r}")
    version = parts[2]
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        _check_version(parts[0], parts[1], version)
    return Http1Request(parts[0].decode("ascii"), parts[1].decode("utf-8", "replace"), version.decode("ascii"))


def _check_version(method: bytes, target: bytes, version: bytes) -> None:
    well_formed = len(version) == 8 and version[:5] == b"HTTP/" and version[6:7] == b"."
    if not well_formed or (version[5:6] + version[7:8]).translate(None, _DIGITS):
        raise ProtocolViolation(400, f"malformed HTTP version {version[:80]!r}")
    is_http2_preface = method == b"PRI" and target == b"*" and version == b"HTTP/2.0"
    if version[5:6] != b"1" and not is_http2_preface:
        raise ProtocolViolation(505, UNSUPPORTED_VERSION)


def _parse_headers(request: Http1Request, lines: list[bytes]) -> None:
    # The last two entries are the blank line and the empty rest behind its LF.
    for index in range(1, len(lines) - 2):
        line = lines[index]
        if line[0] in b" \t":
            if index == 1:
                raise ProtocolViolation(400, "continuation line without a header")
            _check_value(line)
            continue
        name, colon, value = line.partition(b":")
        if not colon or not name or name.translate(None, _TOKEN):
            raise _bad_header_name(line, name if colon else b"")
        _check_value(value)
        _note_header(request, name.lower(), value.strip(b" \t"))


def _bad_header_name(line: bytes, name: bytes) -> ProtocolViolation:
    # Go's parser accepts spaces in names; its server then refuses them with this reason.
    if b" " in name and not name.translate(None, _TOKEN + b" "):
        return ProtocolViolation(400, INVALID_HEADER_NAME)
    return ProtocolViolation(400, f"malformed header line {line[:80]!r}")


def _check_value(value: bytes) -> None:
    if len(value.translate(None, _FORBIDDEN_IN_VALUES)) != len(value):
        raise ProtocolViolation(400, f"control character in a header value: {value[:80]!r}")


def _note_header(request: Http1Request, name: bytes, value: bytes) -> None:
    if name == b"host":
        _note_host(request, value)
    elif name == b"connection":
        tokens = [token.strip() for token in value.lower().split(b",")]
        if b"close" in tokens:
            request.keep_alive = False
        elif b"keep-alive" in tokens and request.version == "HTTP/1.0":
            request.keep_alive = True
    elif name == b"content-length":
        digits = value.lstrip(b"0")
        if not value or digits.translate(None, _DIGITS) or len(digits) > _MAX_LENGTH_DIGITS:
            raise ProtocolViolation(400, f"malformed content-length {value[:80]!r}")
        length = int(digits or b"0")
        if request.content_length not in (-1, length):
            raise ProtocolViolation(400, "two different content-lengths")
        request.content_length = length
        request.has_body = request.has_body or length > 0
    elif name == b"transfer-encoding":
        if value.lower() != b"chunked":
            raise ProtocolViolation(501, "unsupported transfer encoding")
        request.has_body = request.is_chunked = True
    elif name == b"authorization":
        request.authorization = value.decode("latin-1")
    elif name == b"umbilical-trace":
        request.wants_trace = value == b"1"


def _note_host(request: Http1Request, value: bytes) -> None:
    if request.headers_host is not None:
        raise ProtocolViolation(400, "more than one Host header")
    if value.translate(None, _HOST_HEADER):
        raise ProtocolViolation(400, MALFORMED_HOST)
    request.headers_host = value.decode("ascii")


def _authority(target: str) -> str:
    """The authority of a CONNECT target as Go's URL parser reads it; empty for a path."""
    if target[:1] == "/":
        return ""
    authority = target.partition("?")[0].partition("/")[0]
    host = authority.rpartition("@")[2]
    name, port = _split_port(host)
    if name.encode().translate(None, _AUTHORITY) or (port and not (port.isascii() and port.isdigit())):
        raise ProtocolViolation(400, f"malformed CONNECT target {target[:80]!r}")
    return host.replace("%25", "%")


def _split_port(host: str) -> tuple[str, str]:
    if host[:1] == "[":
        end = host.rfind("]")
        if end < 0 or host[end + 1 : end + 2] not in ("", ":"):
            raise ProtocolViolation(400, f"malformed CONNECT target {host[:80]!r}")
        return host[:end].replace("%", ""), host[end + 2 :]  # a zone may follow a percent sign, RFC 6874
    name, _, port = host.partition(":")
    return name, port


def violation_reply(violation: ProtocolViolation) -> bytes:
    """The answer of Go's server to a head that it cannot serve; close the connection after it."""
    if violation.code == 501:
        status, body = "501 Not Implemented", "Unsupported transfer encoding"
    else:
        status = f"{violation.code} {_STATUS_WORDS.get(violation.code, 'Bad Request')}"
        if violation.message in _REASONS_SENT:
            status += f": {violation.message}"
        body = status
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    return (head + body).encode("ascii")


def forbidden_reply(text: str) -> bytes:
    """The answer to a client without permission for tunnels; close the connection after it."""
    head = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    return (head + text).encode("utf-8", "replace")


def traced(reply: bytes, headers: Sequence[tuple[str, str]]) -> bytes:
    """Add headers to a reply. Values may come from a peer: characters other than printable ASCII become `?`."""
    line, _, rest = reply.partition(b"\r\n")
    added = b"".join([f"{name}: {_plain(value)}\r\n".encode("ascii") for name, value in headers])
    return line + b"\r\n" + added + rest


def _plain(value: str) -> str:
    return "".join([character if " " <= character <= "~" else "?" for character in value])


def method_not_allowed_reply(request: Http1Request, date: bytes) -> bytes:
    """The answer to methods other than CONNECT; `date` is an IMF-fixdate. Close after it unless `stays_open`."""
    protocol = b"HTTP/1.0" if request.version == "HTTP/1.0" else b"HTTP/1.1"
    connection = b""
    if stays_open(request):
        connection = b"Connection: keep-alive\r\n" if request.version == "HTTP/1.0" else b""
    elif request.version != "HTTP/1.0":
        connection = b"Connection: close\r\n"
    head = (
        b"%s 405 Method Not Allowed\r\nContent-Type: text/plain; charset=utf-8\r\n"
        b"X-Content-Type-Options: nosniff\r\nDate: %s\r\nContent-Length: %d\r\n%s\r\n"
    ) % (protocol, date, len(_NOT_ALLOWED_BODY), connection)
    return head if request.method == "HEAD" else head + _NOT_ALLOWED_BODY


def stays_open(request: Http1Request) -> bool:
    """True if the connection stays open after a refused request. With a body it closes, to avoid reading the body."""
    return request.keep_alive and not request.has_body


def format_connect_request(address: str, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """`CONNECT address HTTP/1.1` with a Host header and the given ones (Proxy-Authorization, User-Agent)."""
    lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
    lines.extend([f"{name}: {value}" for name, value in headers])
    for line in lines:
        if "\r" in line or "\n" in line:
            raise ValueError(f"line break in a CONNECT request: {line!r}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")


def parse_connect_reply(buffer: bytes | bytearray, limit: int = MAX_HEAD_BYTES) -> ConnectReply | None:
    """Parse the reply head at the start of `buffer`; None while it is incomplete. Raises ProtocolViolation."""
    data = bytes(buffer)
    end = _head_end(data, 0)
    if max(end, 0 if end >= 0 else len(data)) > limit:
        raise ProtocolViolation(502, f"reply head is longer than {limit} bytes")
    if b"\n" not in data:
        return None
    version, _, rest = _first_line(data).partition(b" ")
    code, _, reason = rest.partition(b" ")
    if version[:7] != b"HTTP/1." or len(code) != 3 or code.translate(None, _DIGITS):
        raise ProtocolViolation(502, f"malformed status line {data[:80]!r}")
    if end < 0:
        return None
    return ConnectReply(int(code), reason.decode("utf-8", "replace"), end)
