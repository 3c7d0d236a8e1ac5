"""A tunnel with a stream of its own (docs/protocol.md): how it is opened, and its payload as plain DATA frames."""

from typing import Final

from umbilical.wire.http2.frames import FRAME_HEADER_BYTES
from umbilical.wire.packet_data import PayloadPrefix

TUNNEL_PATH: Final = b"/umbilical.Tunnel/Carry"

OPENING_HEADERS: Final = [
    (b":method", b"POST"),
    (b":scheme", b"https"),
    (b":path", TUNNEL_PATH),
    (b":authority", b"umbilical"),
]
"""The same for every tunnel, so that both ends encode and decode it once: the stream's number says which it is."""
ANSWER_HEADERS: Final = [(b":status", b"200")]


class PlainPrefix(PayloadPrefix):
    """The header of a DATA frame that carries bytes of one tunnel and nothing else; the last one is kept."""

    def __init__(self, stream_id: int) -> None:
        super().__init__(FRAME_HEADER_BYTES)
        self._stream_bytes: Final = b"\x00\x00" + stream_id.to_bytes(4, "big")  # DATA, no flags
        self._last_length = -1
        self._last = b""

    def for_length(self, length: int) -> bytes:
        if length != self._last_length:
            self._last_length = length
            self._last = length.to_bytes(3, "big") + self._stream_bytes
        return self._last
