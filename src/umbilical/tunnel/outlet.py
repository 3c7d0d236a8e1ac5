"""Bytes on their way into one tunnel end's socket: small ones gather until the turn ends, the rest waits for room.

The buffer is bounded by its user, in bytes: see `Limits.tunnel_buffer_bytes`.
"""

from typing import Final

from umbilical.tunnel.channel import Channel

DIRECT_BYTES: Final = 8 * 1024
"""Payload from here on is never gathered: copying it would cost more than another send."""


class Outlet:
    def __init__(self, channel: Channel) -> None:
        self._channel: Final = channel
        self._loop: Final = channel.loop
        self._buffer = bytearray()
        self._blocked = False
        self._sent_in_turn = -1
        self.broken = False

    def waiting_bytes(self) -> int:
        return len(self._buffer)

    def put(self, view: memoryview) -> bool:
        """Take payload; True when `flush` is wanted at the end of the turn.

        The first of a turn goes out at once, small ones behind it gather.
        """
        size = len(view)
        turn = self._loop.turns
        if self._buffer or (self._sent_in_turn == turn and size < DIRECT_BYTES):
            self._buffer += view
            return not self._blocked
        self._sent_in_turn = turn
        sent = self._channel.send(view)
        if sent < 0:
            self.broken = True
        elif sent < size or self._channel.has_unsent():
            self._buffer += view[sent:]
            self._block()
        return False

    def hold(self, view: memoryview) -> None:
        """Keep payload until the next `flush`, whatever its size."""
        self._buffer += view

    def _block(self) -> None:
        self._blocked = True
        self._channel.ask_room()

    def flush(self) -> None:
        """Send what can be sent; `is_empty` and `broken` tell how it went."""
        self._blocked = False
        channel = self._channel
        while self._buffer:
            sent = channel.send(self._buffer)
            if sent < 0:
                self.broken = True
                self._buffer.clear()
                return
            if sent == 0:
                self._block()
                return
            del self._buffer[:sent]
        if not channel.push():
            self.broken = True
        elif channel.has_unsent():
            self._block()

    def is_empty(self) -> bool:
        """Every byte has reached the socket."""
        return not self._buffer and not self._channel.has_unsent()
