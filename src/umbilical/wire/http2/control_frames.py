"""Frames that steer: SETTINGS, PING, GOAWAY, WINDOW_UPDATE, RST_STREAM and PRIORITY, and how many of them are too many.

They carry nothing for a tunnel, but change what the sending half may do.
"""

from typing import Final

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import Block, BlockPool, Inbox
from umbilical.wire.http2.events import GOAWAY, NOTHING, PING_ANSWERED, RESET, SETTINGS_RECEIVED, WINDOW_OPENED
from umbilical.wire.http2.frames import Profile
from umbilical.wire.http2.sending import CONTROL_RESERVE_BYTES, SendingHalf
from umbilical.wire.http2.streams import Stream

PING_BURST: Final = 1_000
PINGS_PER_SECOND: Final = 50.0
SETTINGS_BURST: Final = 100
SETTINGS_PER_SECOND: Final = 1.0
RESET_BURST: Final = 1_000
"""Streams reset before we answered them (CVE-2023-44487). A tunnel that was served and then reset costs nothing
here, so thousands of dials a second never drain it."""
RESETS_PER_SECOND: Final = 200.0
REFILL_PER_FRAME: Final = 4
"""grpc-go measures with at most one ping per DATA frame that it gets."""


class Allowance:
    """A token bucket; the clock is the caller's."""

    def __init__(self, burst: int, per_second: float) -> None:
        self._burst: Final = float(burst)
        self._per_second: Final = per_second
        self._left = float(burst)
        self._seen_at = 0.0

    def spend(self, now: float) -> bool:
        """Take one; False when the peer has overdrawn."""
        if now > self._seen_at:
            self._left = min(self._burst, self._left + (now - self._seen_at) * self._per_second)
            self._seen_at = now
        self._left -= 1.0
        return self._left >= 0.0

    def refill(self) -> None:
        """A frame of real traffic moved: pings that measure it (grpc-go sends one per round trip) are welcome."""
        self._left = min(self._burst, self._left + REFILL_PER_FRAME)


MAX_CONTROL_BYTES: Final = 1024 * 1024
"""Control frames that a peer makes us queue but does not read: past this it is flooding."""


class ControlFrames(SendingHalf):
    def __init__(self, is_client: bool, profile: Profile, pool: BlockPool, block: Block, shared_block: bool) -> None:
        super().__init__(is_client, profile, pool)
        self._inbox: Final = Inbox(block, shared_block)
        self.data: Final = self._inbox.data
        self.view: Final = self._inbox.view
        self.stream: Stream | None = None
        self.code = 0
        self.text = ""
        self.last_stream_id = 0
        self._settings_seen = False
        self._now = 0.0
        self._pings: Final = Allowance(PING_BURST, PINGS_PER_SECOND)
        self._settings: Final = Allowance(SETTINGS_BURST, SETTINGS_PER_SECOND)
        self._resets: Final = Allowance(RESET_BURST, RESETS_PER_SECOND)

    def _on_settings(self, flags: int, stream_id: int, start: int, end: int) -> int:
        _check_connection_frame("SETTINGS", stream_id)
        if (end - start) % 6 or (flags & frames.ACK and end > start):
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
        if flags & frames.ACK:
            return NOTHING
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
        elif number == frames.MAX_CONCURRENT_STREAMS:
            self._peer_max_streams = value
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
        return NOTHING

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

    def _on_window_update(self, stream_id: int, start: int, end: int) -> int:
        if end - start != 4:
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size")
        stream = self.streams.get(stream_id)
        if stream is None and stream_id:
            self._check_known(stream_id, "WINDOW_UPDATE")
            return NOTHING
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

    def _on_reset(self, stream_id: int, start: int, end: int) -> int:
        if end - start != 4:
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "RST_STREAM of a wrong size")
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_known(stream_id, "RST_STREAM")
            return NOTHING
        if not self._is_client and not stream.answered:
            self._spend_reset()
        self._forget(stream)
        self.stream = stream
        self.code = frames.parse_u32(self.data, start)
        self.text = "reset by the peer"
        return RESET

    def _spend_reset(self) -> None:
        if not self._resets.spend(self._now):
            raise reset_flood()

    def _check_priority(self, stream_id: int, start: int, end: int) -> None:
        if stream_id == 0:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "PRIORITY on stream 0")
        if end - start != 5:
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "PRIORITY of a wrong size", stream_id)

    def _check_known(self, stream_id: int, what: str) -> None:
        """A frame on a stream that we forgot is late; one on a stream that never was is a fault."""
        own = (stream_id & 1 == 1) == self._is_client
        limit = self._next_own_stream - 2 if own else self._highest_peer_stream
        if stream_id == 0 or stream_id > limit:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, f"{what} on idle stream {stream_id}")


def reset_flood() -> ProtocolViolation:
    return ProtocolViolation(frames.ENHANCE_YOUR_CALM, "streams are opened only to be reset")


def _check_connection_frame(name: str, stream_id: int) -> None:
    if stream_id:
        raise ProtocolViolation(frames.PROTOCOL_ERROR, f"{name} on stream {stream_id}")
