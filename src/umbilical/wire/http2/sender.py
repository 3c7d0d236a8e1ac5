"""The sending half of a connection: opens and ends streams, sends messages and payload, observes the peer's windows.

Control packets that do not fit the window wait in the backlog of their stream. Payload never waits here: the caller
receives it straight into the outgoing frame, as much as the windows allow.
"""

from typing import Final

from umbilical.wire.errors import MisuseError, ProtocolViolation
from umbilical.wire.grpc import PREFIX_BYTES, message_prefix
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import Outbox
from umbilical.wire.http2.flood_guard import FloodGuard
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.headers import MAX_HEADER_LIST_BYTES, HeaderList, encode_headers
from umbilical.wire.http2.streams import (
    CLOSED,
    HALF_CLOSED_LOCAL,
    HALF_CLOSED_REMOTE,
    NO_HEADERS,
    OPEN,
    Stream,
    StreamTable,
)

CONTROL_RESERVE_BYTES: Final = 4_096
"""Reserved in every send window, so that dials and closes need not wait for bulk data (fault control-behind-bulk)."""
SMALLEST_PAYLOAD_BYTES: Final = 512
"""Smaller payloads wait for more window: a frame each would cost too much."""
UNLIMITED_STREAMS: Final = 1 << 31
"""A peer that announces no MAX_CONCURRENT_STREAMS sets no limit: RFC 9113 section 6.5.2."""
MAX_BACKLOG_BYTES: Final = 4 * 1024 * 1024
"""Limit for control packets of one stream that wait for window."""
FINISHED_KEPT: Final = 64
"""Calls that we finished while the peer may go on sending. It ends them itself, as RFC 9113 section 8.1 expects; until
then its frames on them are checked. Above this number the oldest are reset."""


class Sender:
    def __init__(self, limits: ConnectionLimits, outbox: Outbox, streams: StreamTable, floods: FloodGuard) -> None:
        self.outbox: Final = outbox
        self.failure: ProtocolViolation | None = None
        """Why the connection has failed; a GOAWAY with this reason is queued."""
        self.window = frames.DEFAULT_WINDOW_BYTES
        """What we may still send on all streams together."""
        self.refuses_streams = False
        """The last GOAWAY was sent: streams that the peer opens from now on are refused."""
        self.peer_serves_up_to = frames.LARGEST_STREAM_ID
        """Client: the last stream that the peer's GOAWAY lets us open."""
        self._limits: Final = limits
        self._streams: Final = streams
        self._floods: Final = floods
        self._peer_frame_bytes = frames.DEFAULT_FRAME_BYTES
        self._peer_stream_window = frames.DEFAULT_WINDOW_BYTES
        self._peer_max_streams = UNLIMITED_STREAMS
        self._reserve = CONTROL_RESERVE_BYTES
        self._table_update = b""
        self._acks_owed = 0
        self._resets_owed = bytearray()
        """RST_STREAM frames that wait for room behind the payload."""
        self._backlogged: Final[dict[int, Stream]] = {}
        self._backlog_in_block = False
        """Messages from a backlog are in the data lane."""
        self._lingering: Final[dict[int, Stream]] = {}
        """Server: calls that we finished and the peer has not ended yet, oldest first."""
        self._greet()

    def _greet(self) -> None:
        limits = self._limits
        settings = [
            (frames.MAX_FRAME_SIZE, limits.frame_bytes),
            (frames.INITIAL_WINDOW_SIZE, limits.stream_window_bytes),
            (frames.MAX_HEADER_LIST_SIZE, MAX_HEADER_LIST_BYTES),
        ]
        if self._streams.is_client:
            self.outbox.add_control(frames.PREFACE)
            settings.append((frames.ENABLE_PUSH, 0))
        else:
            settings.append((frames.MAX_CONCURRENT_STREAMS, limits.max_streams))
        self.outbox.add_control(frames.settings_frame(settings))
        grown = limits.connection_window_bytes - frames.DEFAULT_WINDOW_BYTES
        if grown > 0:
            self.outbox.add_control(frames.window_update_frame(0, grown))

    def open_stream(self, headers: HeaderList) -> Stream:
        """Client: start a call."""
        if not self._streams.is_client:
            raise MisuseError("a server cannot open streams")
        if self._streams.next_own > frames.LARGEST_STREAM_ID:
            raise MisuseError("the stream numbers of this connection are used up")
        stream = self.add_stream(self._streams.next_own)
        stream.content_left = NO_HEADERS
        self._streams.next_own += 2
        self._send_headers(stream, headers, end_stream=False)
        return stream

    def add_stream(self, stream_id: int) -> Stream:
        """Create a stream with the windows that both sides set, whichever side opens it."""
        stream = Stream(stream_id, self._peer_stream_window, self._limits.stream_window_bytes)
        stream.credited_by_caller = not self._limits.credits_on_arrival
        self._streams.by_id[stream_id] = stream
        return stream

    def can_open_stream(self) -> bool:
        """Client: true if the peer's limit and its GOAWAY allow another stream and stream numbers are left."""
        return len(self._streams.by_id) < self._peer_max_streams and self._streams.next_own <= self.peer_serves_up_to

    def numbers_left(self) -> int:
        """Client: how many more streams this connection can open in total."""
        return (frames.LARGEST_STREAM_ID - self._streams.next_own) // 2 + 1

    def send_headers(self, stream: Stream, headers: HeaderList) -> None:
        """Server: answer a call with its initial metadata."""
        stream.answered = True
        if stream.can_send():
            self._send_headers(stream, headers, end_stream=False)

    def _send_headers(self, stream: Stream, headers: HeaderList, end_stream: bool) -> None:
        block = self._header_block(headers)
        self.outbox.add_control(frames.headers_frames(stream.stream_id, block, self._peer_frame_bytes, end_stream))

    def _header_block(self, headers: HeaderList) -> bytes:
        # Before every block from then on: a block that waits behind payload can be overtaken by a later one.
        return self._table_update + encode_headers(headers)

    def finish(self, stream: Stream, trailers: HeaderList) -> None:
        """Server: end a call after everything that was sent on it."""
        stream.answered = True
        if not stream.can_send() or stream.finish is not None:
            return
        if not stream.served and not self._count_refusal(stream):
            return
        block = self._header_block(trailers)
        finish = frames.headers_frames(stream.stream_id, block, self._peer_frame_bytes, end_stream=True)
        if stream.backlog or not self.outbox.add_ordered(finish):
            stream.finish = finish
            self._backlogged[stream.stream_id] = stream
            return
        self._ended_local(stream)
        if stream.state == HALF_CLOSED_LOCAL:
            self._linger(stream)

    def _count_refusal(self, stream: Stream) -> bool:
        """False if the connection failed, because the peer does not read our answers."""
        stream.served = True  # counted once
        self._floods.unserved()
        try:
            self._floods.check_answers(self.outbox.control_bytes())
        except ProtocolViolation as violation:
            self.fail(violation)
        return self.failure is None

    def _linger(self, stream: Stream) -> None:
        self._lingering[stream.stream_id] = stream
        if len(self._lingering) > FINISHED_KEPT:
            self.reset(next(iter(self._lingering.values())), frames.NO_ERROR)

    def close_sending(self, stream: Stream) -> None:
        """End our side of a stream; the peer may still send."""
        if stream.can_send() and stream.finish is None:
            self._end_with(stream, _end_frame(stream), forgets=False)

    def close_both(self, stream: Stream) -> None:
        """End both sides of a stream; what was sent before still arrives."""
        if stream.state == CLOSED or stream.finish_forgets:
            return
        end = _end_frame(stream) if stream.can_send() else b""
        self._end_with(stream, end + frames.reset_frame(stream.stream_id, frames.NO_ERROR), forgets=True)

    def abort(self, stream: Stream, code: int) -> None:
        """Reset a stream after the payload that is queued for it."""
        if stream.state != CLOSED:
            self._end_with(stream, frames.reset_frame(stream.stream_id, code), forgets=True)

    def _end_with(self, stream: Stream, finish: bytes, forgets: bool) -> None:
        if stream.backlog or not self.outbox.add_ordered(finish):
            stream.finish, stream.finish_forgets = finish, forgets
            self._backlogged[stream.stream_id] = stream
        elif forgets:
            self.forget(stream)
        else:
            self._ended_local(stream)

    def _ended_local(self, stream: Stream) -> None:
        stream.end_local()
        if stream.state == CLOSED or stream.finish_forgets:
            self.forget(stream)

    def reset(self, stream: Stream, code: int) -> None:
        if stream.state != CLOSED:
            self._send_behind_payload(frames.reset_frame(stream.stream_id, code))
            self.forget(stream)

    def _send_behind_payload(self, frame: bytes) -> None:
        """A peer may fail the connection for DATA behind a reset: RFC 9113 section 5.1."""
        if self._resets_owed or not self.outbox.add_ordered(frame):
            self._resets_owed += frame

    def answer(self, frame: bytes) -> None:
        """Queue an answer to what the peer sent without need. Raises ProtocolViolation if it does not read them."""
        self._floods.check_answers(self.outbox.control_bytes())
        self.outbox.add_control(frame)

    def forget(self, stream: Stream) -> None:
        if not stream.served and not self._streams.is_client:
            self._floods.unserved()
        if stream.can_receive():
            self._streams.remember_reset(stream.stream_id)
        stream.state = CLOSED
        stream.backlog.clear()
        stream.finish = None
        self._streams.by_id.pop(stream.stream_id, None)
        self._backlogged.pop(stream.stream_id, None)
        if self._lingering:
            self._lingering.pop(stream.stream_id, None)

    def send_message(self, stream: Stream, message: bytes) -> None:
        """Queue a control packet ahead of payload, or in the backlog if the window is closed."""
        if self._backlog_in_block:
            # Part of a message from the backlog may be queued among the payload: no other may overtake its rest.
            if self.outbox.data_bytes():
                self.send_ordered(stream, message)
                return
            self._backlog_in_block = False
        frame = self._admit(stream, message)
        if frame:
            self.outbox.add_control(frame)

    def send_ordered(self, stream: Stream, message: bytes) -> None:
        """Queue a control packet behind the payload that is queued: a CLOSE must not overtake DATA."""
        frame = self._admit(stream, message)
        if frame and not self.outbox.add_ordered(frame):
            self._charge(stream, -len(message) - PREFIX_BYTES)
            self._postpone(stream, message_prefix(len(message)) + message)

    def _admit(self, stream: Stream, message: bytes) -> bytes:
        """Charge the windows and return the frames of a message; empty if it must wait or the stream has ended."""
        if not stream.can_send() or stream.finish is not None:
            return b""
        size = PREFIX_BYTES + len(message)
        if stream.backlog or size > stream.send_window or size > self.window:
            self._postpone(stream, message_prefix(len(message)) + message)
            self._flush_backlog(stream)
            return b""
        self._charge(stream, size)
        if size <= self._peer_frame_bytes:
            return frames.MESSAGE_HEADER.pack(size >> 8, size & 0xFF, 0, 0, stream.stream_id, 0, len(message)) + message
        return self._data_frames(stream, message_prefix(len(message)) + message)

    def _data_frames(self, stream: Stream, body: bytes) -> bytes:
        limit = self._peer_frame_bytes
        if len(body) <= limit:
            return frames.frame_header(len(body), frames.DATA, 0, stream.stream_id) + body
        pieces = []
        for position in range(0, len(body), limit):
            piece = body[position : position + limit]
            pieces.append(frames.frame_header(len(piece), frames.DATA, 0, stream.stream_id) + piece)
        return b"".join(pieces)

    def _charge(self, stream: Stream, size: int) -> None:
        stream.send_window -= size
        self.window -= size
        self._floods.payload_frames += 1

    def _postpone(self, stream: Stream, body: bytes) -> None:
        """Add a message to the backlog, in pieces that fit usual windows."""
        if stream.backlog_bytes + len(body) > MAX_BACKLOG_BYTES:
            self.fail(ProtocolViolation(frames.ENHANCE_YOUR_CALM, "the peer grants no window for control packets"))
            return
        stream.backlog_bytes += len(body)
        for position in range(0, len(body), frames.DEFAULT_FRAME_BYTES):
            stream.backlog.append(body[position : position + frames.DEFAULT_FRAME_BYTES])
        self._backlogged[stream.stream_id] = stream

    def _flush_backlogs(self) -> None:
        for stream in list(self._backlogged.values()):
            self._flush_backlog(stream)

    def _flush_backlog(self, stream: Stream) -> None:
        while stream.backlog:
            piece = stream.backlog[0]
            size = self._window_for(stream, len(piece))
            if size == 0 or not self.outbox.add_ordered(self._data_frames(stream, piece[:size])):
                return
            self._backlog_in_block = self.outbox.data_bytes() > 0
            self._charge(stream, size)
            stream.backlog_bytes -= size
            if size < len(piece):
                stream.backlog[0] = piece[size:]
                return
            stream.backlog.popleft()
        if stream.finish is not None:
            if not self.outbox.add_ordered(stream.finish):
                return
            stream.finish = None
            self._ended_local(stream)
        self._backlogged.pop(stream.stream_id, None)

    def _window_for(self, stream: Stream, size: int) -> int:
        """How much of a piece to send now. A part is enough if the window is tiny: it may never fit the piece."""
        window = min(stream.send_window, self.window)
        if size <= window:
            return size
        if window <= 0 or (window < SMALLEST_PAYLOAD_BYTES and self._peer_stream_window >= frames.DEFAULT_FRAME_BYTES):
            return 0
        return window

    def is_shut(self, stream: Stream) -> bool:
        """True if the window of this stream, and not that of the connection, is what keeps it from sending."""
        return stream.send_window - self._reserve < SMALLEST_PAYLOAD_BYTES and self.window > stream.send_window

    def payload_room(self, stream: Stream, gap: int) -> memoryview | None:
        """Memory for one payload, within the windows, the peer's frame size and our block; None if it must wait."""
        if stream.backlog or stream.finish is not None or stream.state not in (OPEN, HALF_CLOSED_REMOTE):
            return None
        size = self._peer_frame_bytes
        window = stream.send_window - self._reserve
        if window < size:
            size = window
        window = self.window - self._reserve
        if window < size:
            size = window
        size -= gap - 9
        free = self.outbox.free_bytes() - gap
        if free < size:
            size = free
        if size < SMALLEST_PAYLOAD_BYTES and (size <= 0 or self._reserve):
            return None
        return self.outbox.room(gap, size)

    def payload_written(self, stream: Stream, prefix: bytes, size: int) -> None:
        """Queue a payload of `size` bytes that was written to `payload_room`; `prefix` fills the gap before it."""
        self.outbox.commit(prefix, size)
        charged = len(prefix) + size - 9
        stream.send_window -= charged
        self.window -= charged
        self._floods.payload_frames += 1

    def ping(self, payload: bytes) -> None:
        self.outbox.add_control(frames.ping_frame(payload, 0))

    def goaway(self, code: int, text: str) -> None:
        """Announce that this connection takes no new streams; with NO_ERROR, existing ones may continue, and those that
        the peer opens before it reads this are served."""
        last = frames.LARGEST_STREAM_ID if code == frames.NO_ERROR else self._streams.highest_of_peer
        self.outbox.add_control(frames.goaway_frame(last, code, text.encode()[:256]))

    def last_goaway(self, text: str) -> None:
        """The peer has read the first one: name the last stream that is served, and refuse all later ones."""
        self.refuses_streams = True
        self.outbox.add_control(
            frames.goaway_frame(self._streams.highest_of_peer, frames.NO_ERROR, text.encode()[:256])
        )

    def fail(self, violation: ProtocolViolation) -> None:
        if self.failure is None:
            self.failure = violation
            debug = violation.message.encode()[:256]
            self.outbox.add_control(frames.goaway_frame(self._streams.highest_of_peer, violation.code, debug))

    def apply_settings(self, settings: list[tuple[int, int]]) -> None:
        """Apply the peer's settings and acknowledge them."""
        window, frame_bytes = self._peer_stream_window, self._peer_frame_bytes
        for number, value in settings:
            self._apply_setting(number, value)
        if self._peer_stream_window < window or self._peer_frame_bytes < frame_bytes:
            # What is queued was made under wider settings and must reach the peer before the acknowledgement.
            self._acks_owed += 1
            self._send_acks_owed()
        else:
            self.answer(frames.SETTINGS_ACK)
        self._flush_backlogs()

    def _apply_setting(self, number: int, value: int) -> None:
        if number == frames.INITIAL_WINDOW_SIZE:
            self._resize_windows(value)
        elif number == frames.MAX_FRAME_SIZE:
            if not frames.DEFAULT_FRAME_BYTES <= value <= frames.LARGEST_FRAME_BYTES:
                raise ProtocolViolation(frames.PROTOCOL_ERROR, f"maximum frame size of {value} bytes")
            self._peer_frame_bytes = value
        elif number == frames.MAX_CONCURRENT_STREAMS:
            self._peer_max_streams = value
        elif number == frames.ENABLE_PUSH:
            if value > 1 or (value and self._streams.is_client):
                raise ProtocolViolation(frames.PROTOCOL_ERROR, f"ENABLE_PUSH of {value}")
        elif number == frames.HEADER_TABLE_SIZE and value < 4096:
            self._table_update = b"\x20"  # announces a table of size 0, the only one we use: RFC 7541 section 4.2

    def _resize_windows(self, size: int) -> None:
        if size > frames.LARGEST_WINDOW_BYTES:
            raise ProtocolViolation(frames.FLOW_CONTROL_ERROR, f"initial window of {size} bytes")
        for stream in self._streams.by_id.values():
            stream.send_window += size - self._peer_stream_window
            if stream.send_window > frames.LARGEST_WINDOW_BYTES:
                raise ProtocolViolation(frames.FLOW_CONTROL_ERROR, f"stream {stream.stream_id}: window too large")
        self._peer_stream_window = size
        self._reserve = CONTROL_RESERVE_BYTES if size >= frames.DEFAULT_FRAME_BYTES else 0

    def open_window(self, stream: Stream | None, increment: int) -> None:
        """The peer lets us send more: on one stream, or on the whole connection."""
        if stream is None:
            self.window += increment
            stream_id, window = 0, self.window
        else:
            stream.send_window += increment
            stream_id, window = stream.stream_id, stream.send_window
        if window > frames.LARGEST_WINDOW_BYTES:
            raise ProtocolViolation(frames.FLOW_CONTROL_ERROR, f"stream {stream_id}: window too large", stream_id)
        if self._backlogged:
            self._flush_backlogs()

    def after_flush(self) -> None:
        """Queue what did not fit into the block before bytes were sent."""
        if self._acks_owed:
            self._send_acks_owed()
        if self._resets_owed and self.outbox.add_ordered(bytes(self._resets_owed)):
            self._resets_owed.clear()
        if self._backlogged:
            self._flush_backlogs()

    def _send_acks_owed(self) -> None:
        while self._acks_owed and self.outbox.add_ordered(frames.SETTINGS_ACK):
            self._acks_owed -= 1


def _end_frame(stream: Stream) -> bytes:
    return frames.frame_header(0, frames.DATA, frames.END_STREAM, stream.stream_id)
