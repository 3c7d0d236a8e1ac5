"""TLS without encryption: records, a handshake of one message each way, close_notify. Sizes depend on the bytes alone.

`PlainContext` takes the place of an `ssl.SSLContext` in the real `TlsChannel`.
"""

import ssl
from typing import Final

_HELLO: Final = 1
_BYTES: Final = 2
_CLOSE: Final = 3
_HEADER_BYTES: Final = 4
RECORD_BYTES: Final = 16 * 1024


def record(kind: int, octets: bytes = b"") -> bytes:
    return bytes((kind,)) + len(octets).to_bytes(3, "big") + octets


class Records:
    """Both halves of a connection's records, as bytes."""

    def __init__(self) -> None:
        self.greeted = False
        self.closed = False
        self._plain = bytearray()
        self._raw = bytearray()

    @staticmethod
    def greeting() -> bytes:
        return record(_HELLO)

    @staticmethod
    def farewell() -> bytes:
        return record(_CLOSE)

    @staticmethod
    def wrap(octets: bytes) -> bytes:
        return b"".join(record(_BYTES, octets[at : at + RECORD_BYTES]) for at in range(0, len(octets), RECORD_BYTES))

    def feed(self, raw: bytes) -> None:
        self._raw += raw
        position, end = 0, len(self._raw)
        while end - position >= _HEADER_BYTES:
            following = position + _HEADER_BYTES + int.from_bytes(self._raw[position + 1 : position + 4], "big")
            if following > end:
                break
            self._open(self._raw[position], self._raw[position + _HEADER_BYTES : following])
            position = following
        del self._raw[:position]

    def _open(self, kind: int, octets: bytearray) -> None:
        if kind == _HELLO:
            self.greeted = True
        elif kind == _CLOSE:
            self.closed = True
        elif kind == _BYTES and self.greeted:
            self._plain += octets
        else:
            raise ssl.SSLError(1, "wrong version number")

    def take(self, most: int) -> bytes:
        octets = bytes(self._plain[:most])
        del self._plain[:most]
        return octets


class PlainTls:
    """In place of an `ssl.SSLObject`."""

    def __init__(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, server_side: bool) -> None:
        self._incoming: Final = incoming
        self._outgoing: Final = outgoing
        self._server_side: Final = server_side
        self._records: Final = Records()
        self._has_greeted = False
        self._has_closed = False

    def do_handshake(self) -> None:
        if not self._has_greeted and not self._server_side:
            self._greet()
        self._fill()
        if not self._records.greeted:
            raise ssl.SSLWantReadError
        if not self._has_greeted:
            self._greet()

    def _greet(self) -> None:
        self._has_greeted = True
        self._outgoing.write(Records.greeting())

    def _fill(self) -> None:
        if self._incoming.pending:
            self._records.feed(self._incoming.read())

    def read(self, most: int, buffer: memoryview | None = None) -> int | bytes:
        octets = self._records.take(most)
        if not octets:
            self._fill()
            octets = self._records.take(most)
        if not octets:
            if self._records.closed:
                raise ssl.SSLZeroReturnError
            raise ssl.SSLEOFError if self._incoming.eof else ssl.SSLWantReadError
        if buffer is None:
            return octets
        buffer[: len(octets)] = octets
        return len(octets)

    def write(self, view: memoryview) -> int:
        if not self._records.greeted:
            raise ssl.SSLWantReadError
        self._outgoing.write(Records.wrap(bytes(view)))
        return len(view)

    def unwrap(self) -> None:
        if not self._has_closed:
            self._has_closed = True
            self._outgoing.write(Records.farewell())

    def selected_alpn_protocol(self) -> str:
        return "h2"

    def getpeercert(self, binary: bool = False) -> None:
        return None


class PlainContext:
    """In place of an `ssl.SSLContext`, and of what reloads one."""

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, server_side: bool, server_hostname: str | None
    ) -> PlainTls:
        return PlainTls(incoming, outgoing, server_side)

    def context(self) -> "PlainContext":
        return self

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass
