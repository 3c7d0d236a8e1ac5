"""What the kernel knows of a TCP connection: whether its other end acknowledges, and what had to be sent again."""

import socket
import struct
from typing import Final

from umbilical.record import Record

# Offsets in struct tcp_info, include/uapi/linux/tcp.h; the struct only ever grows at its end.
_UNACKNOWLEDGED: Final = struct.Struct("=24xI")
_SENT_AGAIN: Final = struct.Struct("=100xI")
_SEGMENTS_OUT: Final = struct.Struct("=136xI")
_SHORTEST_ROUND_TRIP: Final = struct.Struct("=148xI")
_BYTES: Final = 232


class TcpFacts(Record):
    unacknowledged: int
    """Segments under way."""
    sent_again: int
    """Segments, since the connection was made."""
    segments_out: int


def tcp_facts(sock: socket.socket) -> TcpFacts | None:
    """None where the kernel does not tell: no TCP, no Linux, closed."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES)
        return TcpFacts(
            _UNACKNOWLEDGED.unpack_from(info)[0], _SENT_AGAIN.unpack_from(info)[0], _SEGMENTS_OUT.unpack_from(info)[0]
        )
    except (OSError, struct.error):
        return None


def round_trip_seconds(sock: socket.socket) -> float:
    """The shortest that the kernel has seen on this connection; 0 where it does not tell."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES)
        return float(_SHORTEST_ROUND_TRIP.unpack_from(info)[0]) / 1e6
    except (OSError, struct.error):
        return 0.0
