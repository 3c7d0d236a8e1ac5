"""An HTTP connection to an endpoint, or to the user's proxy before it, with h11.

Loaded with the first plain request: CONNECT does not need it, and h11 costs each process 0.6 MB.
"""

import asyncio
from typing import Any, Final

import h11

from umbilical.dialer.streams import Streams
from umbilical.proxies.http_client import READ_BYTES

MAX_HEAD_BYTES: Final = 256 * 1024
"""Limit for response headers; browsers and Go's client accept at least as much."""
Key = tuple[str, int, str]
"""Where a kept connection leads: host, port, scheme of a proxy or empty."""


class BadHttpAnswer(Exception):
    """The endpoint's response is not valid HTTP, or must not be forwarded."""


class UpstreamLost(Exception):
    """The connection ended or broke before the response was complete."""


class UpstreamConnection:
    def __init__(self, key: Key, streams: Streams, idle_seconds: float) -> None:
        self.key: Final = key
        self.streams: Final = streams
        self.was_used = False
        """It has served a request before: the peer may have closed it meanwhile."""
        self._reader, self._writer = streams
        self._idle_seconds: Final = idle_seconds or None
        self._http: Final = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def send(self, *events: h11.Request | h11.Data | h11.EndOfMessage) -> None:
        """Raises UpstreamLost; TimeoutError for an endpoint that does not read."""
        pieces: list[bytes] = []
        for event in events:
            pieces += self._http.send_with_data_passthrough(event) or []
        try:
            self._writer.write(b"".join(pieces))
            async with asyncio.timeout(self._idle_seconds):
                await self._writer.drain()
        except TimeoutError:
            raise
        except (OSError, RuntimeError) as error:
            raise UpstreamLost(str(error)) from error

    async def receive(self) -> Any:
        """Return the next event of the response. Raises BadHttpAnswer, UpstreamLost, TimeoutError."""
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise self._fault(error) from error
            if event is not h11.NEED_DATA:
                return event
            self._http.receive_data(await self._read())

    async def _read(self) -> bytes:
        try:
            async with asyncio.timeout(self._idle_seconds):
                return await self._reader.read(READ_BYTES)
        except TimeoutError:
            raise
        except OSError as error:
            if rest := self._take_unread():
                return rest
            raise UpstreamLost(str(error) or "the connection broke") from error

    def _take_unread(self) -> bytes:
        """Return what a StreamReader withholds after a reset: the response of an endpoint that refuses a body."""
        buffer = getattr(self._reader, "_buffer", bytearray())
        rest = bytes(buffer)
        buffer.clear()
        return rest

    def _fault(self, error: h11.RemoteProtocolError) -> Exception:
        if self._http.trailing_data[1]:
            return UpstreamLost("the connection ended before the response")
        return BadHttpAnswer(str(error))

    @property
    def can_serve_more(self) -> bool:
        """The last request is complete on both sides, and neither asked to close."""
        is_done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        return is_done and self._http.trailing_data == (b"", False) and not self._writer.transport.is_closing()

    async def is_ready_again(self) -> bool:
        """Return whether another request may be sent: nothing has arrived since the last one."""
        return self.can_serve_more and await self._is_quiet()

    async def _is_quiet(self) -> bool:
        """Return whether there is neither an end nor an unrequested byte, which would answer the next request."""
        try:
            async with asyncio.timeout(0):
                await self._reader.read(1)
        except TimeoutError:
            return True
        except OSError:
            pass
        return False

    def begin_again(self) -> None:
        self._http.start_next_cycle()
        self.was_used = True

    def take_rest(self) -> bytes:
        """Return the bytes after a 101."""
        return bytes(self._http.trailing_data[0])

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        self._writer.transport.abort()
