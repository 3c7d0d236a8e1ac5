"""TCP_INFO of a connection: unacknowledged and retransmitted segments.

A module of its own: tests replace the kernel's answer, which they could not inside the compiled data path.
"""

import socket
import struct
from typing import Final

from umbilical.record import Record

# Offsets in struct tcp_info, include/uapi/linux/tcp.h; the struct only ever grows at its end.
_UNACKNOWLEDGED: Final = struct.Struct("=24xI")
_SENT_AGAIN: Final = struct.Struct("=100xI")
_SEGMENTS_OUT: Final = struct.Struct("=136xI")
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
