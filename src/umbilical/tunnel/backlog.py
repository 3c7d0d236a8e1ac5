"""One end of a tunnel takes its bytes too slowly: who is slowed down, and when the tunnel is closed.

First the far end is asked to pause, if it is one of ours; the buffer then stays small. An upstream peer does not know
PAUSE. Past the buffer's limit it is held back by the window of the stream that all its tunnels share, as long as the
slow end still moves. An end that takes nothing is closed, so that its neighbours go on (faults slow-client and
slow-endpoint, decisions/0005).
"""

from typing import Final, Protocol

from umbilical.tunnel.loop import Deadlines, Handler, Loop
from umbilical.tunnel.round_trips import SizedWindow
from umbilical.tunnel.settings import Limits
from umbilical.tunnel.transport import LARGEST_SHARED_WINDOW_BYTES, SHARED_WINDOW_BYTES, Transport
from umbilical.wire.http2.streams import Stream

STUCK_SECONDS: Final = 5.0
"""How long an end over its buffer limit may take nothing. konnectivity-client gives its own readers 10 s."""


class SlowEnd(Protocol):
    def ask_pause(self) -> bool:
        """Ask the far end to send no more; False if it does not support that."""
        ...

    def ask_resume(self) -> None:
        """Our reader has caught up: let the far end send again."""

    def on_stalled(self, waiting: int) -> None:
        """Our reader takes nothing while the far end pauses: log it."""

    def on_stuck(self) -> None:
        """Our reader takes nothing while its full buffer holds other tunnels back: close the tunnel."""

    def on_crash(self, error: Exception) -> None:
        """An internal error; close the tunnel."""


class SharedCredit(SizedWindow):
    """The credit of a Connect stream, which all tunnels of an upstream peer share.

    It follows the round trip while every reader keeps up. What one tunnel may keep waiting does not grow with it: the
    window shrinks before that limit is near, and no credit is given at all while a reader is above it.
    """

    def __init__(self, transport: Transport, stream: Stream) -> None:
        self.loop: Final = transport.loop
        self._transport: Final = transport
        transport.connection.enlarge(stream, SHARED_WINDOW_BYTES)
        transport.connection.credit(stream, 0)
        super().__init__(transport.measured(), transport.connection, stream)
        self._slow: Final[set[Handler]] = set()
        """Readers for which the window must stay small."""
        self._holders: Final[set[Handler]] = set()

    def round_over(self, share: float) -> None:
        wanted = min(self.wanted(share), LARGEST_SHARED_WINDOW_BYTES)
        if wanted > self.stream.window and not self._slow:
            self.grow(wanted)

    def surplus(self) -> int:
        """How much larger the window is than at first."""
        return max(0, self.stream.window - SHARED_WINDOW_BYTES)

    def slow_down(self, reader: Handler) -> None:
        """Bytes wait for this reader that it must take before the window may grow again."""
        self._slow.add(reader)
        self._connection.shrink(self.stream, SHARED_WINDOW_BYTES)

    def speed_up(self, reader: Handler) -> None:
        self._slow.discard(reader)

    def hold(self, reader: Handler) -> None:
        """Give no credit."""
        self._holders.add(reader)
        self._connection.hold_credit(self.stream)

    def release(self, reader: Handler) -> None:
        self._holders.discard(reader)
        if not self._holders and not self._transport.closed:
            self._connection.release_credit(self.stream)
            self._transport.touch()


class StallWatch(Handler):
    """Checks from time to time whether an end with a paused sender has moved; reports each standstill once."""

    def __init__(self, loop: Loop, backlog: "Backlog") -> None:
        self._loop: Final = loop
        self._backlog: Final = backlog
        self._moves = backlog.moves
        self._reported = False
        self._timer = loop.after(STUCK_SECONDS, self)

    def on_timer(self) -> None:
        backlog = self._backlog
        if not backlog.is_watched():
            return
        stalled = backlog.moves == self._moves
        if stalled and not self._reported:
            backlog.stalled()
        self._reported = stalled
        self._moves = backlog.moves
        self._timer = self._loop.after(STUCK_SECONDS, self)

    def stop(self) -> None:
        self._loop.cancel(self._timer)

    def on_crash(self, error: Exception) -> None:
        self._backlog.on_crash(error)


class Backlog(Handler):
    """Watches one end's buffer, from the moment it grows past `Limits.pause_above_bytes`."""

    def __init__(self, limits: Limits, credit: SharedCredit, stuck: Deadlines, end: SlowEnd, shares: bool) -> None:
        """`shares`: its tunnel has no stream of its own, so that other tunnels wait for the same credit."""
        self._limits: Final = limits
        self._credit: Final = credit
        self._shares: Final = shares
        self._stuck: Final = stuck
        self._end: Final = end
        self._asked_pause = False
        self._is_slow = False
        self._holding = False
        self.moves = 0
        """Incremented whenever the slow end takes something."""
        self._waiting = 0
        self._watch: StallWatch | None = None

    def grew(self, waiting: int) -> None:
        self._waiting = waiting
        if not self._asked_pause:
            self._asked_pause = self._end.ask_pause()
            if self._asked_pause and self._watch is None:
                self._watch = StallWatch(self._credit.loop, self)
        if not self._shares:
            return
        room = self._limits.tunnel_buffer_bytes - waiting
        if self._asked_pause or room < self._credit.surplus():
            self._is_slow = True
            self._credit.slow_down(self)
        if self._asked_pause:
            room += LARGEST_SHARED_WINDOW_BYTES  # the far end may have sent all of it before it paused
        if room < 0 and not self._holding:
            self._holding = True
            self._credit.hold(self)
            self._stuck.add(self)

    def shrank(self, waiting: int) -> None:
        self.moves += 1
        self._waiting = waiting
        if self._holding:
            if waiting <= self._limits.tunnel_buffer_bytes * 3 // 4:
                self._let_go()
            else:
                self._stuck.add(self)  # it moves: restart its time limit
        if self._is_slow and waiting <= self._limits.pause_above_bytes:
            self._speed_up()
        if self._asked_pause and waiting <= self._limits.pause_above_bytes >> 1:
            self._asked_pause = False
            self._end.ask_resume()

    def over(self) -> None:
        """No more bytes come for this end."""
        self._asked_pause = False
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        if self._is_slow:
            self._speed_up()
        if self._holding:
            self._let_go()

    def is_watched(self) -> bool:
        """Whether its watch goes on: it ends where the sender is not paused any more."""
        if not self._asked_pause:
            self._watch = None
        return self._asked_pause

    def stalled(self) -> None:
        self._end.on_stalled(self._waiting)

    def _speed_up(self) -> None:
        self._is_slow = False
        self._credit.speed_up(self)

    def _let_go(self) -> None:
        self._holding = False
        self._stuck.discard(self)
        self._credit.release(self)

    def on_timer(self) -> None:
        self.over()
        self._end.on_stuck()

    def on_crash(self, error: Exception) -> None:
        try:
            self.over()
        finally:
            self._end.on_crash(error)
