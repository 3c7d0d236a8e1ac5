"""The data plane's loop: edge-triggered epoll, one flush per turn, no task and no timer per tunnel.

`turn` serves the data plane's descriptors and returns the events of all others, which lets asyncio run on the same
thread and the same epoll (event_loop.py). An exception in one handler closes that handler only.
"""

import heapq
import select
import time
from typing import Final

from umbilical.tunnel import faults
from umbilical.tunnel.faults import Breakable, FaultLog
from umbilical.wire.http2.buffers import Block

IN: Final = select.EPOLLIN
OUT: Final = select.EPOLLOUT
HANGUP: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
BOTH_ENDED: Final = select.EPOLLHUP | select.EPOLLERR
"""Part of HANGUP: both directions are closed. A peer that only ended its own side does not raise it."""
_EDGE: Final = select.EPOLLET
_RDHUP: Final = select.EPOLLRDHUP
MAX_EVENTS: Final = 256
READ_BYTES: Final = 256 * 1024
REQUEST_BYTES: Final = 64 * 1024
CANCELLED_TIMERS_KEPT: Final = 64
"""More are removed once they are the majority."""


class Handler:
    """Callbacks of the loop. No method may block."""

    def on_events(self, mask: int) -> None:
        """The descriptor is ready. Edge-triggered: remember readiness that was not used up."""

    def on_again(self) -> None:
        """`Loop.again` was called in the previous turn."""

    def on_flush(self) -> None:
        """The turn ends and `Loop.touch` was called: send what is buffered."""

    def on_timer(self) -> None:
        """The time passed to `Loop.after` has elapsed."""

    def on_crash(self, error: Exception) -> None:
        """A method above raised, which is a bug, and has been logged. Close what this handler owns."""


class Timer:
    """Returned by `Loop.after`; has no handler once cancelled or fired."""

    def __init__(self, handler: Handler) -> None:
        self.handler: Handler | None = handler


class Loop:
    def __init__(self) -> None:
        # Memory for one read of each kind. One is enough for a loop, which reads one socket at a time; not for a
        # process, which may have a loop in each of several threads.
        self.receive_block: Final = Block(READ_BYTES)
        """For connections that share it, since each keeps only what it has not handled."""
        self.ciphertext: Final = memoryview(bytearray(READ_BYTES))
        self.request: Final = memoryview(bytearray(REQUEST_BYTES))
        self._epoll: Final = select.epoll()
        self._handlers: Final[dict[int, Handler]] = {}
        self._fresh: Final[set[int]] = set()
        """Added since the last poll: a pending event for this number belongs to the previous descriptor."""
        self._again: dict[Handler, None] = {}
        """In the order of asking, each once."""
        self._dirty: list[Handler] = []
        self._timers: Final[list[tuple[float, int, Timer]]] = []
        self._cancelled_timers = 0
        self._timer_serial = 0
        self._foreign = 0
        self.now = time.monotonic()
        """Start time of this turn."""
        self.turns = 0
        self.faults: Final = FaultLog()
        self.asyncio_called = False
        """A handler scheduled something in asyncio, which must run now."""

    def add(self, descriptor: int, handler: Handler, writable: bool) -> None:
        """Watch for input, hang-up and, if `writable`, for room to write; edge-triggered."""
        self._handlers[descriptor] = handler
        self._fresh.add(descriptor)
        self._epoll.register(descriptor, IN | _RDHUP | _EDGE | (OUT if writable else 0))

    def watch_writable(self, descriptor: int) -> None:
        """Also watch for room to write. Not from the start: a Unix socket would raise it at every read."""
        self._epoll.modify(descriptor, IN | OUT | _RDHUP | _EDGE)

    def add_listener(self, descriptor: int, handler: Handler) -> None:
        """Level-triggered: connections left in the backlog are reported again in the next turn."""
        self._handlers[descriptor] = handler
        self._fresh.add(descriptor)
        self._epoll.register(descriptor, IN)

    def replace(self, descriptor: int, handler: Handler) -> None:
        """Change the handler of a watched descriptor."""
        self._handlers[descriptor] = handler

    def remove(self, descriptor: int) -> None:
        """Stop watching. Call it before closing the descriptor."""
        if self._handlers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def forget(self, descriptor: int) -> None:
        """Like `remove`, for a descriptor that is closed right after this call: the kernel then unregisters it."""
        self._handlers.pop(descriptor, None)

    def again(self, handler: Handler) -> None:
        """Call `on_again` once in the next turn, without sleeping before it."""
        self._again[handler] = None

    def touch(self, handler: Handler) -> None:
        """Call `on_flush` at the end of this turn. The handler must call this once per turn."""
        self._dirty.append(handler)

    def after(self, seconds: float, handler: Handler) -> "Timer":
        """Call `on_timer` once, unless cancelled."""
        timer = Timer(handler)
        self._timer_serial += 1
        # Not before the time of this turn: a timer that sets itself again would loop forever.
        due = max(time.monotonic(), self.now) + seconds
        heapq.heappush(self._timers, (due, self._timer_serial, timer))
        return timer

    def cancel(self, timer: "Timer") -> None:
        """Cancel a timer of `after`; does nothing if it has fired."""
        if timer.handler is None:
            return
        timer.handler = None
        self._cancelled_timers += 1
        # The hour-long keepalive timer of a connection that lasted a second must not stay for an hour.
        if self._cancelled_timers > CANCELLED_TIMERS_KEPT and self._cancelled_timers > len(self._timers) >> 1:
            self._timers[:] = [entry for entry in self._timers if entry[2].handler is not None]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def turn(self, timeout: float | None) -> list[tuple[int, int]]:
        """Wait, serve the data plane once, flush; return the events of all other descriptors."""
        if self._dirty:  # touched from outside a turn
            self._flush()
        again = self._again
        self._again = {}
        ready = self._epoll.poll(self._timeout(timeout, bool(again or self._dirty)), MAX_EVENTS)
        self.now = time.monotonic()
        self.turns += 1
        foreign: list[tuple[int, int]] = []
        handlers = self._handlers
        fresh = self._fresh
        fresh.clear()
        for descriptor, mask in ready:
            handler = handlers.get(descriptor)
            if handler is None:
                foreign.append((descriptor, mask))
                continue
            if fresh and descriptor in fresh:
                continue
            try:
                handler.on_events(mask)
            except Exception as error:
                self.crash(handler, faults.EVENT, error)
        for handler in again:
            try:
                handler.on_again()
            except Exception as error:
                self.crash(handler, faults.EVENT, error)
        if self._timers:
            self._run_timers()
        if self._dirty:
            self._flush()
        return foreign

    def _timeout(self, timeout: float | None, busy: bool) -> float:
        if busy:
            return 0.0
        if self._timers:
            left = max(self._timers[0][0] - time.monotonic(), 0.0)
            timeout = left if timeout is None or left < timeout else timeout
        return -1.0 if timeout is None else max(timeout, 0.0)

    def _run_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self.now:
            timer = heapq.heappop(self._timers)[2]
            handler = timer.handler
            if handler is None:
                self._cancelled_timers -= 1
                continue
            timer.handler = None
            try:
                handler.on_timer()
            except Exception as error:
                self.crash(handler, faults.TIMER, error)

    def _flush(self) -> None:
        dirty = self._dirty
        self._dirty = []
        for handler in dirty:
            try:
                handler.on_flush()
            except Exception as error:
                self.crash(handler, faults.FLUSH, error)

    def crash(self, broken: Breakable, place: str, error: Exception) -> None:
        """An internal error at one of the places of faults.py: note it, and have its owner close what broke."""
        self.faults.crash(broken, place, error, self.now)

    def watched(self) -> int:
        """How many descriptors are watched."""
        return len(self._handlers) + self._foreign

    def add_foreign(self, descriptor: int, mask: int) -> None:
        self._foreign += 1
        self._epoll.register(descriptor, mask)

    def modify_foreign(self, descriptor: int, mask: int) -> None:
        self._epoll.modify(descriptor, mask)

    def remove_foreign(self, descriptor: int) -> None:
        self._foreign -= 1
        self._epoll.unregister(descriptor)

    def close(self) -> None:
        self._epoll.close()


class Deadlines(Handler):
    """One timer for many handlers with the same timeout, oldest first."""

    def __init__(self, loop: Loop, seconds: float) -> None:
        self._loop: Final = loop
        self._seconds: Final = seconds
        self._due: Final[dict[Handler, float]] = {}
        self._armed = False

    def add(self, handler: Handler) -> None:
        """Call its `on_timer` unless it is discarded before. Adding it again restarts its timeout."""
        self._due.pop(handler, None)
        self._due[handler] = self._loop.now + self._seconds
        if not self._armed:
            self._armed = True
            self._loop.after(self._seconds, self)

    def discard(self, handler: Handler) -> None:
        self._due.pop(handler, None)

    def __len__(self) -> int:
        return len(self._due)

    def on_timer(self) -> None:
        # Stays armed here: a handler that adds itself again must not set a second timer.
        now = self._loop.now
        while self._due:
            handler = next(iter(self._due))
            left = self._due[handler] - now
            if left > 0:
                self._loop.after(left, self)
                return
            del self._due[handler]
            try:
                handler.on_timer()
            except Exception as error:
                self._loop.crash(handler, faults.TIMER, error)
        self._armed = False
