"""One end of a tunnel takes its bytes too slowly: who is slowed down, and when the tunnel is closed.

First the far end is asked to pause, if it is one of ours; the buffer then stays small. An upstream peer does not know
PAUSE. Past the buffer's limit it is held back by the window of the stream that all its tunnels share, as long as the
slow end still moves. An end that takes nothing is closed, so that its neighbours go on (faults slow-client and
slow-endpoint, decisions/0005).
"""

from typing import Final, Protocol

from umbilical.tunnel.loop import Deadlines, Handler, Loop
from umbilical.tunnel.settings import Limits
from umbilical.tunnel.transport import Transport
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


class CreditHold:
    """Withholds the credit of a stream while at least one holder wants that."""

    def __init__(self, transport: Transport, stream: Stream) -> None:
        self.loop: Final = transport.loop
        self._transport: Final = transport
        self._stream: Final = stream
        self._holders: Final[set[Handler]] = set()

    def add(self, holder: Handler) -> None:
        self._holders.add(holder)
        self._transport.connection.hold_credit(self._stream)

    def remove(self, holder: Handler) -> None:
        self._holders.discard(holder)
        if not self._holders and not self._transport.closed:
            self._transport.connection.release_credit(self._stream)
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

    def __init__(self, limits: Limits, hold: CreditHold, stuck: Deadlines, end: SlowEnd) -> None:
        self._limits: Final = limits
        self._hold: Final = hold
        self._stuck: Final = stuck
        self._end: Final = end
        self._asked_pause = False
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
                self._watch = StallWatch(self._hold.loop, self)
        if waiting > self._limits.tunnel_buffer_bytes and not self._holding:
            self._holding = True
            self._hold.add(self)
            self._stuck.add(self)

    def shrank(self, waiting: int) -> None:
        self.moves += 1
        self._waiting = waiting
        if self._holding:
            if waiting <= self._limits.tunnel_buffer_bytes * 3 // 4:
                self._let_go()
            else:
                self._stuck.add(self)  # it moves: restart its time limit
        if self._asked_pause and waiting <= self._limits.pause_above_bytes >> 1:
            self._asked_pause = False
            self._end.ask_resume()

    def over(self) -> None:
        """No more bytes come for this end."""
        self._asked_pause = False
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        if self._holding:
            self._let_go()

    def is_watched(self) -> bool:
        """Whether its watch goes on: it ends where the sender is not paused any more."""
        if not self._asked_pause:
            self._watch = None
        return self._asked_pause

    def stalled(self) -> None:
        self._end.on_stalled(self._waiting)

    def _let_go(self) -> None:
        self._holding = False
        self._stuck.discard(self)
        self._hold.remove(self)

    def on_timer(self) -> None:
        self.over()
        self._end.on_stuck()

    def on_crash(self, error: Exception) -> None:
        try:
            self.over()
        finally:
            self._end.on_crash(error)
