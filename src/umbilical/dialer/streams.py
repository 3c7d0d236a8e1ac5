"""A reader and a writer, over a socket's own transport or over a layer for TLS or gRPC.

asyncio's own TLS cannot half-close a connection, so `loop.start_tls` is not used; programs may use it on top.
"""

import asyncio
from typing import Any, Final, Protocol

from umbilical.tunnel.socket_transport import open_transport


class Layer(asyncio.Transport, asyncio.BufferedProtocol):
    """A transport for the protocol above; a protocol for the transport below."""

    # asyncio requires this attribute of a transport for `start_tls`.
    _start_tls_compatible: Final = True

    def __init__(self) -> None:
        super().__init__()
        self._below: asyncio.Transport | None = None
        self._above: asyncio.BaseProtocol | None = None
        self._reader: asyncio.StreamReader | None = None
        self._closing = False
        self._ended = False
        """The protocol above was notified of the end of incoming data."""
        self._lost = False
        """The protocol above was notified of the loss of the connection."""
        self._read_pauses = False

    def attach(self, reader: asyncio.StreamReader, protocol: asyncio.BaseProtocol) -> None:
        """Deliver payload directly to the reader until another protocol is set."""
        self._above = protocol
        self._reader = reader
        protocol.connection_made(self)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._above = protocol
        self._reader = None

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._above is not None
        return self._above

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._below is None else self._below.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._read_pauses and not self._closing

    def pause_reading(self) -> None:
        self._read_pauses = True
        if self._below is not None:
            self._below.pause_reading()

    def resume_reading(self) -> None:
        self._read_pauses = False
        if self._below is not None:
            self._below.resume_reading()

    def get_write_buffer_size(self) -> int:
        return 0 if self._below is None else self._below.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return (0, 0) if self._below is None else self._below.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._below is not None:
            self._below.set_write_buffer_limits(high, low)

    def abort(self) -> None:
        self._closing = True
        if self._below is not None:
            self._below.abort()

    def _force_close(self, exc: BaseException | None) -> None:
        """Called by asyncio's TLS when its handshake fails; asyncio reports the error itself."""
        self.abort()

    def pause_writing(self) -> None:
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self._above is not None:
            self._above.resume_writing()

    def _deliver(self, view: memoryview) -> None:
        if self._reader is not None:
            self._reader.feed_data(view)
        elif isinstance(self._above, asyncio.BufferedProtocol):
            _fill(self._above, view)
        elif isinstance(self._above, asyncio.Protocol):
            self._above.data_received(bytes(view))

    def _notify_end(self) -> None:
        if not self._ended and not self._lost:
            self._ended = True
            if isinstance(self._above, asyncio.Protocol | asyncio.BufferedProtocol):
                self._above.eof_received()

    def _notify_loss(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            if self._above is not None:
                self._above.connection_lost(error)


def _fill(protocol: asyncio.BufferedProtocol, view: memoryview) -> None:
    while view:
        room = memoryview(protocol.get_buffer(len(view)))
        count = min(len(room), len(view))
        room[:count] = view[:count]
        protocol.buffer_updated(count)
        view = view[count:]


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""`writer.write_eof()` ends our direction only; `reader.read()` returns b"" once the other has ended."""


class Opener(Protocol):
    async def open(self, host: str, port: int) -> Streams:
        """Raises DialFailed."""
        ...


LINGER_SECONDS: Final = 30.0
"""Timeout for the last bytes of a closed writer if the peer does not read them."""


class EndProtocol(asyncio.StreamReaderProtocol):
    """Cancels the timer of a closed writer when the connection is lost."""

    linger: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.linger is not None:
            self.linger.cancel()
            self.linger = None
        super().connection_lost(exc)


class EndWriter(asyncio.StreamWriter):
    """`close` aborts after LINGER_SECONDS if the peer does not read."""

    def __init__(self, transport: asyncio.WriteTransport, protocol: EndProtocol, reader: asyncio.StreamReader) -> None:
        self._loop_of_ours: Final = asyncio.get_running_loop()
        self._end: Final = protocol
        super().__init__(transport, protocol, reader, self._loop_of_ours)

    def close(self) -> None:
        transport = self.transport
        first = not transport.is_closing()
        super().close()
        if first and transport.get_write_buffer_size():
            self._end.linger = self._loop_of_ours.call_later(LINGER_SECONDS, transport.abort)


def _halves(buffer_bytes: int) -> tuple[asyncio.StreamReader, EndProtocol]:
    # A StreamReader pauses its transport past twice its limit.
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=max(buffer_bytes // 2, 1), loop=loop)
    return reader, EndProtocol(reader, loop=loop)


async def plain_streams(sock: Any, buffer_bytes: int) -> Streams:
    """Take over a connected, non-blocking socket."""
    reader, protocol = _halves(buffer_bytes)
    transport = await open_transport(sock, protocol)
    transport.set_write_buffer_limits(buffer_bytes)
    return reader, EndWriter(transport, protocol, reader)


def layered_streams(layer: Layer, buffer_bytes: int) -> Streams:
    reader, protocol = _halves(buffer_bytes)
    layer.attach(reader, protocol)
    return reader, EndWriter(layer, protocol, reader)
