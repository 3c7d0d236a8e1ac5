"""TCP_INFO of a connection: unacknowledged and retransmitted segments, round trip time."""

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
    """Segments in flight."""
    sent_again: int
    """Retransmitted segments since the connection was opened."""
    segments_out: int


def tcp_facts(sock: socket.socket) -> TcpFacts | None:
    """None where the kernel has no TCP_INFO: not TCP, not Linux, closed."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES)
        return TcpFacts(
            _UNACKNOWLEDGED.unpack_from(info)[0], _SENT_AGAIN.unpack_from(info)[0], _SEGMENTS_OUT.unpack_from(info)[0]
        )
    except (OSError, struct.error):
        return None


def round_trip_seconds(sock: socket.socket) -> float:
    """Return the shortest round trip that the kernel has measured; 0 without TCP_INFO."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES)
        return float(_SHORTEST_ROUND_TRIP.unpack_from(info)[0]) / 1e6
    except (OSError, struct.error):
        return 0.0
