"""Heads of CONNECT requests and of replies to them: however they are cut, the same request, or the same refusal.

Input: how (bit 0: a reply), the largest piece, then the head and what follows it.
"""

from typing import Final

from tests.fuzz.choices import Choices, pieces

from umbilical.wire import http1
from umbilical.wire.errors import ProtocolViolation

REPLY: Final = 1
DATE: Final = b"Thu, 01 Jan 1970 00:00:00 GMT"
Seen = tuple[object, ...]


def target(data: bytes) -> None:
    choices = Choices(data)
    how, largest = choices.number(), choices.number()
    octets = choices.rest()
    read = _read_reply if how & REPLY else _read_request
    assert read(list(pieces(octets, len(octets)))) == read(list(pieces(octets, largest)))


def _read_request(parts: list[bytes]) -> Seen:
    """Read one request; the parts that are not read are payload, as the bytes behind the head are."""
    reader = http1.Http1RequestReader()
    for index, part in enumerate(parts):
        request = _fed(reader, part)
        if isinstance(request, http1.Http1Request):
            return (*_seen(request), reader.rest + b"".join(parts[index + 1 :]))
        if request is not None:
            return request
    return ()


def _fed(reader: http1.Http1RequestReader, part: bytes) -> http1.Http1Request | Seen | None:
    try:
        return reader.feed(part)
    except ProtocolViolation as violation:
        return http1.violation_reply(violation), violation.message


def _seen(request: http1.Http1Request) -> Seen:
    if request.method == "CONNECT":
        assert request.address.isprintable() or not request.address.isascii(), "an address for the next hop's head"
        http1.format_connect_request(request.address)
    else:
        http1.method_not_allowed_reply(request, DATE)
    return (
        request.method, request.target, request.version, request.headers_host, request.keep_alive, request.has_body,
        request.is_chunked, request.content_length, request.wants_trace, request.address, request.end_offset,
    )  # fmt: skip


def _read_reply(parts: list[bytes]) -> Seen:
    buffer = bytearray()
    for part in parts:
        buffer += part
        try:
            reply = http1.parse_connect_reply(buffer)
        except ProtocolViolation as violation:
            return (violation.code,)
        if reply is not None:
            return reply.status, reply.reason, reply.end_offset
    return ()
