"""Which header lists are well-formed: RFC 9113 sections 8.2 and 8.3.

The functions with `fault` in their names return the fault, "" if there is none.
"""

from typing import Final

from umbilical.wire.http2.headers import STATIC_TABLE, HeaderList

_AUTHORITY: Final = 8
_REQUEST_FIELDS: Final = {b":method": 1, b":scheme": 2, b":path": 4, b":authority": _AUTHORITY}
_REQUIRED: Final = 7
_CONNECTION_FIELDS: Final = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)
"""They belong to one HTTP/1.1 connection: section 8.2.2."""
_USUAL_NAMES: Final = frozenset(name for name, _ in STATIC_TABLE) - _CONNECTION_FIELDS
"""Names that need no check of their bytes."""
_NAME_BYTES: Final = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
_LINE_BREAKS: Final = b"\0\r\n"
_MAX_LENGTH_DIGITS: Final = 18


def request_fault(headers: HeaderList) -> str:
    """Of the headers that open a stream. All of `:method`, `:scheme` and `:path` must be there, once."""
    seen = 0
    regular = False
    for name, value in headers:
        bit = _REQUEST_FIELDS.get(name, 0)
        if bit:
            if regular or seen & bit or not (value or bit == _AUTHORITY):
                return "pseudo header misplaced, repeated or empty"
            if _has_line_break(value):
                return "header value with a line break"
            seen |= bit
        elif name[:1] == b":":
            return "unknown pseudo header"
        else:
            regular = True
            fault = _field_fault(name, value)
            if fault:
                return fault
    return "" if seen & _REQUIRED == _REQUIRED else "pseudo header missing"


def response_fault(headers: HeaderList) -> str:
    """Of the headers that answer a stream: `:status` first, then no other pseudo header."""
    if not headers or headers[0][0] != b":status" or len(headers[0][1]) != 3 or not headers[0][1].isdigit():
        return "no valid status"
    return trailers_fault(headers[1:])


def trailers_fault(headers: HeaderList) -> str:
    """Pseudo headers are not allowed here."""
    for name, value in headers:
        fault = "pseudo header misplaced" if name[:1] == b":" else _field_fault(name, value)
        if fault:
            return fault
    return ""


def is_informational(headers: HeaderList) -> bool:
    """An answer 1xx, which another one follows: section 8.1."""
    return headers[0][1][:1] == b"1"


def content_length(headers: HeaderList) -> int:
    """The announced size of all DATA frames together; -1 if there is none, -2 if it is not valid."""
    length = -1
    for name, value in headers:
        if name == b"content-length":
            is_valid = value.isdigit() and len(value) <= _MAX_LENGTH_DIGITS
            length = int(value) if is_valid and length == -1 else -2
    return length


def _field_fault(name: bytes, value: bytes) -> str:
    if name not in _USUAL_NAMES and (not name or name.translate(None, _NAME_BYTES)):
        return "header name with capitals or invalid characters"
    if name in _CONNECTION_FIELDS or (name == b"te" and value != b"trailers"):
        return "header of an HTTP/1.1 connection"
    return "header value with a line break" if _has_line_break(value) else ""


def _has_line_break(value: bytes) -> bool:
    return len(value.translate(None, _LINE_BREAKS)) != len(value)
