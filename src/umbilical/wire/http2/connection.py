"""One HTTP/2 connection, client or server side, without I/O: the receiving half, which owns the sending half.

Bytes in: `receive_room`, `received`, then `next_event` until None, then `settle`.
Bytes out: `outbox.pending` and `outbox.sent`, then `sender.after_flush`.
Messages and payload: `sender`. Credit for the peer: `credit` and `enlarge` here.
If the peer violates the protocol, a GOAWAY is queued, and all further input is discarded.
"""

from typing import Final

from umbilical.wire.errors import MisuseError, ProtocolViolation
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import Block, BlockPool, Inbox, Outbox
from umbilical.wire.http2.control_frames import ControlFrames
from umbilical.wire.http2.events import ConnectionEvent, ConnectionFailed, DataReceived, HeadersReceived, StreamReset
from umbilical.wire.http2.flood_guard import FloodGuard
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.header_rules import (
    content_length,
    is_informational,
    request_fault,
    response_fault,
    trailers_fault,
)
from umbilical.wire.http2.headers import MAX_HEADER_LIST_BYTES, HeaderDecoder, HeaderList
from umbilical.wire.http2.sender import Sender
from umbilical.wire.http2.streams import (
    CLOSED,
    HALF_CLOSED_LOCAL,
    NO_HEADERS,
    NO_LENGTH,
    Stream,
    StreamTable,
    credit_step,
)

MAX_HEADER_FRAMES: Final = 32
"""HEADERS and CONTINUATION frames of one block."""
UNLIMITED_FRAMES: Final = 1 << 30


class Connection:
    def __init__(
        self,
        is_client: bool,
        limits: ConnectionLimits,
        pool: BlockPool,
        block: Block,
        shared_block: bool,
        may_own_block: bool = False,
    ) -> None:
        if block.size < limits.frame_bytes + frames.FRAME_HEADER_BYTES:
            raise MisuseError(f"a receive block of {block.size} bytes cannot hold a frame of {limits.frame_bytes}")
        self.outbox: Final = Outbox(pool)
        self.streams: Final = StreamTable(is_client)
        self._floods: Final = FloodGuard(limits.unserved_streams)
        self.sender: Final = Sender(limits, self.outbox, self.streams, self._floods)
        self._inbox: Final = Inbox(block, shared_block, may_own_block)
        self._control: Final = ControlFrames(self._inbox, self.streams, self.sender, self._floods)
        self._data_received: Final = DataReceived(block)
        self._limits: Final = limits
        self._largest_frame: Final = limits.frame_bytes
        self.frames_left = UNLIMITED_FRAMES
        """How many more frames `next_event` consumes before it returns None, until `received` is called again."""
        self._settings_seen = False
        self._failure_reported = False
        # Our first frames can raise the window above the default, but not lower it.
        self._receive_window = max(limits.connection_window_bytes, frames.DEFAULT_WINDOW_BYTES)
        self._window = self._receive_window
        self._credit_step = credit_step(self._window)
        self._uncredited = 0
        self._decoder: Final = HeaderDecoder()
        self._block: Final = bytearray()
        self._block_stream = 0
        self._block_flags = 0
        self._block_frames = 0
        self._preface_left = b"" if is_client else frames.PREFACE

    def receive_room(self) -> memoryview:
        return self._inbox.room()

    def received(self, count: int, now: float, frames_left: int = UNLIMITED_FRAMES) -> None:
        """So many bytes came, perhaps none: after `frames_left` frames the rest waits for the next call."""
        self._inbox.end += count
        self._floods.now = now
        self.frames_left = frames_left

    def settle(self) -> None:
        self._inbox.settle()

    def next_event(self) -> ConnectionEvent | None:
        """Consume frames up to the next one that the caller must know; None: no complete one is left, or no budget."""
        failure = self.sender.failure
        if failure is not None:
            self._inbox.start = self._inbox.end
            return None if self._failure_reported else self._report_failure(failure)
        while True:
            try:
                return self._next_event()
            except ProtocolViolation as violation:
                event = self._on_violation(violation)
                if event is not None:
                    return event

    def _on_violation(self, violation: ProtocolViolation) -> ConnectionEvent | None:
        if violation.stream_id == 0:
            return self._fail(violation)
        stream = self.streams.by_id.get(violation.stream_id)
        if stream is None:
            return self._fail(violation)  # there is no stream to reset
        stream.served = False  # so that it counts: a frame that makes us reset costs the peer as little as a reset
        self.sender.reset(stream, violation.code)
        return StreamReset(stream, violation.code, violation.message)

    def _fail(self, violation: ProtocolViolation) -> ConnectionFailed:
        self.sender.fail(violation)
        return self._report_failure(violation)

    def _report_failure(self, failure: ProtocolViolation) -> ConnectionFailed:
        self._failure_reported = True
        self._inbox.start = self._inbox.end
        return ConnectionFailed(failure.code, failure.message)

    def _next_event(self) -> ConnectionEvent | None:
        inbox = self._inbox
        data = inbox.data
        if self._preface_left:
            self._match_preface()
        while inbox.end - inbox.start >= 9 and not self._preface_left and self.frames_left > 0:
            position = inbox.start + 9
            high, low, kind, flags, stream_id = frames.HEADER.unpack_from(data, inbox.start)
            length = high << 8 | low
            if length > self._largest_frame:
                raise ProtocolViolation(
                    frames.FRAME_SIZE_ERROR, f"frame of {length} bytes, at most {self._largest_frame} allowed"
                )
            end = position + length
            if end > inbox.end:
                return None
            inbox.start = end
            self.frames_left -= 1
            stream_id &= 0x7FFFFFFF
            if kind == frames.DATA and self._block_stream == 0 and self._settings_seen:
                event = self._on_data(stream_id, flags, position, end)
            else:
                event = self._on_frame(kind, flags, stream_id, position, end)
            if event is not None:
                return event
        return None

    def _match_preface(self) -> None:
        inbox = self._inbox
        count = min(len(self._preface_left), inbox.end - inbox.start)
        got = bytes(inbox.view[inbox.start : inbox.start + count])
        if got != self._preface_left[:count]:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "not an HTTP/2 client: connection preface missing")
        inbox.start += count
        self._preface_left = self._preface_left[count:]

    def _on_frame(self, kind: int, flags: int, stream_id: int, start: int, end: int) -> ConnectionEvent | None:
        if self._block_stream and (kind != frames.CONTINUATION or stream_id != self._block_stream):
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "a header block was interrupted by another frame")
        if not self._settings_seen and kind != frames.SETTINGS:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "the first frame must be SETTINGS")
        if kind == frames.WINDOW_UPDATE:
            return self._control.on_window_update(stream_id, start, end)
        if kind == frames.PING:
            return self._control.on_ping(flags, stream_id, start, end)
        if kind == frames.HEADERS:
            return self._on_headers(flags, stream_id, start, end)
        if kind == frames.CONTINUATION:
            return self._on_continuation(flags, stream_id, start, end)
        if kind == frames.RST_STREAM:
            return self._control.on_reset(stream_id, start, end)
        if kind == frames.SETTINGS:
            event = self._control.on_settings(flags, stream_id, start, end)
            if event is not None:
                self._settings_seen = True
            return event
        if kind == frames.GOAWAY:
            return self._control.on_goaway(stream_id, start, end)
        if kind == frames.PRIORITY:
            self._control.on_priority(stream_id, start, end)
        elif kind == frames.PUSH_PROMISE:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "PUSH_PROMISE received, but push is disabled")
        else:
            self._floods.count_control("unknown")  # they must be ignored: RFC 9113 section 4.1
        return None

    def _on_data(self, stream_id: int, flags: int, start: int, end: int) -> ConnectionEvent | None:
        size = end - start  # whole payload, padding included: RFC 9113 section 6.1
        self._receive_window -= size
        if self._receive_window < 0:
            raise ProtocolViolation(frames.FLOW_CONTROL_ERROR, "connection window overrun")
        # Credit on arrival: a tunnel with a slow reader must not use up the window that all tunnels share.
        self._uncredited += size
        if self._uncredited >= self._credit_step:
            self.outbox.add_control(frames.window_update_frame(0, self._uncredited))
            self._receive_window += self._uncredited
            self._uncredited = 0
        if flags & frames.PADDED:
            start, end = self._unpad(start, end)
        stream = self.streams.by_id.get(stream_id)
        if stream is None:
            self.streams.check_closed(stream_id, "DATA")
            return None  # we closed it, and the peer did not know yet
        if stream.state > HALF_CLOSED_LOCAL:
            raise ProtocolViolation(frames.STREAM_CLOSED, f"stream {stream_id}: DATA after END_STREAM", stream_id)
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise ProtocolViolation(frames.FLOW_CONTROL_ERROR, f"stream {stream_id}: window overrun", stream_id)
        if stream.content_left != NO_LENGTH:
            self._check_data(stream, end - start, flags & frames.END_STREAM != 0)
        received = self._data_received
        received.data, received.view = self._inbox.data, self._inbox.view
        received.end_stream = False
        if flags & (frames.PADDED | frames.END_STREAM):
            if flags & frames.END_STREAM:
                received.end_stream = True
                self._ended_remote(stream)
            if stream.credited_by_caller:
                self.credit(stream, size - (end - start))
        if not stream.credited_by_caller:
            stream.uncredited += size
            if stream.uncredited >= stream.credit_step and not stream.credit_held:
                self.credit(stream, 0)
        if start < end:
            self._floods.payload_frames += 1
        elif not flags & frames.END_STREAM:
            self._floods.count_control("empty DATA")
        received.stream = stream
        received.start = start
        received.end = end
        return received

    def _check_data(self, stream: Stream, size: int, ends: bool) -> None:
        if stream.content_left == NO_HEADERS:
            raise _malformed(stream, "DATA before the response headers")
        stream.content_left -= size
        if stream.content_left < 0 or (ends and stream.content_left):
            stream.content_left = 0
            raise _malformed(stream, "DATA does not match content-length")

    def _unpad(self, start: int, end: int) -> tuple[int, int]:
        data = self._inbox.data
        if start == end or data[start] > end - start - 1:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "padding longer than its frame")
        return start + 1, end - data[start]

    def _on_headers(self, flags: int, stream_id: int, start: int, end: int) -> ConnectionEvent | None:
        if flags & frames.PADDED:
            start, end = self._unpad(start, end)
        if flags & frames.HAS_PRIORITY:
            start += 5
            if start > end:
                raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "HEADERS too short for its priority")
            # A connection error, not one of the stream: the header block must be decoded for those that follow.
            if frames.parse_u32(self._inbox.data, start - 5) & 0x7FFFFFFF == stream_id:
                raise ProtocolViolation(frames.PROTOCOL_ERROR, "a stream that depends on itself")
        if stream_id == 0:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "HEADERS on stream 0")
        self._block_flags = flags
        self._block_stream = stream_id
        self._block_frames = 0
        return self._on_header_fragment(flags, start, end)

    def _on_continuation(self, flags: int, stream_id: int, start: int, end: int) -> ConnectionEvent | None:
        if self._block_stream == 0:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, f"CONTINUATION on stream {stream_id} without HEADERS")
        return self._on_header_fragment(flags, start, end)

    def _on_header_fragment(self, flags: int, start: int, end: int) -> ConnectionEvent | None:
        self._block.extend(self._inbox.view[start:end])
        self._block_frames += 1
        if len(self._block) > MAX_HEADER_LIST_BYTES or self._block_frames > MAX_HEADER_FRAMES:
            raise ProtocolViolation(frames.ENHANCE_YOUR_CALM, "header block too large")
        if not flags & frames.END_HEADERS:
            return None
        stream_id, self._block_stream = self._block_stream, 0
        block = bytes(self._block)
        self._block.clear()
        return self._on_header_list(stream_id, self._decoder.decode(block))

    def _on_header_list(self, stream_id: int, headers: HeaderList) -> ConnectionEvent | None:
        end_stream = self._block_flags & frames.END_STREAM != 0
        stream = self.streams.by_id.get(stream_id)
        if stream is None:
            stream = self._open_by_peer(stream_id, headers, end_stream)
            if stream is None:
                return None
        elif not self._accept_more_headers(stream, headers, end_stream):
            return None
        if end_stream:
            if stream.content_left > 0:
                raise _malformed(stream, "content-length without DATA")
            self._ended_remote(stream)
        return HeadersReceived(stream, headers, end_stream)

    def _accept_more_headers(self, stream: Stream, headers: HeaderList, end_stream: bool) -> bool:
        """Check headers of a stream that exists: of a response, or trailers. False if the caller need not know them."""
        if not stream.can_receive():
            text = f"stream {stream.stream_id}: HEADERS after END_STREAM"
            raise ProtocolViolation(frames.STREAM_CLOSED, text, stream.stream_id)
        if stream.content_left == NO_HEADERS:
            return self._accept_response(stream, headers, end_stream)
        fault = trailers_fault(headers) if end_stream else "trailers without END_STREAM"
        if fault:
            raise _malformed(stream, fault)
        return True

    def _accept_response(self, stream: Stream, headers: HeaderList, end_stream: bool) -> bool:
        fault = response_fault(headers)
        if not fault and is_informational(headers):
            if not end_stream:
                self._floods.count_control("informational HEADERS")
                return False
            fault = "informational response that ends the stream"
        length = content_length(headers)
        if fault or length < NO_LENGTH:
            raise _malformed(stream, fault or "content-length not valid")
        stream.content_left = length
        return True

    def _open_by_peer(self, stream_id: int, headers: HeaderList, end_stream: bool) -> Stream | None:
        if self.streams.is_client or stream_id & 1 == 0 or stream_id <= self.streams.highest_of_peer:
            self.streams.check_closed(stream_id, "HEADERS")
            return None  # trailers of a stream that we reset
        self.streams.highest_of_peer = stream_id
        self.frames_left -= self._floods.charge_unserved()
        self._floods.payload_frames += 1
        length = content_length(headers)
        malformed = request_fault(headers) != "" or length < NO_LENGTH or (end_stream and length > 0)
        if malformed or self.sender.refuses_streams or len(self.streams.by_id) >= self._limits.max_streams:
            code = frames.PROTOCOL_ERROR if malformed else frames.REFUSED_STREAM
            self.sender.answer(frames.reset_frame(stream_id, code))
            self.streams.remember_reset(stream_id)
            self._floods.unserved()
            return None
        stream = self.sender.add_stream(stream_id)
        stream.content_left = length
        return stream

    def expect_stream(self) -> None:
        """Server: the peer will open a stream that we asked for, and that may end before it is used."""
        self._floods.expect_stream()

    def expected_stream_came(self) -> None:
        """Server: such a stream is in use now, or will not be opened."""
        self._floods.expected_stream_came()

    def _ended_remote(self, stream: Stream) -> None:
        stream.end_remote()
        if stream.state == CLOSED:
            self.sender.forget(stream)

    def credit(self, stream: Stream, count: int) -> None:
        """Let the peer send `count` more bytes on this stream; the WINDOW_UPDATE waits for more of it."""
        stream.uncredited += count
        if stream.uncredited >= stream.credit_step and stream.can_receive():
            self.outbox.add_control(frames.window_update_frame(stream.stream_id, stream.uncredited))
            stream.receive_window += stream.uncredited
            stream.uncredited = 0

    def enlarge_connection(self, window: int) -> None:
        """Raise the receive window of the connection to this size."""
        if window > self._window:
            self.outbox.add_control(frames.window_update_frame(0, window - self._window))
            self._receive_window += window - self._window
            self._window = window
            self._credit_step = credit_step(window)

    def enlarge(self, stream: Stream, window: int) -> None:
        """Raise the receive window of a stream to this size; the peer learns it with the next credit."""
        if window > stream.window:
            stream.uncredited += window - stream.window
            stream.window = window
            stream.credit_step = credit_step(window)

    def shrink(self, stream: Stream, window: int) -> None:
        """Lower the receive window of a stream: what is granted stays, and is not renewed until it fits."""
        if window < stream.window:
            stream.uncredited -= stream.window - window
            stream.window = window
            stream.credit_step = credit_step(window)

    def hold_credit(self, stream: Stream) -> None:
        """Stop crediting this stream on arrival."""
        stream.credit_held = True

    def release_credit(self, stream: Stream) -> None:
        stream.credit_held = False
        self.credit(stream, 0)


def _malformed(stream: Stream, fault: str) -> ProtocolViolation:
    return ProtocolViolation(frames.PROTOCOL_ERROR, f"stream {stream.stream_id}: {fault}", stream.stream_id)
