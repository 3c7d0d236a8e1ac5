"""HTTP/2 streams: the state, windows and waiting messages of each, and the table of a connection's streams.

IDLE -> OPEN -> HALF_CLOSED_LOCAL  -> CLOSED
             -> HALF_CLOSED_REMOTE -> CLOSED
"""

from collections import deque
from typing import Final, Protocol

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.grpc import MessageReader
from umbilical.wire.http2.frames import PROTOCOL_ERROR, STREAM_CLOSED

OPEN: Final = 1
HALF_CLOSED_LOCAL: Final = 2
HALF_CLOSED_REMOTE: Final = 3
CLOSED: Final = 4

NO_LENGTH: Final = -1
"""The headers announced no `content-length`."""
NO_HEADERS: Final = -2
"""Client: the response headers have not arrived."""

RESETS_REMEMBERED: Final = 1_024
"""Only on these streams that we reset are late frames told from a violation; on older ones they are ignored."""


class StreamOwner(Protocol):
    """The end of the tunnel that a plain stream carries."""

    def deliver(self, view: memoryview) -> None:
        """Payload from the peer, valid during this call."""

    def peer_ended(self) -> None:
        """The peer sends no more on this stream; it may still read."""

    def peer_reset(self, code: int) -> None:
        """The peer reset the stream, with this HTTP/2 error code."""

    def on_crash(self, error: Exception) -> None:
        """A method above raised, which is a bug: close the tunnel."""


LARGEST_CREDIT_STEP: Final = 512 * 1024


def credit_step(window: int) -> int:
    """How much credit a WINDOW_UPDATE waits for: a quarter of a small window, less of a large one."""
    return min(window >> 2, LARGEST_CREDIT_STEP)


class Stream:
    def __init__(self, stream_id: int, send_window: int, receive_window: int) -> None:
        self.stream_id: Final = stream_id
        self.state = OPEN
        self.send_window = send_window
        self.receive_window = receive_window
        """What the peer may still send now."""
        self.uncredited = 0
        """Credit for which no WINDOW_UPDATE was sent yet."""
        self.window = receive_window
        """Full size of the receive window; `enlarge` raises it."""
        self.credit_step = credit_step(receive_window)
        self.credited_by_caller = False
        """The caller calls `credit` when it has processed bytes; otherwise they are credited on arrival."""
        self.credit_held = False
        """Crediting on arrival is stopped for now."""
        self.backlog: deque[bytes] = deque()
        """Pieces of gRPC messages (control packets) that wait for window, oldest first."""
        self.backlog_bytes = 0
        self.finish: bytes | None = None
        """Frames that end our side, to be sent after the backlog and the payload."""
        self.finish_forgets = False
        """`finish` contains a reset, which ends the peer's side too."""
        self.reader: Final = MessageReader()
        self.answered = False
        """Server: we sent at least the response headers."""
        self.served = False
        """Server: its call was accepted, so its end does not count as part of a flood."""
        self.content_left = NO_LENGTH
        """Bytes of DATA that `content-length` announced and that have not arrived, or NO_LENGTH or NO_HEADERS."""
        self.plain = False
        """It carries payload of one tunnel without gRPC messages."""
        self.owner: StreamOwner | None = None
        """Of a plain stream, once its tunnel is known."""

    def can_send(self) -> bool:
        return self.state in (OPEN, HALF_CLOSED_REMOTE)

    def can_receive(self) -> bool:
        return self.state in (OPEN, HALF_CLOSED_LOCAL)

    def end_local(self) -> None:
        self.state = CLOSED if self.state in (HALF_CLOSED_REMOTE, CLOSED) else HALF_CLOSED_LOCAL

    def end_remote(self) -> None:
        self.state = CLOSED if self.state in (HALF_CLOSED_LOCAL, CLOSED) else HALF_CLOSED_REMOTE


class StreamTable:
    """The streams of one connection that are not closed, and which stream numbers were used."""

    def __init__(self, is_client: bool) -> None:
        self.is_client: Final = is_client
        self.by_id: Final[dict[int, Stream]] = {}
        self.next_own = 1
        """Number of the next stream that we open."""
        self.highest_of_peer = 0
        self._reset: Final[dict[int, None]] = {}
        """Streams that we reset, oldest first."""
        self._ignored_up_to = 0

    def remember_reset(self, stream_id: int) -> None:
        """We closed the stream, and the peer may go on sending until it knows."""
        self._reset[stream_id] = None
        if len(self._reset) > RESETS_REMEMBERED:
            oldest = next(iter(self._reset))
            del self._reset[oldest]
            self._ignored_up_to = max(self._ignored_up_to, oldest)

    def check_closed(self, stream_id: int, frame_name: str) -> None:
        """DATA or HEADERS on a stream that is not in the table: allowed if we reset it."""
        self.check_used(stream_id, frame_name)
        if stream_id not in self._reset and stream_id > self._ignored_up_to:
            raise ProtocolViolation(STREAM_CLOSED, f"{frame_name} on closed stream {stream_id}")

    def check_used(self, stream_id: int, frame_name: str) -> None:
        """Late control frames on a closed stream are allowed; frames on a stream that was never opened are not."""
        own = (stream_id & 1 == 1) == self.is_client
        limit = self.next_own - 2 if own else self.highest_of_peer
        if stream_id == 0 or stream_id > limit:
            raise ProtocolViolation(PROTOCOL_ERROR, f"{frame_name} on idle stream {stream_id}")
