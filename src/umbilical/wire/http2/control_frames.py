"""Receives SETTINGS, PING, GOAWAY, WINDOW_UPDATE, RST_STREAM and PRIORITY.

They carry no payload of a tunnel but change what the sender may do.
"""

from typing import Final

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import Inbox
from umbilical.wire.http2.events import (
    ConnectionEvent,
    GoawayReceived,
    PingAnswered,
    SettingsReceived,
    StreamReset,
    WindowOpened,
)
from umbilical.wire.http2.flood_guard import FloodGuard
from umbilical.wire.http2.sender import Sender
from umbilical.wire.http2.streams import StreamTable


class ControlFrames:
    """Part of a connection. `start` and `end` are positions in its inbox; None: the caller need not know."""

    def __init__(self, inbox: Inbox, streams: StreamTable, sender: Sender, floods: FloodGuard) -> None:
        self._inbox: Final = inbox
        self._streams: Final = streams
        self._sender: Final = sender
        self._floods: Final = floods

    def on_settings(self, flags: int, stream_id: int, start: int, end: int) -> ConnectionEvent | None:
        _check_connection_frame("SETTINGS", stream_id)
        if (end - start) % 6 or (flags & frames.ACK and end > start):
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
        if flags & frames.ACK:
            self._floods.count_control("SETTINGS")
            return None
        self._floods.count_settings()
        self._sender.apply_settings(frames.parse_settings(bytes(self._inbox.view[start:end])))
        return SettingsReceived()

    def on_ping(self, flags: int, stream_id: int, start: int, end: int) -> ConnectionEvent | None:
        _check_connection_frame("PING", stream_id)
        if end - start != 8:
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "PING of a wrong size")
        payload = bytes(self._inbox.view[start:end])
        if flags & frames.ACK:
            return PingAnswered(payload)
        self._floods.count_control("PING")
        self._sender.answer(frames.ping_frame(payload, frames.ACK))
        return None

    def on_goaway(self, stream_id: int, start: int, end: int) -> ConnectionEvent:
        _check_connection_frame("GOAWAY", stream_id)
        if end - start < 8:
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "GOAWAY of a wrong size")
        data = self._inbox.data
        text = bytes(self._inbox.view[start + 8 : min(end, start + 264)]).decode("utf-8", "replace")
        last = frames.parse_u32(data, start) & 0x7FFFFFFF
        self._sender.peer_serves_up_to = min(last, self._sender.peer_serves_up_to)
        return GoawayReceived(last, frames.parse_u32(data, start + 4), text)

    def on_window_update(self, stream_id: int, start: int, end: int) -> ConnectionEvent | None:
        if end - start != 4:
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size")
        self._floods.count_control("WINDOW_UPDATE")
        stream = self._streams.by_id.get(stream_id)
        increment = frames.parse_u32(self._inbox.data, start) & 0x7FFFFFFF
        if increment == 0:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "WINDOW_UPDATE of 0", stream_id)
        if stream is None and stream_id:
            self._streams.check_used(stream_id, "WINDOW_UPDATE")
            return None
        self._sender.open_window(stream, increment)
        return WindowOpened(stream)

    def on_reset(self, stream_id: int, start: int, end: int) -> ConnectionEvent | None:
        if end - start != 4:
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "RST_STREAM of a wrong size")
        stream = self._streams.by_id.get(stream_id)
        if stream is None:
            self._floods.count_control("RST_STREAM")
            self._streams.check_used(stream_id, "RST_STREAM")
            return None
        stream.end_remote()
        self._sender.forget(stream)
        return StreamReset(stream, frames.parse_u32(self._inbox.data, start), "reset by the peer")

    def on_priority(self, stream_id: int, start: int, end: int) -> None:
        """Priorities have no effect here."""
        self._floods.count_control("PRIORITY")
        if stream_id == 0:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "PRIORITY on stream 0")
        if end - start != 5:
            raise ProtocolViolation(frames.FRAME_SIZE_ERROR, "PRIORITY of a wrong size", stream_id)
        self.check_dependency(stream_id, start)

    def check_dependency(self, stream_id: int, start: int) -> None:
        if frames.parse_u32(self._inbox.data, start) & 0x7FFFFFFF == stream_id:
            raise ProtocolViolation(frames.PROTOCOL_ERROR, "a stream that depends on itself", stream_id)


def _check_connection_frame(name: str, stream_id: int) -> None:
    if stream_id:
        raise ProtocolViolation(frames.PROTOCOL_ERROR, f"{name} on stream {stream_id}")
