"""Reads a tar archive forward, one member after the other, from a stream that is not trusted.

Python's own reader loads extended headers and sparse maps of any size into memory; here every header has a limit, links
and devices are skipped, and nothing is written. Supports the formats of GNU tar and pax.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

BLOCK: Final = 512
# A path in an extended header; PATH_MAX is 4096.
MAX_EXTENDED_HEADER: Final = 1 << 16
_COPY: Final = 1 << 16
_FILE: Final = (b"0", b"\0", b"7")
_WITHOUT_CONTENT: Final = (b"1", b"2", b"3", b"4", b"5", b"6")
_LONG_NAME: Final = b"L"
_PAX: Final = b"x"
_SPARSE: Final = b"S"


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class TarFault(Exception):
    """The archive is damaged here; what was read before is valid."""


@dataclass(frozen=True)
class _Header:
    name: str
    size: int
    kind: bytes
    is_extended: bool


class MemberContent:
    """The bytes of one member. Valid until the next member is read."""

    def __init__(self, stream: Readable, size: int) -> None:
        self._stream = stream
        self._left = size
        self._padding = -size % BLOCK

    def read(self, size: int, /) -> bytes:
        octets = self._stream.read(min(size, self._left)) if self._left else b""
        if self._left and size and not octets:
            raise TarFault("it ends in the middle of a file")
        self._left -= len(octets)
        return octets

    def finish(self) -> None:
        """Skip the unread rest and the padding."""
        while self._left:
            self.read(_COPY)
        _exactly(self._stream, self._padding)
        self._padding = 0


@dataclass(frozen=True)
class TarMember:
    name: str
    content: MemberContent


def members(stream: Readable) -> Iterator[TarMember]:
    """Yield the regular files. Raises TarFault: the archive is damaged or truncated here."""
    name, size = None, None
    while (header := _next_header(stream)) is not None:
        if header.kind in (_LONG_NAME, _PAX):
            extended = _extended(stream, header)
            if header.kind == _LONG_NAME:
                name = _text(extended.split(b"\0", 1)[0])
            else:
                name, size = _pax_fields(extended, name)
            continue
        length = header.size if size is None else size
        if header.kind == _SPARSE:
            _pass_sparse_headers(stream, header)
        content = MemberContent(stream, 0 if header.kind in _WITHOUT_CONTENT else length)
        shown = header.name if name is None else name
        if header.kind in _FILE and not shown.endswith("/"):
            yield TarMember(shown, content)
        content.finish()
        name, size = None, None


def _next_header(stream: Readable) -> _Header | None:
    block = _up_to(stream, BLOCK)
    if not block or block == bytes(BLOCK):
        return None
    if len(block) < BLOCK:
        raise TarFault("it ends in the middle of a header")
    if _number(block[148:156]) != sum(block[:148]) + 8 * ord(" ") + sum(block[156:]):
        raise TarFault("a header's checksum is wrong")
    name = block[:100].split(b"\0", 1)[0]
    prefix = block[345:500].split(b"\0", 1)[0] if block[257:263] == b"ustar\0" else b""
    full = b"/".join(part for part in (prefix, name) if part)
    return _Header(_text(full), _number(block[124:136]), block[156:157], block[482:483] not in (b"\0", b""))


def _number(field: bytes) -> int:
    """Octal digits, or GNU's binary form for files past 8 GiB."""
    if field[:1] >= b"\x80":
        return int.from_bytes(bytes((field[0] & 0x7F,)) + field[1:], "big")
    digits = field.split(b"\0", 1)[0].strip()
    try:
        number = int(digits, 8) if digits else 0
    except ValueError:
        number = -1
    if number < 0:
        raise TarFault("a header field is not a number")
    return number


def _extended(stream: Readable, header: _Header) -> bytes:
    if header.size > MAX_EXTENDED_HEADER:
        raise TarFault(f"an extended header of {header.size} bytes")
    content = _exactly(stream, header.size)
    _exactly(stream, -header.size % BLOCK)
    return content


def _pax_fields(content: bytes, name: str | None) -> tuple[str | None, int | None]:
    """Find the long path and the long size in records of the form `LENGTH KEY=VALUE\\n`."""
    size = None
    while content:
        digits, blank, _ = content.partition(b" ")
        if not blank or not digits.isdigit() or len(digits) > 8 or not len(digits) < int(digits) <= len(content):
            raise TarFault("an extended header cannot be read")
        record = content[len(digits) + 1 : int(digits)].rstrip(b"\n")
        content = content[int(digits) :]
        key, _, value = record.partition(b"=")
        if key == b"path":
            name = _text(value)
        elif key == b"size" and value.isdigit() and len(value) < 20:
            size = int(value)
    return name, size


def _pass_sparse_headers(stream: Readable, header: _Header) -> None:
    goes_on = header.is_extended
    while goes_on:
        goes_on = _exactly(stream, BLOCK)[504:505] not in (b"\0", b"")


def _exactly(stream: Readable, size: int) -> bytes:
    octets = _up_to(stream, size)
    if len(octets) < size:
        raise TarFault("it ends too early")
    return octets


def _up_to(stream: Readable, size: int) -> bytes:
    parts: list[bytes] = []
    left = size
    while left and (part := stream.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _text(octets: bytes) -> str:
    return octets.decode("utf-8", "backslashreplace")
