"""The end of a TCP connection without a reset: our side is ended, the peer's last bytes are read and dropped.

Closing a socket that still has unread input sends a reset, and a reset may destroy what the peer has not read yet.
"""

from typing import Final

from umbilical.tunnel.channel import AGAIN, Channel, ChannelOwner
from umbilical.tunnel.loop import Deadlines, Loop

LINGER_SECONDS: Final = 2.0
_sink: Final = memoryview(bytearray(64 * 1024))


class LingeringChannels:
    """Channels that are over but whose peers have not noticed yet."""

    def __init__(self, loop: Loop) -> None:
        self._deadlines: Final = Deadlines(loop, LINGER_SECONDS)

    def take(self, channel: Channel) -> None:
        """End our side of the channel now and close it when the peer has ended its own, or soon."""
        channel.end_sending()
        lingering = _LingeringChannel(channel, self._deadlines)
        channel.owner = lingering
        self._deadlines.add(lingering)
        if channel.readable:
            lingering.on_readable()

    def __len__(self) -> int:
        return len(self._deadlines)


class _LingeringChannel(ChannelOwner):
    def __init__(self, channel: Channel, deadlines: Deadlines) -> None:
        self._channel: Final = channel
        self._deadlines: Final = deadlines

    def on_readable(self) -> None:
        count = self._channel.receive_into(_sink)
        if count > 0:
            if self._channel.readable:
                self._channel.loop.again(self)
        elif count != AGAIN:
            self._leave()

    def on_again(self) -> None:
        if not self._channel.closed:
            self.on_readable()

    def on_timer(self) -> None:
        self._leave()

    def on_lost(self, reason: str) -> None:
        self._leave()

    def on_crash(self, error: Exception) -> None:
        self._leave()

    def _leave(self) -> None:
        self._deadlines.discard(self)
        self._channel.close()
