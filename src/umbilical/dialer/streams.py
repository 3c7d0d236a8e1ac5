"""A reader and a writer for programs, over a socket's own transport or over a layer on top of it."""

import asyncio
from typing import Any, Final

from umbilical.dialer.layer import Layer
from umbilical.dialer.opener import Streams

LINGER_SECONDS: Final = 30.0
"""For the last bytes of a writer that was closed, where the far end does not take them."""


class EndProtocol(asyncio.StreamReaderProtocol):
    """Knows when the connection is gone, for the one timer that a closed writer may have."""

    linger: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.linger is not None:
            self.linger.cancel()
            self.linger = None
        super().connection_lost(exc)


class EndWriter(asyncio.StreamWriter):
    """`close` does not wait for ever for a far end that reads nothing."""

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
    """Takes the socket over, connected and non-blocking."""
    reader, protocol = _halves(buffer_bytes)
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: protocol, sock=sock)
    transport.set_write_buffer_limits(buffer_bytes)
    return reader, EndWriter(transport, protocol, reader)


def layered_streams(layer: Layer, buffer_bytes: int) -> Streams:
    reader, protocol = _halves(buffer_bytes)
    layer.attach(reader, protocol)
    return reader, EndWriter(layer, protocol, reader)
