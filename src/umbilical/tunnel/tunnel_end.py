"""One end of one tunnel in this process: a client's at the server, an endpoint's at the agent.

Each direction has its own state:
    reading, from the end into the tunnel:   OPEN <-> PAUSED -> ENDED
    writing, from the tunnel to the end:     OPEN -> HALF_CLOSING -> HALF_CLOSED, and from each -> CLOSING -> CLOSED
"""

from typing import Final

from umbilical.tunnel.backlog import Backlog, SharedCredit
from umbilical.tunnel.channel import AGAIN, Channel, ChannelOwner
from umbilical.tunnel.loop import Deadlines
from umbilical.tunnel.payload import MORE, Inlet, Outlet
from umbilical.tunnel.settings import Limits
from umbilical.tunnel.transport import TUNNEL_WINDOW_BYTES
from umbilical.tunnel.tunnel_stream import TunnelStream

OPEN: Final = 1
PAUSED: Final = 2
"""The far end is slow and asked us to stop reading."""
ENDED: Final = 3
"""No more is read."""
HALF_CLOSING: Final = 4
"""The far end sends no more; buffered bytes still wait for this end."""
HALF_CLOSED: Final = 5
"""The last byte and the end were sent to this end, which may go on sending."""
CLOSING: Final = 6
"""The tunnel is over; buffered bytes still wait for this end."""
CLOSED: Final = 7


class TunnelEnd(ChannelOwner):
    """Slows the sender down while this end's reader is slow, and stops reading when the far end asks for it."""

    def __init__(self, limits: Limits, stuck: Deadlines) -> None:
        self.reading = OPEN
        self._limits: Final = limits
        self._stuck: Final = stuck
        self._pause_above = limits.pause_above_bytes
        self._own: TunnelStream | None = None
        """The tunnel's own stream; None where all tunnels share one, as with upstream's programs."""
        self._shared: SharedCredit | None = None
        self._backlog: Backlog | None = None

    def _attach(self, own: TunnelStream | None, shared: SharedCredit | None) -> None:
        """The tunnel is open, on its own stream or on the shared one."""
        self._own = own
        self._shared = shared
        if own is not None:
            self._pause_above = min(self._pause_above, TUNNEL_WINDOW_BYTES >> 1)

    def _hold_back(self, waiting: int) -> None:
        """More than `_pause_above` bytes wait for this end."""
        backlog = self._backlog
        if backlog is None and self._shared is not None:
            shares = self._own is None
            backlog = self._backlog = Backlog(self._limits, self._shared, self._stuck, self, shares)
        if backlog is not None:
            backlog.grew(waiting)

    def _give_back(self) -> None:
        """Nothing comes and nothing waits any more: its window counts no longer."""
        if self._own is not None:
            self._own.give_back()

    def _drop_backlog(self) -> None:
        if self._backlog is not None:
            self._backlog.over()
            self._backlog = None

    def abort_stream(self, code: int) -> bool:
        """Reset the tunnel's own stream; False if it has none."""
        if self._own is None:
            return False
        self._own.abort(code)
        return True

    def ask_pause(self) -> bool:
        # The window of a tunnel's own stream holds its sender back.
        return True if self._own is not None else self._pause_sender()

    def ask_resume(self) -> None:
        if self._own is None:
            self._resume_sender()

    def _pause_sender(self) -> bool:
        """Send PAUSE; False if the far end does not understand it."""
        return False

    def _resume_sender(self) -> None:
        """Send RESUME."""

    def on_stalled(self, waiting: int) -> None:
        """Log that this end takes nothing."""

    def on_stuck(self) -> None:
        """Close the tunnel: this end takes nothing while others wait for it."""

    def pause(self) -> None:
        if self.reading == OPEN:
            self.reading = PAUSED

    def resume(self) -> None:
        if self.reading == PAUSED:
            self.reading = OPEN
            self._read_more()

    def _read_more(self) -> None:
        """Go on after a pause."""


class SocketEnd(TunnelEnd):
    """An end on a socket: bytes both ways, half-close, and the last flush."""

    def __init__(self, channel: Channel, limits: Limits, stuck: Deadlines, flushing: Deadlines) -> None:
        super().__init__(limits, stuck)
        self.writing = OPEN
        self.bytes_delivered = 0
        self._channel: Final = channel
        self._loop: Final = channel.loop
        self._flushing: Final = flushing
        self._outlet: Final = Outlet(channel)
        self._inlet: Inlet | None = None
        self._dirty = False

    def bytes_read(self) -> int:
        return 0 if self._inlet is None else self._inlet.bytes_written

    def waiting(self) -> tuple[int, bool]:
        """Bytes that wait for this end, and whether this end waits for the far one."""
        held = self.reading == PAUSED or (self._inlet is not None and self._inlet.waiting)
        return self._outlet.waiting_bytes(), held

    def on_readable(self) -> None:
        self._read_more()

    def on_again(self) -> None:
        self._read_more()

    def on_room(self, inlet: Inlet) -> None:
        self._read_more()

    def _read_more(self) -> None:
        inlet = self._inlet
        if self.reading != OPEN or inlet is None or inlet.waiting:
            return
        count = inlet.draw(self._channel)
        if count == MORE:
            self._loop.again(self)
        elif count != AGAIN:
            self._read_over(count)
            return
        if self.writing != OPEN:
            self._moved_half_closed()

    def _read_over(self, count: int) -> None:
        """The socket has ended (END) or failed (LOST)."""

    def _end_reading(self, own: TunnelStream) -> None:
        """The socket's peer ended its side: end ours towards the far end, which may go on (fault no-half-close)."""
        self.reading = ENDED
        own.end()
        self._reading_ended()

    def _reading_ended(self) -> None:
        """The tunnel is over if the far end has ended too."""

    def deliver(self, view: memoryview) -> None:
        if self.writing >= CLOSING:
            return
        outlet = self._outlet
        size = len(view)
        before = outlet.waiting_bytes()
        self.bytes_delivered += size
        if outlet.put(view) and not self._dirty:
            self._dirty = True
            self._loop.touch(self)
        if outlet.broken:
            self._write_failed()
            return
        waiting = outlet.waiting_bytes()
        if self._own is not None:
            self._own.arrived(size, waiting - before)
            if self.reading == ENDED:
                self._moved_half_closed()
        if waiting > self._pause_above:
            self._hold_back(waiting)

    def on_flush(self) -> None:
        self._dirty = False
        self._flush()

    def on_writable(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self.writing == CLOSED:
            return
        outlet = self._outlet
        before = outlet.waiting_bytes()
        outlet.flush()
        if outlet.broken:
            self._write_failed()
            return
        waiting = outlet.waiting_bytes()
        if self.writing == CLOSING:
            if outlet.is_empty():
                self._flushed()
            elif waiting < before:
                self._flushing.add(self)  # it moves: restart its time limit
            return
        if waiting < before:
            if self._own is not None:
                self._own.taken(before - waiting)
                if self.reading == ENDED:
                    self._moved_half_closed()
            if self._backlog is not None:
                self._backlog.shrank(waiting)
        if self.writing == HALF_CLOSING:
            self._half_close()

    def _write_failed(self) -> None:
        """The socket broke while bytes were sent."""

    def peer_ended(self) -> None:
        if self.writing == OPEN:
            self.writing = HALF_CLOSING
            self._half_close()

    def _half_close(self) -> None:
        """Behind the last byte, signal that no more follows; if both sides ended, the close that follows does."""
        if self._outlet.is_empty():
            self.writing = HALF_CLOSED
            if self.reading != ENDED:
                self._channel.end_sending()
            self._writing_ended()

    def _writing_ended(self) -> None:
        """The tunnel is over if this end has ended too."""

    def _moved_half_closed(self) -> None:
        """Bytes moved one way while the other way has ended."""

    def _close_when_flushed(self) -> None:
        """The tunnel is over: write what is queued first (fault tail-loss)."""
        self._drop_backlog()
        self.reading = ENDED
        self.writing = CLOSING
        self._flushing.add(self)
        self._flush()

    def _flushed(self) -> None:
        """The last byte is written."""
