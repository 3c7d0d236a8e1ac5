"""The sending half of a connection: calls begun and ended, messages, payload, and what waits for window or room.

Control packets that find no window wait in the backlog of their stream; payload is never queued here but received
straight into the outgoing frame, as much as the windows allow.
"""

from typing import Final

from umbilical.wire.errors import MisuseError, ProtocolViolation
from umbilical.wire.grpc import PREFIX_BYTES, message_prefix
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import BlockPool, Outbox
from umbilical.wire.http2.frames import Profile
from umbilical.wire.http2.headers import MAX_HEADER_LIST_BYTES, HeaderList, encode_headers
from umbilical.wire.http2.streams import CLOSED, HALF_CLOSED_REMOTE, OPEN, Stream

CONTROL_RESERVE_BYTES: Final = 4_096
"""Part of every send window that payload leaves alone, so dials and closes pass bulk data (control-behind-bulk)."""
SMALLEST_PAYLOAD_BYTES: Final = 512
"""A nearly closed window is not worth a frame: better wait for the credit that is on its way."""
UNLIMITED_STREAMS: Final = 1 << 31
"""A peer that announces no MAX_CONCURRENT_STREAMS sets no limit: RFC 9113 section 6.5.2."""
MAX_BACKLOG_BYTES: Final = 4 * 1024 * 1024
"""Control packets that wait for window on one stream."""


class SendingHalf:
    """A base and no part: one more call per packet would be felt."""

    def __init__(self, is_client: bool, profile: Profile, pool: BlockPool) -> None:
        self._is_client: Final = is_client
        self._profile: Final = profile
        self._outbox: Final = Outbox(pool)
        self.streams: Final[dict[int, Stream]] = {}
        self.failure: ProtocolViolation | None = None
        self.send_window = frames.DEFAULT_WINDOW_BYTES
        self._peer_frame_bytes = frames.DEFAULT_FRAME_BYTES
        self._peer_stream_window = frames.DEFAULT_WINDOW_BYTES
        self._peer_max_streams = UNLIMITED_STREAMS
        self._reserve = CONTROL_RESERVE_BYTES
        self._table_update = b""
        self._acks_owed = 0
        self._highest_peer_stream = 0
        self._next_own_stream = 1
        self._backlogged: dict[int, Stream] = {}
        self._backlog_in_block = False
        """Messages that had to wait are in the data lane now."""
        self._moved = False
        """Payload has moved since the last ping."""
        self._greet()

    def _greet(self) -> None:
        profile = self._profile
        settings = [
            (frames.MAX_FRAME_SIZE, profile.frame_bytes),
            (frames.INITIAL_WINDOW_SIZE, profile.stream_window_bytes),
            (frames.MAX_HEADER_LIST_SIZE, MAX_HEADER_LIST_BYTES),
        ]
        if self._is_client:
            self._outbox.add_control(frames.PREFACE)
            settings.append((frames.ENABLE_PUSH, 0))
        else:
            settings.append((frames.MAX_CONCURRENT_STREAMS, profile.max_streams))
        self._outbox.add_control(frames.settings_frame(settings))
        grown = profile.connection_window_bytes - frames.DEFAULT_WINDOW_BYTES
        if grown > 0:
            self._outbox.add_control(frames.window_update_frame(0, grown))

    def open_stream(self, headers: HeaderList) -> Stream:
        """Client: begin a call."""
        if not self._is_client:
            raise MisuseError("a server opens no streams")
        if self._next_own_stream > frames.LARGEST_STREAM_ID:
            raise MisuseError("the stream numbers of this connection are used up")
        stream = self._new_stream(self._next_own_stream)
        self._next_own_stream += 2
        self.streams[stream.stream_id] = stream
        self._send_headers(stream, headers, end_stream=False)
        return stream

    def _new_stream(self, stream_id: int) -> Stream:
        stream = Stream(stream_id, self._peer_stream_window, self._profile.stream_window_bytes)
        stream.credited_by_shell = not self._profile.credits_on_arrival
        return stream

    def can_open_stream(self) -> bool:
        """Client: neither the peer's limit nor the numbers of this connection are used up."""
        return len(self.streams) < self._peer_max_streams and self._next_own_stream <= frames.LARGEST_STREAM_ID

    def numbers_left(self) -> int:
        """Client: how many streams this connection can still open in its life."""
        return (frames.LARGEST_STREAM_ID - self._next_own_stream) // 2 + 1

    def send_headers(self, stream: Stream, headers: HeaderList) -> None:
        """Server: answer a call with its initial metadata."""
        stream.answered = True
        if stream.can_send():
            self._send_headers(stream, headers, end_stream=False)

    def _send_headers(self, stream: Stream, headers: HeaderList, end_stream: bool) -> None:
        block = self._header_block(headers)
        self._outbox.add_control(frames.headers_frames(stream.stream_id, block, self._peer_frame_bytes, end_stream))

    def _header_block(self, headers: HeaderList) -> bytes:
        # Once needed it stands before every block: one that waits behind payload may be overtaken by another.
        return self._table_update + encode_headers(headers)

    def finish(self, stream: Stream, trailers: HeaderList) -> None:
        """Server: finish a call behind everything that was sent on it."""
        stream.answered = True
        if not stream.can_send() or stream.finish is not None:
            return
        block = self._header_block(trailers)
        finish = frames.headers_frames(stream.stream_id, block, self._peer_frame_bytes, end_stream=True)
        if stream.backlog or not self._outbox.add_ordered(finish):
            stream.finish = finish
            self._backlogged[stream.stream_id] = stream
            return
        self._ended_local(stream)

    def close_sending(self, stream: Stream) -> None:
        """Nothing more follows on this stream; what the peer sends is still welcome."""
        if stream.can_send() and stream.finish is None:
            self._end_with(stream, _end_frame(stream), forgets=False)

    def close_both(self, stream: Stream) -> None:
        """Nothing more follows, and nothing more is wanted; what was sent before still counts."""
        if stream.state == CLOSED:
            return
        end = _end_frame(stream) if stream.can_send() else b""
        self._end_with(stream, end + frames.reset_frame(stream.stream_id, frames.NO_ERROR), forgets=True)

    def abort(self, stream: Stream, code: int) -> None:
        """Reset the stream behind the payload that is queued for it."""
        if stream.state != CLOSED:
            self._end_with(stream, frames.reset_frame(stream.stream_id, code), forgets=True)

    def _end_with(self, stream: Stream, finish: bytes, forgets: bool) -> None:
        if stream.backlog or not self._outbox.add_ordered(finish):
            stream.finish, stream.finish_forgets = finish, forgets
            self._backlogged[stream.stream_id] = stream
        elif forgets:
            self._forget(stream)
        else:
            self._ended_local(stream)

    def _ended_local(self, stream: Stream) -> None:
        stream.end_local()
        if stream.state == CLOSED or stream.finish_forgets:
            self._forget(stream)

    def reset(self, stream: Stream, code: int) -> None:
        if stream.state != CLOSED:
            self._send_behind_payload(frames.reset_frame(stream.stream_id, code))
            self._forget(stream)

    def _send_behind_payload(self, frame: bytes) -> None:
        if not self._outbox.add_ordered(frame):
            self._outbox.add_control(frame)

    def _forget(self, stream: Stream) -> None:
        stream.state = CLOSED
        stream.backlog.clear()
        stream.finish = None
        self.streams.pop(stream.stream_id, None)
        self._backlogged.pop(stream.stream_id, None)

    def send_message(self, stream: Stream, message: bytes) -> None:
        """Queue a control packet: ahead of payload, unless the window is shut."""
        if self._backlog_in_block:
            # A message that had to wait stands among the payload, perhaps in part: nothing may overtake its rest.
            if self._outbox.data_bytes():
                self.send_ordered(stream, message)
                return
            self._backlog_in_block = False
        frame = self._admit(stream, message)
        if frame:
            self._outbox.add_control(frame)

    def send_ordered(self, stream: Stream, message: bytes) -> None:
        """Queue a control packet behind the payload that is already queued (a CLOSE must not overtake DATA)."""
        frame = self._admit(stream, message)
        if frame and not self._outbox.add_ordered(frame):
            self._charge(stream, -len(message) - PREFIX_BYTES)
            self._postpone(stream, message_prefix(len(message)) + message)

    def _admit(self, stream: Stream, message: bytes) -> bytes:
        """The frames of a message, its window charged; empty when it has to wait or the stream is over."""
        if not stream.can_send() or stream.finish is not None:
            return b""
        size = PREFIX_BYTES + len(message)
        if stream.backlog or size > stream.send_window or size > self.send_window:
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
        self.send_window -= size
        self._moved = True

    def _postpone(self, stream: Stream, body: bytes) -> None:
        """Let a message wait, in pieces that any usual window can hold."""
        if stream.backlog_bytes + len(body) > MAX_BACKLOG_BYTES:
            self._fail(ProtocolViolation(frames.ENHANCE_YOUR_CALM, "the peer grants no window for control packets"))
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
            if size == 0 or not self._outbox.add_ordered(self._data_frames(stream, piece[:size])):
                return
            self._backlog_in_block = self._outbox.data_bytes() > 0
            self._charge(stream, size)
            stream.backlog_bytes -= size
            if size < len(piece):
                stream.backlog[0] = piece[size:]
                return
            stream.backlog.popleft()
        if stream.finish is not None:
            if not self._outbox.add_ordered(stream.finish):
                return
            stream.finish = None
            self._ended_local(stream)
        self._backlogged.pop(stream.stream_id, None)

    def _window_for(self, stream: Stream, size: int) -> int:
        """How much of a piece may go now; waiting for room for all of it could be for ever with a tiny window."""
        window = min(stream.send_window, self.send_window)
        if size <= window:
            return size
        if window <= 0 or (window < SMALLEST_PAYLOAD_BYTES and self._peer_stream_window >= frames.DEFAULT_FRAME_BYTES):
            return 0
        return window

    def is_shut(self, stream: Stream) -> bool:
        """The peer lets this one stream wait, whatever room there is for others."""
        return stream.send_window - self._reserve < SMALLEST_PAYLOAD_BYTES and self.send_window > stream.send_window

    def payload_room(self, stream: Stream, gap: int) -> memoryview | None:
        """Memory for one payload, cut to the windows, the peer's frame size and our block; None: wait."""
        if stream.backlog or stream.finish is not None or stream.state not in (OPEN, HALF_CLOSED_REMOTE):
            return None
        size = self._peer_frame_bytes
        window = stream.send_window - self._reserve
        if window < size:
            size = window
        window = self.send_window - self._reserve
        if window < size:
            size = window
        size -= gap - 9
        free = self._outbox.free_bytes() - gap
        if free < size:
            size = free
        if size < SMALLEST_PAYLOAD_BYTES and (size <= 0 or self._reserve):
            return None
        return self._outbox.room(gap, size)

    def payload_written(self, stream: Stream, prefix: bytes, size: int) -> None:
        """A payload of `size` bytes stands behind the gap that `payload_room` left; `prefix` fills the gap."""
        self._outbox.commit(prefix, size)
        charged = len(prefix) + size - 9
        stream.send_window -= charged
        self.send_window -= charged
        self._moved = True

    def ping(self, payload: bytes) -> None:
        self._outbox.add_control(frames.ping_frame(payload, 0))

    def goaway(self, code: int, text: str) -> None:
        """Announce that we leave; streams that exist may end in peace."""
        last = frames.LARGEST_WINDOW_BYTES if code == frames.NO_ERROR else self._highest_peer_stream
        self._outbox.add_control(frames.goaway_frame(last, code, text.encode()[:256]))

    def _fail(self, violation: ProtocolViolation) -> None:
        if self.failure is None:
            self.failure = violation
            debug = violation.message.encode()[:256]
            self._outbox.add_control(frames.goaway_frame(self._highest_peer_stream, violation.code, debug))

    def pending(self) -> memoryview | None:
        return self._outbox.pending()

    def sent(self, count: int) -> None:
        self._outbox.sent(count)

    def has_pending(self) -> bool:
        return not self._outbox.is_empty()

    def queued_bytes(self) -> int:
        return self._outbox.data_bytes() + self._outbox.control_bytes()

    def after_flush(self) -> None:
        """Room came back: messages that did not fit behind the payload may go now."""
        if self._acks_owed:
            self._send_acks_owed()
        if self._backlogged:
            self._flush_backlogs()

    def _send_acks_owed(self) -> None:
        while self._acks_owed and self._outbox.add_ordered(frames.SETTINGS_ACK):
            self._acks_owed -= 1

    def release(self) -> None:
        self._outbox.release()


def _end_frame(stream: Stream) -> bytes:
    return frames.frame_header(0, frames.DATA, frames.END_STREAM, stream.stream_id)
