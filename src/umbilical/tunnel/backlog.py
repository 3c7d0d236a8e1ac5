"""One end of a tunnel takes its bytes too slowly: who is slowed down, and when the tunnel is given up.

First its own far end is asked to pause, if that is one of ours; the buffer then stays small. A peer that cannot be
asked is held back by the window of the stream that all its tunnels share, but only past the cap, and only as long as
the slow end still moves: one that stands still is given up, so that its neighbours go on
(faults slow-client and slow-endpoint, decisions/0005).
"""

from typing import Final

from umbilical.tunnel.channel import Owner
from umbilical.tunnel.loop import Deadlines, Handler, Loop
from umbilical.tunnel.settings import Limits
from umbilical.tunnel.transport import Transport
from umbilical.wire.http2.streams import Stream

STUCK_SECONDS: Final = 5.0
"""How long an end over its cap may take nothing. konnectivity-client gives its own readers 10 s."""


class Brake:
    """Holds back the credit of a stream while anybody stands on it."""

    def __init__(self, transport: Transport, stream: Stream) -> None:
        self.loop: Final = transport.loop
        self._transport: Final = transport
        self._stream: Final = stream
        self._feet: Final[set[Handler]] = set()

    def press(self, foot: Handler) -> None:
        self._feet.add(foot)
        self._transport.connection.hold_credit(self._stream)

    def release(self, foot: Handler) -> None:
        self._feet.discard(foot)
        if not self._feet and not self._transport.closed:
            self._transport.connection.release_credit(self._stream)
            self._transport.touch()


class StallWatch(Handler):
    """Looks from time to time whether an end whose far end pauses has moved; tells once for every standstill."""

    def __init__(self, loop: Loop, backlog: "Backlog") -> None:
        self._loop: Final = loop
        self._backlog: Final = backlog
        self._moves = backlog.moves
        self._has_told = False
        self._timer = loop.after(STUCK_SECONDS, self)

    def on_timer(self) -> None:
        backlog = self._backlog
        if not backlog.is_watched():
            return
        stands = backlog.moves == self._moves
        if stands and not self._has_told:
            backlog.stalled()
        self._has_told = stands
        self._moves = backlog.moves
        self._timer = self._loop.after(STUCK_SECONDS, self)

    def stop(self) -> None:
        self._loop.cancel(self._timer)

    def on_crash(self, error: Exception) -> None:
        self._backlog.on_crash(error)


class Backlog(Handler):
    """Watches one end's buffer, from the moment it grows past `Limits.pause_above_bytes`."""

    def __init__(self, limits: Limits, brake: Brake, stuck: Deadlines, end: Owner) -> None:
        self._limits: Final = limits
        self._brake: Final = brake
        self._stuck: Final = stuck
        self._end: Final = end
        self._asked_pause = False
        self._braking = False
        self.moves = 0
        """Counts up whenever the slow end takes something."""
        self._waiting = 0
        self._watch: StallWatch | None = None

    def grew(self, waiting: int) -> None:
        self._waiting = waiting
        if not self._asked_pause:
            self._asked_pause = self._end.ask_pause()
            if self._asked_pause and self._watch is None:
                self._watch = StallWatch(self._brake.loop, self)
        if waiting > self._limits.tunnel_buffer_bytes and not self._braking:
            self._braking = True
            self._brake.press(self)
            self._stuck.add(self)

    def shrank(self, waiting: int) -> None:
        self.moves += 1
        self._waiting = waiting
        if self._braking:
            if waiting <= self._limits.tunnel_buffer_bytes * 3 // 4:
                self._let_go()
            else:
                self._stuck.add(self)  # it moves: its time begins anew
        if self._asked_pause and waiting <= self._limits.pause_above_bytes >> 1:
            self._asked_pause = False
            self._end.ask_resume()

    def over(self) -> None:
        """Nothing more will come for this end."""
        self._asked_pause = False
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        if self._braking:
            self._let_go()

    def is_watched(self) -> bool:
        """Asked by its watch, which ends where nothing is paused any more."""
        if not self._asked_pause:
            self._watch = None
        return self._asked_pause

    def stalled(self) -> None:
        self._end.on_stalled(self._waiting)

    def _let_go(self) -> None:
        self._braking = False
        self._stuck.discard(self)
        self._brake.release(self)

    def on_timer(self) -> None:
        self.over()
        self._end.on_stuck()

    def on_crash(self, error: Exception) -> None:
        self.over()
        self._end.on_crash(error)
