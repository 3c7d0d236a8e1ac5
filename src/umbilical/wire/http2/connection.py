"""One HTTP/2 connection, client or server side, without I/O.

Bytes in: `receive_room`, `received`, then `next_event` until NEED_DATA, then `settle`. The details of an event are
attributes of the connection, valid until the next call: no object is made per frame.
Bytes out: `pending` and `sent`; messages by `send_message` and `send_ordered`; payload by `payload_room` and
`payload_written`, received straight into the outgoing frame.
A violation by the peer is an event (FAILED) with a GOAWAY queued; from then on all input is discarded.
"""

from typing import Final

from umbilical.wire.buffer import Block, BlockPool
from umbilical.wire.errors import MisuseError, ProtocolViolation
from umbilical.wire.grpc import PREFIX_BYTES, message_prefix
from umbilical.wire.http2 import flow, frames
from umbilical.wire.http2.headers import MAX_HEADER_LIST_BYTES, HeaderDecoder, HeaderList, encode_headers, has_capitals
from umbilical.wire.http2.inbox import Inbox
from umbilical.wire.http2.outbox import Outbox
from umbilical.wire.http2.streams import CLOSED, HALF_CLOSED_LOCAL, HALF_CLOSED_REMOTE, OPEN, Stream

NEED_DATA: Final = 0
DATA: Final = 1
HEADERS: Final = 2
RESET: Final = 3
WINDOW_OPENED: Final = 4
GOAWAY: Final = 5
PING_ANSWERED: Final = 6
SETTINGS_RECEIVED: Final = 7
FAILED: Final = 8
_NOTHING: Final = -1

CONTROL_RESERVE_BYTES: Final = 4_096
"""Part of every send window that payload leaves alone, so that dials and closes find room beside bulk data (H7)."""
SMALLEST_PAYLOAD_BYTES: Final = 512
"""A nearly closed window is not worth a frame: better wait for the credit that is on its way."""
MAX_CONTROL_BYTES: Final = 1024 * 1024
"""Control frames that a peer makes us queue but does not read: past this it is flooding."""
MAX_BACKLOG_BYTES: Final = 4 * 1024 * 1024
"""Control packets that wait for window on one stream."""
MAX_HEADER_FRAMES: Final = 32
"""HEADERS and CONTINUATION frames of one block."""


class Profile:
    """What one side of a connection advertises."""

    def __init__(
        self,
        *,
        frame_bytes: int = frames.DEFAULT_FRAME_BYTES,
        stream_window_bytes: int = 1024 * 1024,
        connection_window_bytes: int = 16 * 1024 * 1024,
        max_streams: int = 1_000,
        credits_on_arrival: bool = False,
    ) -> None:
        self.frame_bytes: Final = frame_bytes
        self.stream_window_bytes: Final = stream_window_bytes
        self.connection_window_bytes: Final = connection_window_bytes
        self.max_streams: Final = max_streams
        self.credits_on_arrival: Final = credits_on_arrival
        """Streams are credited as soon as bytes arrive; else the shell calls `credit` when it has dealt with them."""


class Connection:
    def __init__(self, is_client: bool, profile: Profile, pool: BlockPool, block: Block, shared_block: bool) -> None:
        if block.size < profile.frame_bytes + frames.FRAME_HEADER_BYTES:
            raise MisuseError(f"a receive block of {block.size} bytes cannot hold a frame of {profile.frame_bytes}")
        self._is_client: Final = is_client
        self._profile: Final = profile
        self._inbox: Final = Inbox(block, shared_block)
        self._outbox: Final = Outbox(pool)
        self.streams: Final[dict[int, Stream]] = {}
        self.stream: Stream | None = None
        self.data: Final = self._inbox.data
        self.view: Final = self._inbox.view
        self.start = 0
        self.end = 0
        self.end_stream = False
        self.headers: HeaderList = []
        self.code = 0
        self.text = ""
        self.last_stream_id = 0
        self.failure: ProtocolViolation | None = None
        self._failure_told = False
        self.send_window = frames.DEFAULT_WINDOW_BYTES
        self._receive_window = frames.DEFAULT_WINDOW_BYTES
        self._uncredited = 0
        self._peer_frame_bytes = frames.DEFAULT_FRAME_BYTES
        self._peer_stream_window = frames.DEFAULT_WINDOW_BYTES
        self._reserve = CONTROL_RESERVE_BYTES
        self._table_update = b""
        self._decoder: Final = HeaderDecoder()
        self._block = bytearray()
        self._block_stream = 0
        self._block_flags = 0
        self._block_frames = 0
        self._preface_left = b"" if is_client else frames.PREFACE
        self._settings_seen = False
        self._acks_owed = 0
        self._highest_peer_stream = 0
        self._next_own_stream = 1
        self._backlogged: dict[int, Stream] = {}
        self._now = 0.0
        self._moved = False
        """Payload has moved since the last ping."""
        self._credit_connection_at: Final = profile.connection_window_bytes >> 2
        self._credit_stream_at: Final = profile.stream_window_bytes >> 2
        self._largest_frame: Final = profile.frame_bytes
        self._credits_on_arrival: Final = profile.credits_on_arrival
        self._pings: Final = flow.Allowance(flow.PING_BURST, flow.PINGS_PER_SECOND)
        self._settings: Final = flow.Allowance(flow.SETTINGS_BURST, flow.SETTINGS_PER_SECOND)
        self._resets: Final = flow.Allowance(flow.RESET_BURST, flow.RESETS_PER_SECOND)
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
            self._receive_window = profile.connection_window_bytes

    # ------------------------------------------------------------------ bytes in

    def receive_room(self) -> memoryview:
        return self._inbox.room()

    def received(self, count: int, now: float) -> None:
        self._inbox.end += count
        self._now = now

    def settle(self) -> None:
        self._inbox.settle()

    def next_event(self) -> int:
        """Consume frames up to the next one that matters to the shell."""
        if self.failure is not None:
            self._inbox.start = self._inbox.end
            return NEED_DATA if self._failure_told else self._tell_failure(self.failure)
        while True:
            try:
                return self._next_event()
            except ProtocolViolation as violation:
                event = self._on_violation(violation)
                if event != _NOTHING:
                    return event

    def _on_violation(self, violation: ProtocolViolation) -> int:
        if violation.stream_id == 0:
            self._fail(violation)
            return self._tell_failure(violation)
        stream = self.streams.get(violation.stream_id)
        if stream is None:
            return _NOTHING  # we had forgotten it already
        # Making us reset is as cheap for the peer as resetting, and is counted alike (CVE-2025-8671).
        if not self._resets.spend(self._now):
            return self._on_violation(_reset_flood())
        self._send_behind_payload(frames.reset_frame(stream.stream_id, violation.code))
        self._forget(stream)
        self.stream, self.code, self.text = stream, violation.code, violation.message
        return RESET

    def _fail(self, violation: ProtocolViolation) -> None:
        if self.failure is None:
            self.failure = violation
            debug = violation.message.encode()[:256]
            self._outbox.add_control(frames.goaway_frame(self._highest_peer_stream, violation.code, debug))

    def _tell_failure(self, failure: ProtocolViolation) -> int:
        self._failure_told = True
        self._inbox.start = self._inbox.end
        self.code, self.text = failure.code, failure.message
        return FAILED

    def _next_event(self) -> int:
        inbox = self._inbox
        data = self.data
        if self._preface_left:
            self._match_preface()
        while inbox.end - inbox.start >= 9 and not self._preface_left:
            position = inbox.start + 9
            high, low, kind, flags, stream_id = frames.HEADER.unpack_from(data, inbox.start)
            length = high << 8 | low
            if length > self._largest_frame:
                raise ProtocolViolation(
                    frames.FRAME_SIZE_ERROR, f"frame of {length} bytes, at most {self._largest_frame} allowed"
                )
            end = position + length
            if end > inbox.end:
                return NEED_DATA
            inbox.start = end
            stream_id &= 0x7FFFFFFF
            if kind == frames.DATA and self._block_stream == 0 and self._settings_seen:
                event = self._on_data(stream_id, flags, position, end)
            else:
                event = self._on_frame(kind, flags, stream_id, position, end)
            if event != _NOTHING:
                return event
        return NEED_DATA

    def _match_preface(self) -> None:
        inbox = self._inbox
        count = min(len(self._preface_left), inbox.end - inbox.start)
        got = bytes(self.view[inbox.start : inbox.start + count])
        if got != self._preface_left[:count]:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "not an HTTP/2 client: connection preface missing")
        inbox.start += count
        self._preface_left = self._preface_left[count:]

    def _on_frame(self, kind: int, flags: int, stream_id: int, start: int, end: int) -> int:
        if self._block_stream and (kind != frames.CONTINUATION or stream_id != self._block_stream):
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "a header block was interrupted by another frame")
        if not self._settings_seen and kind != frames.SETTINGS:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "the first frame must be SETTINGS")
        if kind == frames.WINDOW_UPDATE:
            return self._on_window_update(stream_id, start, end)
        if kind == frames.PING:
            return self._on_ping(flags, stream_id, start, end)
        if kind == frames.HEADERS:
            return self._on_headers(flags, stream_id, start, end)
        if kind == frames.CONTINUATION:
            return self._on_continuation(flags, stream_id, start, end)
        if kind == frames.RST_STREAM:
            return self._on_reset(stream_id, start, end)
        if kind == frames.SETTINGS:
            return self._on_settings(flags, stream_id, start, end)
        if kind == frames.GOAWAY:
            return self._on_goaway(stream_id, start, end)
        if kind == frames.PRIORITY:
            self._check_priority(stream_id, start, end)
        if kind == frames.PUSH_PROMISE:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "PUSH_PROMISE was never allowed")
        return _NOTHING  # PRIORITY carries nothing for us; unknown types must be ignored: RFC 9113 section 4.1

    def _on_data(self, stream_id: int, flags: int, start: int, end: int) -> int:
        size = end - start  # whole payload, padding included: RFC 9113 section 6.1
        self._receive_window -= size
        if self._receive_window < 0:
            raise ProtocolViolation(frames.FLOW_CONTROL_ERROR, "connection window overrun")
        # Credit on arrival: a tunnel whose reader is slow must not hold the window that all tunnels share.
        self._uncredited += size
        if self._uncredited >= self._credit_connection_at:
            self._outbox.add_control(frames.window_update_frame(0, self._uncredited))
            self._receive_window += self._uncredited
            self._uncredited = 0
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_known(stream_id, "DATA")
            return _NOTHING  # it was closed on our side; the peer did not know yet
        if stream.state > HALF_CLOSED_LOCAL:
            raise ProtocolViolation(frames.STREAM_CLOSED, f"stream {stream_id}: DATA after END_STREAM", stream_id)
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise ProtocolViolation(frames.FLOW_CONTROL_ERROR, f"stream {stream_id}: window overrun", stream_id)
        self.end_stream = False
        if flags & (frames.PADDED | frames.END_STREAM):
            start, end = self._unpad(flags, start, end)
            if flags & frames.END_STREAM:
                self.end_stream = True
                self._ended_remote(stream)
            if not self._credits_on_arrival:
                self.credit(stream, size - (end - start))
        if self._credits_on_arrival:
            stream.uncredited += size
            if stream.uncredited >= self._credit_stream_at and not stream.credit_held:
                self.credit(stream, 0)
        if start < end:
            self._moved = True
        elif not flags & frames.END_STREAM and not self._spend_ping():
            raise ProtocolViolation(frames.ENHANCE_YOUR_CALM, "flood of empty DATA frames")
        self.stream = stream
        self.start = start
        self.end = end
        return DATA

    def _unpad(self, flags: int, start: int, end: int) -> tuple[int, int]:
        if flags & frames.PADDED:
            if start == end or self.data[start] > end - start - 1:
                raise ProtocolViolation(frames.PROTOCOL_ERROR, "padding longer than its frame")
            return start + 1, end - self.data[start]
        return start, end

    def _check_known(self, stream_id: int, what: str) -> None:
        """A frame on a stream that we forgot is late; one on a stream that never was is a fault."""
        own = (stream_id & 1 == 1) == self._is_client
        limit = self._next_own_stream - 2 if own else self._highest_peer_stream
        if stream_id == 0 or stream_id > limit:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, f"{what} on idle stream {stream_id}")

    def _on_headers(self, flags: int, stream_id: int, start: int, end: int) -> int:
        start, end = self._unpad(flags, start, end)
        if flags & frames.HAS_PRIORITY:
            start += 5
            if start > end:
                raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "HEADERS too short for its priority")
        if stream_id == 0:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "HEADERS on stream 0")
        self._block_flags = flags
        self._block_stream = stream_id
        self._block_frames = 0
        return self._on_header_fragment(flags, start, end)

    def _on_continuation(self, flags: int, stream_id: int, start: int, end: int) -> int:
        if self._block_stream == 0:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, f"CONTINUATION on stream {stream_id} without HEADERS")
        return self._on_header_fragment(flags, start, end)

    def _on_header_fragment(self, flags: int, start: int, end: int) -> int:
        self._block += self.view[start:end]
        self._block_frames += 1
        if len(self._block) > MAX_HEADER_LIST_BYTES or self._block_frames > MAX_HEADER_FRAMES:
            raise ProtocolViolation(frames.ENHANCE_YOUR_CALM, "header block too large")
        if not flags & frames.END_HEADERS:
            return _NOTHING
        stream_id, self._block_stream = self._block_stream, 0
        block = bytes(self._block)
        self._block.clear()
        return self._on_header_list(stream_id, self._decoder.decode(block))

    def _on_header_list(self, stream_id: int, headers: HeaderList) -> int:
        stream = self.streams.get(stream_id)
        self.end_stream = self._block_flags & frames.END_STREAM != 0
        if stream is None:
            stream = self._open_by_peer(stream_id, headers)
            if stream is None:
                return _NOTHING
        else:
            self._check_more_headers(stream, headers)
        if self.end_stream:
            self._ended_remote(stream)
        self.stream = stream
        self.headers = headers
        return HEADERS

    def _check_more_headers(self, stream: Stream, headers: HeaderList) -> None:
        """Judge headers of a stream that is there: of a response, or trailers."""
        fault = ""
        if not stream.can_receive():
            fault = "HEADERS after END_STREAM"
        elif not self._is_client and not self.end_stream:
            fault = "trailers without END_STREAM"
        elif has_capitals(headers):
            fault = "header name with capitals"
        if fault:
            code = frames.PROTOCOL_ERROR if stream.can_receive() else frames.STREAM_CLOSED
            raise ProtocolViolation(code, f"stream {stream.stream_id}: {fault}", stream.stream_id)

    def _open_by_peer(self, stream_id: int, headers: HeaderList) -> Stream | None:
        if self._is_client or stream_id & 1 == 0 or stream_id <= self._highest_peer_stream:
            self._check_known(stream_id, "HEADERS")
            return None  # trailers of a stream that we reset
        self._highest_peer_stream = stream_id
        malformed = has_capitals(headers)
        if malformed or len(self.streams) >= self._profile.max_streams:
            code = frames.PROTOCOL_ERROR if malformed else frames.REFUSED_STREAM
            self._outbox.add_control(frames.reset_frame(stream_id, code))
            self._spend_reset()
            return None
        stream = Stream(stream_id, self._peer_stream_window, self._profile.stream_window_bytes)
        self.streams[stream_id] = stream
        return stream

    def _on_reset(self, stream_id: int, start: int, end: int) -> int:
        if end - start != 4:
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "RST_STREAM of a wrong size")
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_known(stream_id, "RST_STREAM")
            return _NOTHING
        if not self._is_client and not stream.answered:
            self._spend_reset()
        self._forget(stream)
        self.stream = stream
        self.code = frames.parse_u32(self.data, start)
        self.text = "reset by the peer"
        return RESET

    def _spend_reset(self) -> None:
        if not self._resets.spend(self._now):
            raise _reset_flood()

    def _on_settings(self, flags: int, stream_id: int, start: int, end: int) -> int:
        _check_connection_frame("SETTINGS", stream_id)
        if (end - start) % 6 or (flags & frames.ACK and end > start):
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
        if flags & frames.ACK:
            return _NOTHING
        if not self._settings.spend(self._now):
            raise ProtocolViolation(frames.ENHANCE_YOUR_CALM, "flood of SETTINGS")
        window, frame_bytes = self._peer_stream_window, self._peer_frame_bytes
        for number, value in frames.parse_settings(bytes(self.view[start:end])):
            self._apply_setting(number, value)
        if self._peer_stream_window < window or self._peer_frame_bytes < frame_bytes:
            self._acks_owed += 1  # what is queued was made under wider settings and must reach the peer before
            self._send_acks_owed()
        else:
            self._outbox.add_control(frames.SETTINGS_ACK)
        self._settings_seen = True
        self._flush_backlogs()
        return SETTINGS_RECEIVED

    def _send_acks_owed(self) -> None:
        while self._acks_owed and self._outbox.add_ordered(frames.SETTINGS_ACK):
            self._acks_owed -= 1

    def _apply_setting(self, number: int, value: int) -> None:
        if number == frames.INITIAL_WINDOW_SIZE:
            if value > frames.LARGEST_WINDOW_BYTES:
                raise ProtocolViolation(frames.FLOW_CONTROL_ERROR, f"initial window of {value} bytes")
            for stream in self.streams.values():
                stream.send_window += value - self._peer_stream_window
                if stream.send_window > frames.LARGEST_WINDOW_BYTES:
                    raise ProtocolViolation(frames.FLOW_CONTROL_ERROR, f"stream {stream.stream_id}: window too large")
            self._peer_stream_window = value
            self._reserve = CONTROL_RESERVE_BYTES if value >= frames.DEFAULT_FRAME_BYTES else 0
        elif number == frames.MAX_FRAME_SIZE:
            if not frames.DEFAULT_FRAME_BYTES <= value <= frames.LARGEST_FRAME_BYTES:
                raise ProtocolViolation(frames.PROTOCOL_ERROR, f"maximum frame size of {value} bytes")
            self._peer_frame_bytes = value
        elif number == frames.ENABLE_PUSH:
            if value > 1:
                raise ProtocolViolation(frames.PROTOCOL_ERROR, f"ENABLE_PUSH of {value}")
        elif number == frames.HEADER_TABLE_SIZE and value < 4096:
            self._table_update = b"\x20"  # announce a table of size 0, which is all we use: RFC 7541 section 4.2

    def _on_ping(self, flags: int, stream_id: int, start: int, end: int) -> int:
        _check_connection_frame("PING", stream_id)
        if end - start != 8:
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "PING of a wrong size")
        payload = bytes(self.view[start:end])
        if flags & frames.ACK:
            self.text = payload.hex()
            return PING_ANSWERED
        if not self._spend_ping() or self._outbox.control_bytes() > MAX_CONTROL_BYTES:
            raise ProtocolViolation(frames.ENHANCE_YOUR_CALM, "too_many_pings")
        self._outbox.add_control(frames.ping_frame(payload, frames.ACK))
        return _NOTHING

    def _spend_ping(self) -> bool:
        if self._moved:
            # grpc-go measures each round trip in which data moved with a ping: those are welcome.
            self._moved = False
            self._pings.refill()
        return self._pings.spend(self._now)

    def _on_goaway(self, stream_id: int, start: int, end: int) -> int:
        _check_connection_frame("GOAWAY", stream_id)
        if end - start < 8:
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "GOAWAY of a wrong size")
        self.last_stream_id = frames.parse_u32(self.data, start) & 0x7FFFFFFF
        self.code = frames.parse_u32(self.data, start + 4)
        self.text = bytes(self.view[start + 8 : min(end, start + 264)]).decode("utf-8", "replace")
        return GOAWAY

    def _check_priority(self, stream_id: int, start: int, end: int) -> None:
        if stream_id == 0:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "PRIORITY on stream 0")
        if end - start != 5:
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "PRIORITY of a wrong size", stream_id)

    def _on_window_update(self, stream_id: int, start: int, end: int) -> int:
        if end - start != 4:
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size")
        stream = self.streams.get(stream_id)
        if stream is None and stream_id:
            self._check_known(stream_id, "WINDOW_UPDATE")
            return _NOTHING
        increment = frames.parse_u32(self.data, start) & 0x7FFFFFFF
        if increment == 0:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "WINDOW_UPDATE of 0", stream_id)
        if stream is None:
            self.send_window += increment
            window = self.send_window
        else:
            stream.send_window += increment
            window = stream.send_window
        if window > frames.LARGEST_WINDOW_BYTES:
            raise ProtocolViolation(frames.FLOW_CONTROL_ERROR, f"stream {stream_id}: window too large", stream_id)
        self.stream = stream
        if self._backlogged:
            self._flush_backlogs()
        return WINDOW_OPENED

    def credit(self, stream: Stream, count: int) -> None:
        """So many payload bytes of this stream have been dealt with: the peer may send as many more."""
        stream.uncredited += count
        if stream.uncredited >= self._credit_stream_at and stream.can_receive():
            self._outbox.add_control(frames.window_update_frame(stream.stream_id, stream.uncredited))
            stream.receive_window += stream.uncredited
            stream.uncredited = 0

    def hold_credit(self, stream: Stream) -> None:
        """Give this stream no more credit, for connections that credit on arrival."""
        stream.credit_held = True

    def release_credit(self, stream: Stream) -> None:
        stream.credit_held = False
        self.credit(stream, 0)

    # ------------------------------------------------------------------ streams

    def open_stream(self, headers: HeaderList) -> Stream:
        """Client: begin a call."""
        if not self._is_client:
            raise MisuseError("a server opens no streams")
        if self._next_own_stream > frames.LARGEST_STREAM_ID:
            raise MisuseError("the stream numbers of this connection are used up")
        stream = Stream(self._next_own_stream, self._peer_stream_window, self._profile.stream_window_bytes)
        self._next_own_stream += 2
        self.streams[stream.stream_id] = stream
        self._send_headers(stream, headers, end_stream=False)
        return stream

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
        """Client: no more messages follow."""
        if not stream.can_send():
            return
        finish = frames.frame_header(0, frames.DATA, frames.END_STREAM, stream.stream_id)
        if stream.backlog or not self._outbox.add_ordered(finish):
            stream.finish = finish
            self._backlogged[stream.stream_id] = stream
            return
        self._ended_local(stream)

    def _ended_local(self, stream: Stream) -> None:
        stream.end_local()
        if stream.state == CLOSED:
            self._forget(stream)

    def reset(self, stream: Stream, code: int) -> None:
        if stream.state != CLOSED:
            self._send_behind_payload(frames.reset_frame(stream.stream_id, code))
            self._forget(stream)

    def _send_behind_payload(self, frame: bytes) -> None:
        if not self._outbox.add_ordered(frame):
            self._outbox.add_control(frame)

    def _ended_remote(self, stream: Stream) -> None:
        stream.end_remote()
        if stream.state == CLOSED:
            self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        stream.state = CLOSED
        stream.backlog.clear()
        self.streams.pop(stream.stream_id, None)
        self._backlogged.pop(stream.stream_id, None)

    # ------------------------------------------------------------------ messages and payload out

    def send_message(self, stream: Stream, message: bytes) -> None:
        """Queue a control packet: ahead of payload, unless the window is shut."""
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
        body = message_prefix(len(message)) + message
        size = len(body)
        if stream.backlog or size > stream.send_window or size > self.send_window:
            self._postpone(stream, body)
            self._flush_backlog(stream)
            return b""
        self._charge(stream, size)
        return self._data_frames(stream, body)

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

    # ------------------------------------------------------------------ the connection as a whole

    def ping(self, payload: bytes) -> None:
        self._outbox.add_control(frames.ping_frame(payload, 0))

    def goaway(self, code: int, text: str) -> None:
        """Announce that we leave; streams that exist may end in peace."""
        last = frames.LARGEST_WINDOW_BYTES if code == frames.NO_ERROR else self._highest_peer_stream
        self._outbox.add_control(frames.goaway_frame(last, code, text.encode()[:256]))

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

    def release(self) -> None:
        self._outbox.release()


def _reset_flood() -> ProtocolViolation:
    return ProtocolViolation(frames.ENHANCE_YOUR_CALM, "streams are opened only to be reset")


def _check_connection_frame(name: str, stream_id: int) -> None:
    if stream_id:
        raise ProtocolViolation(frames.PROTOCOL_ERROR, f"{name} on stream {stream_id}")
