"""A small HTTP/2 peer for actors, apart from the code under test: frames, windows, HPACK by the `hpack` package.

It opens streams with fields in the dynamic table, which the code under test never does itself.
"""

from typing import Final, Protocol

from hpack import Decoder, Encoder
from tests.simulation.wire import Wire

Fields = list[tuple[bytes, bytes]]

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA: Final = 0
HEADERS: Final = 1
RST_STREAM: Final = 3
SETTINGS: Final = 4
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
END_STREAM: Final = 1
ACK: Final = 1
END_HEADERS: Final = 4
_INITIAL_WINDOW_SIZE: Final = 4
_MAX_FRAME_SIZE: Final = 5
FIRST_WINDOW: Final = 65_535
OWN_WINDOW: Final = 1 << 20
CREDIT_BYTES: Final = 32 * 1024
TABLE_BYTES: Final = 4096


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream_id.to_bytes(4, "big") + payload


class PeerOwner(Protocol):
    def on_fields(self, stream_id: int, fields: Fields, ended: bool) -> None:
        """Headers or trailers."""

    def on_message(self, stream_id: int, message: bytes) -> None:
        """One whole gRPC message."""

    def on_stream_over(self, stream_id: int, reason: str) -> None:
        """Reset, or ended without trailers."""

    def on_connection_over(self, reason: str) -> None:
        """Everything on it has ended."""


class _PeerStream:
    def __init__(self, window: int) -> None:
        self.window = window
        self.unsent = bytearray()
        self.ends = False
        """Our side ends behind what is unsent, or has ended."""
        self.has_ended = False
        self.arrived: Final = bytearray()
        self.uncredited = 0


class Http2Peer:
    """The client side of a connection; the wire calls it."""

    def __init__(self, owner: PeerOwner) -> None:
        self._owner: Final = owner
        self.wire: Wire
        self.streams: Final[dict[int, _PeerStream]] = {}
        self.window = FIRST_WINDOW
        self.is_over = False
        self._next_id = 1
        self._first_window = FIRST_WINDOW
        self._frame_bytes = 16_384
        self._uncredited = 0
        self._raw = bytearray()
        self._encoder: Final = Encoder()
        self._decoder: Final = Decoder()

    def greet(self, wire: Wire) -> None:
        self.wire = wire
        window = _INITIAL_WINDOW_SIZE.to_bytes(2, "big") + OWN_WINDOW.to_bytes(4, "big")
        grown = frame(WINDOW_UPDATE, 0, 0, (OWN_WINDOW - FIRST_WINDOW).to_bytes(4, "big"))
        wire.write(PREFACE + frame(SETTINGS, 0, 0, window) + grown)

    def open(self, fields: Fields, indexed: frozenset[bytes]) -> int:
        """Start a call; the fields with these names go into the dynamic table, and are referred to when they recur."""
        stream_id = self._next_id
        self._next_id += 2
        self.streams[stream_id] = _PeerStream(self._first_window)
        block = self._encoder.encode([(name, value, name not in indexed) for name, value in fields])
        self.wire.write(frame(HEADERS, END_HEADERS, stream_id, block))
        return stream_id

    def empty_table(self) -> None:
        """The next block empties the table and gives it its size back."""
        self._encoder.header_table_size = 0
        self._encoder.header_table_size = TABLE_BYTES

    def send_message(self, stream_id: int, message: bytes) -> None:
        stream = self.streams.get(stream_id)
        if stream is not None and not stream.ends:
            stream.unsent += b"\0" + len(message).to_bytes(4, "big") + message
            self._flush(stream_id, stream)

    def unsent(self, stream_id: int) -> int:
        stream = self.streams.get(stream_id)
        return len(stream.unsent) if stream is not None else 0

    def end(self, stream_id: int) -> None:
        stream = self.streams.get(stream_id)
        if stream is not None and not stream.ends:
            stream.ends = True
            self._flush(stream_id, stream)

    def reset(self, stream_id: int) -> None:
        if self.streams.pop(stream_id, None) is not None:
            self.wire.write(frame(RST_STREAM, 0, stream_id, (8).to_bytes(4, "big")))

    def _flush(self, stream_id: int, stream: _PeerStream) -> None:
        while stream.unsent and stream.window > 0 and self.window > 0:
            size = min(len(stream.unsent), stream.window, self.window, self._frame_bytes)
            self.wire.write(frame(DATA, 0, stream_id, bytes(stream.unsent[:size])))
            del stream.unsent[:size]
            stream.window -= size
            self.window -= size
        if stream.ends and not stream.unsent and not stream.has_ended:
            stream.has_ended = True
            self.wire.write(frame(DATA, END_STREAM, stream_id))

    def received(self, octets: bytes) -> None:
        self._raw += octets
        while len(self._raw) >= 9:
            end = 9 + int.from_bytes(self._raw[:3], "big")
            if len(self._raw) < end:
                return
            kind, flags, stream_id = self._raw[3], self._raw[4], int.from_bytes(self._raw[5:9], "big")
            payload = bytes(self._raw[9:end])
            del self._raw[:end]
            self._on_frame(kind, flags, stream_id, payload)

    def _on_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == DATA:
            self._on_data(flags, stream_id, payload)
        elif kind == HEADERS:
            fields = [(bytes(name), bytes(value)) for name, value in self._decoder.decode(payload, raw=True)]
            ended = bool(flags & END_STREAM)
            if ended:
                self.streams.pop(stream_id, None)
            self._owner.on_fields(stream_id, fields, ended)
        elif kind == SETTINGS and not flags & ACK:
            self._on_settings(payload)
        elif kind == PING and not flags & ACK:
            self.wire.write(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            self._on_window(stream_id, int.from_bytes(payload, "big"))
        elif kind == RST_STREAM:
            if self.streams.pop(stream_id, None) is not None:
                self._owner.on_stream_over(stream_id, f"reset {int.from_bytes(payload, 'big')}")
        elif kind == GOAWAY and int.from_bytes(payload[4:8], "big"):
            self._over(f"GOAWAY {int.from_bytes(payload[4:8], 'big')} {payload[8:].decode('utf-8', 'replace')}")

    def _on_settings(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            name, value = int.from_bytes(payload[at : at + 2], "big"), int.from_bytes(payload[at + 2 : at + 6], "big")
            if name == _INITIAL_WINDOW_SIZE:
                for stream in self.streams.values():
                    stream.window += value - self._first_window
                self._first_window = value
            elif name == _MAX_FRAME_SIZE:
                self._frame_bytes = min(value, 16_384)
        self.wire.write(frame(SETTINGS, ACK, 0))
        self._on_window(0, 0)

    def _on_window(self, stream_id: int, grown: int) -> None:
        if stream_id == 0:
            self.window += grown
            for number, stream in list(self.streams.items()):
                self._flush(number, stream)
        elif stream_id in self.streams:
            self.streams[stream_id].window += grown
            self._flush(stream_id, self.streams[stream_id])

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._uncredited += len(payload)
        if self._uncredited >= CREDIT_BYTES:
            self.wire.write(frame(WINDOW_UPDATE, 0, 0, self._uncredited.to_bytes(4, "big")))
            self._uncredited = 0
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        stream.uncredited += len(payload)
        if stream.uncredited >= CREDIT_BYTES:
            self.wire.write(frame(WINDOW_UPDATE, 0, stream_id, stream.uncredited.to_bytes(4, "big")))
            stream.uncredited = 0
        self._on_payload(stream_id, stream, payload)
        if flags & END_STREAM and self.streams.pop(stream_id, None) is not None:
            self._owner.on_stream_over(stream_id, "ended")

    def _on_payload(self, stream_id: int, stream: _PeerStream, payload: bytes) -> None:
        arrived = stream.arrived
        arrived += payload
        while len(arrived) >= 5:
            end = 5 + int.from_bytes(arrived[1:5], "big")
            if len(arrived) < end:
                return
            message = bytes(arrived[5:end])
            del arrived[:end]
            self._owner.on_message(stream_id, message)

    def ended(self) -> None:
        self._over("connection closed")
        self.wire.close()

    def failed(self, reason: str) -> None:
        self._over(reason)

    def _over(self, reason: str) -> None:
        if not self.is_over:
            self.is_over = True
            self.streams.clear()
            self._owner.on_connection_over(reason)
