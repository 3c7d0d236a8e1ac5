"""gRPC over HTTP/2: length-prefixed messages, status and trailers, the headers of a call."""

import struct
from typing import Final

from umbilical.wire.errors import ProtocolViolation

PREFIX_BYTES: Final = 5
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""grpc-go's receive limit on both ends."""

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14

CODE_NAMES: Final = (
    "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
    "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented",
    "Internal", "Unavailable", "DataLoss", "Unauthenticated",
)  # fmt: skip

MAX_STATUS_CHARACTERS: Final = 1_024
"""Longer status messages are cut: they may quote what a peer sent."""
MAX_METHOD_BYTES: Final = 128
"""Of an unknown method that a status message quotes."""
MAX_STATUS_DIGITS: Final = 9
"""Longer values of grpc-status are not parsed; real ones have at most two digits."""

_PREFIX: Final = struct.Struct(">BI")
_PRINTABLE: Final = bytes([byte for byte in range(0x20, 0x7F) if byte != 0x25])
_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"


class MessageReader:
    """Reads messages from DATA payloads. A message that is complete in the receive buffer is not copied.

    Feed a payload, then call `next_message` until it returns False. The message is `source[start:end]` until the next
    call.
    """

    def __init__(self) -> None:
        self.source: bytes | bytearray = b""
        self.view = memoryview(b"")
        self.start = 0
        self.end = 0
        self._input: bytearray = bytearray()
        self._input_view = memoryview(b"")
        self._position = 0
        self._limit = 0
        self._partial: bytearray | None = None
        self._missing = 0

    def feed(self, source: bytearray, view: memoryview, start: int, end: int) -> None:
        self._input = source
        self._input_view = view
        self._position = start
        self._limit = end

    def is_whole(self, source: bytearray, start: int, end: int) -> bool:
        """True if the payload is exactly one message, at `start + PREFIX_BYTES`, and no message is incomplete.

        Nearly all payloads are; for these the data path need not call `feed` and `next_message`.
        """
        if self._partial is not None or end - start < PREFIX_BYTES:
            return False
        flag, length = _PREFIX.unpack_from(source, start)
        return not flag and start + PREFIX_BYTES + int(length) == end and length <= MAX_MESSAGE_BYTES

    def next_message(self) -> bool:
        if self._partial is not None:
            return self._resume()
        position = self._position
        available = self._limit - position
        if available >= PREFIX_BYTES:
            source = self._input
            length = source[position + 1] << 24 | source[position + 2] << 16 | source[position + 3] << 8
            length |= source[position + 4]
            if source[position] != 0 or length > MAX_MESSAGE_BYTES:
                self._refuse(source[position], length)
            end = position + PREFIX_BYTES + length
            if end <= self._limit:
                self.source = source
                self.view = self._input_view
                self.start = position + PREFIX_BYTES
                self.end = end
                self._position = end
                return True
            self._missing = end - self._limit
        elif available == 0:
            return False
        else:
            self._missing = 0  # the prefix itself is incomplete, so the length is not known yet
        self._partial = bytearray(self._input_view[position : self._limit])
        self._position = self._limit
        return False

    def _resume(self) -> bool:
        partial = self._partial
        assert partial is not None
        if len(partial) <= PREFIX_BYTES:  # checks a prefix again if it was refused before
            self._take(partial, PREFIX_BYTES - len(partial))
            if len(partial) < PREFIX_BYTES:
                return False
            length = int.from_bytes(partial[1:PREFIX_BYTES], "big")
            if partial[0] != 0 or length > MAX_MESSAGE_BYTES:
                self._refuse(partial[0], length)
            self._missing = length
        self._missing -= self._take(partial, self._missing)
        if self._missing:
            return False
        self._partial = None
        self.source = partial
        self.view = memoryview(partial)
        self.start = PREFIX_BYTES
        self.end = len(partial)
        return True

    def _take(self, partial: bytearray, wanted: int) -> int:
        taken = min(wanted, self._limit - self._position)
        partial += self._input_view[self._position : self._position + taken]
        self._position += taken
        return taken

    def _refuse(self, flag: int, length: int) -> None:
        if flag:
            raise ProtocolViolation(INTERNAL, f"message flag {flag}: compression was not negotiated")
        raise ProtocolViolation(
            RESOURCE_EXHAUSTED, f"received message larger than max ({length} vs. {MAX_MESSAGE_BYTES})"
        )


def message_prefix(length: int) -> bytes:
    return b"\x00" + length.to_bytes(4, "big")


def encode_status_message(text: str) -> bytes:
    """Percent-encode a text for `grpc-message`, as the gRPC specification requires."""
    octets = text[:MAX_STATUS_CHARACTERS].encode("utf-8", "replace")
    if not octets.translate(None, _PRINTABLE):
        return octets
    return b"".join([bytes((byte,)) if byte in _PRINTABLE else b"%%%02X" % byte for byte in octets])


def decode_status_message(value: bytes) -> str:
    """Undo the percent-encoding. Invalid escapes stay as they are: decoding a status must not fail."""
    out = bytearray()
    position = 0
    while position < len(value):
        if _is_escape(value, position):
            out.append(int(value[position + 1 : position + 3], 16))
            position += 3
        else:
            out.append(value[position])
            position += 1
    return out.decode("utf-8", "replace")


def _is_escape(value: bytes, position: int) -> bool:
    return (
        value[position] == 0x25
        and position + 2 < len(value)
        and value[position + 1] in _HEX_DIGITS
        and value[position + 2] in _HEX_DIGITS
    )


def request_headers(path: bytes, authority: bytes, scheme: bytes, user_agent: bytes) -> list[tuple[bytes, bytes]]:
    return [
        (b":method", b"POST"),
        (b":scheme", scheme),
        (b":path", path),
        (b":authority", authority),
        (b"content-type", b"application/grpc"),
        (b"user-agent", user_agent),
        (b"te", b"trailers"),
    ]


RESPONSE_HEADERS: Final = [(b":status", b"200"), (b"content-type", b"application/grpc")]


def trailers(status: int, message: str) -> list[tuple[bytes, bytes]]:
    fields = [(b"grpc-status", str(status).encode())]
    if message:
        fields.append((b"grpc-message", encode_status_message(message)))
    return fields


def unknown_method(path: bytes) -> str:
    return f"unknown method {path[:MAX_METHOD_BYTES].decode('utf-8', 'replace')}"


def status_of(headers: list[tuple[bytes, bytes]]) -> tuple[int, str]:
    """The status and message in trailers; UNKNOWN if they have no status."""
    status, message = UNKNOWN, "the stream ended without a gRPC status"
    for name, value in headers:
        if name == b"grpc-status":
            status = int(value) if value.isdigit() and len(value) <= MAX_STATUS_DIGITS else UNKNOWN
            message = "" if message.startswith("the stream ended") else message
        elif name == b"grpc-message":
            message = decode_status_message(value)
    return status, message
