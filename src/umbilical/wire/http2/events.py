"""What `Connection.next_event` returns: one class per kind of event, each with its details.

All events are immutable except `DataReceived`: a connection has one and fills it again for every DATA frame, so that
payload costs no allocation.
"""

from typing import Final

from umbilical.wire.http2.buffers import Block
from umbilical.wire.http2.headers import HeaderList
from umbilical.wire.http2.streams import Stream

_NO_STREAM: Final = Stream(0, 0, 0)


class ConnectionEvent:
    """Base class of all events."""


class DataReceived(ConnectionEvent):
    """A DATA frame with payload `data[start:end]`; valid until the next call of `next_event` or `settle`."""

    def __init__(self, block: Block) -> None:
        self.data = block.data
        self.view = block.view
        """The same memory as `data`; slices of it copy nothing."""
        self.stream = _NO_STREAM
        self.start = 0
        self.end = 0
        self.end_stream = False


class HeadersReceived(ConnectionEvent):
    """Headers of a request or response, or trailers."""

    def __init__(self, stream: Stream, headers: HeaderList, end_stream: bool) -> None:
        self.stream: Final = stream
        self.headers: Final = headers
        self.end_stream: Final = end_stream


class StreamReset(ConnectionEvent):
    """A stream is closed: the peer reset it, or we did because the peer violated the protocol on it."""

    def __init__(self, stream: Stream, code: int, text: str) -> None:
        self.stream: Final = stream
        self.code: Final = code
        self.text: Final = text


class WindowOpened(ConnectionEvent):
    """The peer lets us send more: on this stream, or on the whole connection if `stream` is None."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream: Final = stream


class SettingsReceived(ConnectionEvent):
    """The peer's settings apply from now on."""


class PingAnswered(ConnectionEvent):
    def __init__(self, payload: bytes) -> None:
        self.payload: Final = payload


class GoawayReceived(ConnectionEvent):
    """The peer accepts no new streams and ignores those above `last_stream_id`."""

    def __init__(self, last_stream_id: int, code: int, text: str) -> None:
        self.last_stream_id: Final = last_stream_id
        self.code: Final = code
        self.text: Final = text


class ConnectionFailed(ConnectionEvent):
    """The peer violated the protocol; a GOAWAY is queued, and all further input is discarded."""

    def __init__(self, code: int, text: str) -> None:
        self.code: Final = code
        self.text: Final = text
