"""Parser for request bodies: RFC 9112 sections 6 and 7, without lenient forms.

A message with an ambiguous end is refused. Data is passed on as it arrives; no body is buffered here.
"""

import re
from typing import Final, Protocol

from umbilical.proxies.http_head import BadRequest, Field, HeadLimits, RequestHead, parse_field

_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_MAX_LINE_BYTES: Final = 4096
"""A chunk's size and extensions, which are dropped: they are hop-by-hop."""
_LENGTH_DIGITS: Final = 18
"""Up to an exabyte; no overflow for a 64-bit reader."""


class Body(Protocol):
    """Extracts one body from what a client sends."""

    length: int | None
    """None: chunked."""
    is_over: bool
    rest: bytes
    """The bytes after the body, once it is complete."""
    trailers: tuple[Field, ...]

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return those of the body. Raises BadRequest."""
        ...


def body_of(head: RequestHead, limits: HeadLimits) -> Body:
    """Raises BadRequest for an ambiguous head."""
    codings, lengths = head.options(b"transfer-encoding"), head.values(b"content-length")
    if head.values(b"transfer-encoding"):
        _check_codings(head, codings, bool(lengths))
        return ChunkedBody(limits)
    if len(lengths) > 1:
        raise BadRequest(400, "more than one Content-Length")
    if not lengths:
        return SizedBody(0)
    if not lengths[0].isdigit() or len(lengths[0]) > _LENGTH_DIGITS:
        raise BadRequest(400, "Content-Length is not a number")
    return SizedBody(int(lengths[0]))


def _check_codings(head: RequestHead, codings: list[bytes], has_length: bool) -> None:
    if has_length:
        raise BadRequest(400, "both Transfer-Encoding and Content-Length")
    if head.is_http10:
        raise BadRequest(400, "Transfer-Encoding in an HTTP/1.0 request")
    if not codings or codings[-1] != b"chunked" or b"chunked" in codings[:-1]:
        raise BadRequest(400, "Transfer-Encoding does not end in a single chunked")
    if len(codings) > 1:
        raise BadRequest(501, "the only supported transfer coding is chunked")


class SizedBody:
    trailers: tuple[Field, ...] = ()

    def __init__(self, length: int) -> None:
        self.length: int | None = length
        self.is_over = not length
        self.rest = b""
        self._left = length

    def feed(self, data: bytes) -> list[bytes]:
        taken = data[: self._left]
        self._left -= len(taken)
        if not self._left:
            self.is_over = True
            self.rest = data[len(taken) :]
        return [taken] if taken else []


class ChunkedBody:
    """size line -> data -> CRLF -> size line …; after size 0 trailers until an empty line."""

    def __init__(self, limits: HeadLimits) -> None:
        self.length: int | None = None
        self.is_over = False
        self.rest = b""
        self.trailers: tuple[Field, ...] = ()
        self._limits: Final = limits
        self._line = bytearray()
        """The incomplete line."""
        self._left = 0
        """Bytes left of the current chunk."""
        self._expects_crlf = False
        self._in_trailers = False
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        pieces: list[bytes] = []
        while data and not self.is_over:
            if self._left:
                pieces.append(data[: self._left])
                self._left -= len(pieces[-1])
                data = data[len(pieces[-1]) :]
                self._expects_crlf = not self._left
            else:
                data = self._take_line(data)
        if self.is_over:
            self.rest = data
        return pieces

    def _take_line(self, data: bytes) -> bytes:
        """Consume at most one line; a CR is accepted only with its LF."""
        end = data.find(b"\n")
        part = data if end < 0 else data[: end + 1]
        self._line += part
        self._check_line(end >= 0)
        if end >= 0:
            line = bytes(self._line[:-2])
            self._line.clear()
            self._read_line(line)
        return data[len(part) :]

    def _check_line(self, is_whole: bool) -> None:
        line = self._line
        if self._expects_crlf and not b"\r\n".startswith(line):
            raise BadRequest(400, "a chunk is longer than its size")
        limit = self._limits.head_bytes if self._in_trailers else _MAX_LINE_BYTES
        if len(line) + self._trailer_bytes > limit:
            raise BadRequest(431 if self._in_trailers else 400, "a line of the chunked body is too long")
        if is_whole and not line.endswith(b"\r\n"):
            raise BadRequest(400, "an LF without CR in the chunked body")
        if b"\r" in line[:-2] or (not is_whole and b"\r" in line[:-1]):
            raise BadRequest(400, "a CR without LF in the chunked body")

    def _read_line(self, line: bytes) -> None:
        if self._expects_crlf:
            self._expects_crlf = False
        elif self._in_trailers:
            self._read_trailer(line)
        else:
            self._read_size(line)

    def _read_size(self, line: bytes) -> None:
        match = _CHUNK_LINE.fullmatch(line)
        if match is None:
            raise BadRequest(400, "the size of a chunk is malformed")
        self._left = int(match[1], 16)
        self._in_trailers = not self._left

    def _read_trailer(self, line: bytes) -> None:
        if not line:
            self.is_over = True
            return
        self._trailer_bytes += len(line) + 2
        self.trailers += (parse_field(line),)
        if len(self.trailers) > self._limits.fields:
            raise BadRequest(431, f"more than {self._limits.fields} trailer fields")
