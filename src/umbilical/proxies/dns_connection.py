"""One TCP connection to a DNS server, with many questions under way at once (RFC 7766); answers come in any order."""

import asyncio
import os
from collections.abc import Callable
from typing import Final

from umbilical.dialer.opener import Streams
from umbilical.tunnel.daemon import end_task, own_task

MOST_QUESTIONS: Final = 4096
MOST_UNSENT_BYTES: Final = 256 * 1024
"""A server that takes no more questions gets none."""


IDLE_SECONDS: Final = 10.0
"""A connection that nobody asks on is closed: a server of the tunnel that leaves waits for its last tunnel."""


class ConnectionLost(Exception):
    """The server closed it, or it broke; on another one the question may be answered."""


class DnsConnection:
    def __init__(self, streams: Streams) -> None:
        self._reader, self._writer = streams
        self._waiting: Final[dict[int, asyncio.Future[bytes]]] = {}
        self._retired = False
        self._over = False
        self._idle: asyncio.TimerHandle | None = None
        self._rest()
        self._receiving: Final = own_task(self._receive())

    @property
    def is_usable(self) -> bool:
        # One that broke says so before whoever reads it has had a turn.
        return not self._over and not self._retired and not self._writer.transport.is_closing()

    async def ask(self, encode: Callable[[int], bytes]) -> bytes:
        """Return the answer, unread but for its id. The caller bounds the time. Raises ConnectionLost."""
        if self._over or len(self._waiting) >= MOST_QUESTIONS:
            raise ConnectionLost("it takes no more questions")
        self._stop_idling()
        number = self._free_number()
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        try:
            self._send(encode(number))
            return await answered
        finally:
            del self._waiting[number]
            if not self._waiting:
                self._rest()

    def _rest(self) -> None:
        if self._retired:
            self._writer.transport.abort()
        elif not self._over:
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.retire)

    def _stop_idling(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def retire(self) -> None:
        """Ask nothing more: a question was not answered in time, or none was asked. Others may still be lucky."""
        self._retired = True
        if not self._waiting:
            self._writer.transport.abort()

    async def close(self) -> None:
        self._stop_idling()
        self._writer.transport.abort()
        await end_task(self._receiving)

    def _free_number(self) -> int:
        while (number := int.from_bytes(os.urandom(2))) in self._waiting:
            pass  # at most one in sixteen is taken
        return number

    def _send(self, message: bytes) -> None:
        transport = self._writer.transport
        if transport.is_closing() or transport.get_write_buffer_size() > MOST_UNSENT_BYTES:
            raise ConnectionLost("the server takes nothing more")
        self._writer.write(len(message).to_bytes(2) + message)

    async def _receive(self) -> None:
        why = "the server closed the connection"
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(2))
                self._settle(await self._reader.readexactly(size))
        except asyncio.IncompleteReadError:
            pass
        except OSError as error:
            why = f"the connection broke: {error}"
        finally:
            self._over = True
            self._writer.transport.abort()
            for answered in self._waiting.values():
                if not answered.done():
                    answered.set_exception(ConnectionLost(why))

    def _settle(self, message: bytes) -> None:
        """An answer that nobody waits for came too late; or its id was never asked, and then it is nobody's."""
        answered = self._waiting.get(int.from_bytes(message[:2]))
        if answered is not None and not answered.done():
            answered.set_result(message)
