"""HTTP/2 frames (RFC 9113 sections 4 and 6): constants, encoders of small frames, and the limits of a connection."""

import struct
from typing import Final

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20

NO_ERROR: Final = 0x0
PROTOCOL_ERROR: Final = 0x1
INTERNAL_ERROR: Final = 0x2
FLOW_CONTROL_ERROR: Final = 0x3
SETTINGS_TIMEOUT: Final = 0x4
STREAM_CLOSED: Final = 0x5
FRAME_SIZE_ERROR: Final = 0x6
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
COMPRESSION_ERROR: Final = 0x9
CONNECT_ERROR: Final = 0xA
ENHANCE_YOUR_CALM: Final = 0xB

HEADER_TABLE_SIZE: Final = 0x1
ENABLE_PUSH: Final = 0x2
MAX_CONCURRENT_STREAMS: Final = 0x3
INITIAL_WINDOW_SIZE: Final = 0x4
MAX_FRAME_SIZE: Final = 0x5
MAX_HEADER_LIST_SIZE: Final = 0x6

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER_BYTES: Final = 9
DEFAULT_WINDOW_BYTES: Final = 65_535
DEFAULT_FRAME_BYTES: Final = 16_384
LARGEST_FRAME_BYTES: Final = 16_777_215
LARGEST_WINDOW_BYTES: Final = 0x7FFFFFFF
LARGEST_STREAM_ID: Final = 0x7FFFFFFF

HEADER: Final = struct.Struct(">HBBBI")
"""Length (upper 16 bits, lower 8 bits), type, flags, stream."""
MESSAGE_HEADER: Final = struct.Struct(">HBBBIBI")
"""The header of a DATA frame and the prefix of the one gRPC message in it."""
_U32: Final = struct.Struct(">I")
_TWO_U32: Final = struct.Struct(">II")
_SETTING: Final = struct.Struct(">HI")


def frame_header(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    return HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def settings_frame(settings: list[tuple[int, int]]) -> bytes:
    payload = b"".join([_SETTING.pack(number, value) for number, value in settings])
    return frame_header(len(payload), SETTINGS, 0, 0) + payload


def parse_settings(payload: bytes) -> list[tuple[int, int]]:
    return [(number, value) for number, value in _SETTING.iter_unpack(payload)]


SETTINGS_ACK: Final = frame_header(0, SETTINGS, ACK, 0)


def ping_frame(payload: bytes, flags: int) -> bytes:
    return frame_header(8, PING, flags, 0) + payload


def reset_frame(stream_id: int, code: int) -> bytes:
    return frame_header(4, RST_STREAM, 0, stream_id) + _U32.pack(code)


def window_update_frame(stream_id: int, increment: int) -> bytes:
    return frame_header(4, WINDOW_UPDATE, 0, stream_id) + _U32.pack(increment)


def goaway_frame(last_stream_id: int, code: int, debug: bytes) -> bytes:
    return frame_header(8 + len(debug), GOAWAY, 0, 0) + _TWO_U32.pack(last_stream_id, code) + debug


def parse_u32(source: bytes | bytearray, position: int) -> int:
    return int(_U32.unpack_from(source, position)[0])


def headers_frames(stream_id: int, block: bytes, max_frame_bytes: int, end_stream: bool) -> bytes:
    """Encode a header block as HEADERS and as many CONTINUATION frames as needed."""
    flags = END_STREAM if end_stream else 0
    if len(block) <= max_frame_bytes:
        return frame_header(len(block), HEADERS, flags | END_HEADERS, stream_id) + block
    pieces = [frame_header(max_frame_bytes, HEADERS, flags, stream_id), block[:max_frame_bytes]]
    position = max_frame_bytes
    while position < len(block):
        piece = block[position : position + max_frame_bytes]
        position += len(piece)
        pieces.append(frame_header(len(piece), CONTINUATION, END_HEADERS if position == len(block) else 0, stream_id))
        pieces.append(piece)
    return b"".join(pieces)


class ConnectionLimits:
    """What this end of a connection grants to its peer."""

    def __init__(
        self,
        *,
        frame_bytes: int = DEFAULT_FRAME_BYTES,
        stream_window_bytes: int = 1024 * 1024,
        connection_window_bytes: int = 16 * 1024 * 1024,
        max_streams: int = 1_000,
        unserved_streams: int = 1_000,
        credits_on_arrival: bool = False,
    ) -> None:
        self.frame_bytes: Final = frame_bytes
        self.stream_window_bytes: Final = stream_window_bytes
        self.connection_window_bytes: Final = connection_window_bytes
        self.max_streams: Final = max_streams
        self.unserved_streams: Final = unserved_streams
        """How many may end before they were served, whichever side ended them: refused, reset by the peer
        (CVE-2023-44487), or reset by us for a violation (CVE-2025-8671). A tunnel that was open does not count, so
        thousands of dials per second never reach this limit."""
        self.credits_on_arrival: Final = credits_on_arrival
        """Streams are credited when bytes arrive; otherwise the caller calls `credit` when it has processed them."""
