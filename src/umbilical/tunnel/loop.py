"""The data plane's loop: edge-triggered epoll, one flush per turn, no task and no timer per tunnel.

`turn` serves the data plane's descriptors itself and returns what happened on the others, which lets asyncio run
on the same thread and the same epoll (event_loop.py). An exception of one handler closes that handler alone.
"""

import heapq
import select
import time
from typing import Final

IN: Final = select.EPOLLIN
OUT: Final = select.EPOLLOUT
HANGUP: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
BOTH_ENDED: Final = select.EPOLLHUP | select.EPOLLERR
"""Part of HANGUP: no byte can go either way. A peer that only ended its own side does not raise it."""
_EDGE: Final = select.EPOLLET
_RDHUP: Final = select.EPOLLRDHUP
MAX_EVENTS: Final = 256
CANCELLED_TIMERS_KEPT: Final = 64
"""More are cleared away, once they are the majority."""


class Handler:
    """What the loop calls. Every method returns soon and never blocks."""

    def on_events(self, mask: int) -> None:
        """The descriptor is ready; edge-triggered, so remember what was not used up."""

    def on_again(self) -> None:
        """A second look that was asked for with `Loop.again`."""

    def on_flush(self) -> None:
        """The turn is over and `Loop.touch` was called: send what has gathered."""

    def on_timer(self) -> None:
        """The time asked for with `Loop.after` has come."""

    def on_crash(self, error: Exception) -> None:
        """One of the methods above raised: a bug of ours. Close what this handler owns; raise nothing."""


class Timer:
    """What `Loop.after` returns; without a handler it was cancelled or has fired."""

    def __init__(self, handler: Handler) -> None:
        self.handler: Handler | None = handler


class Loop:
    def __init__(self) -> None:
        self._epoll: Final = select.epoll()
        self._handlers: Final[dict[int, Handler]] = {}
        self._fresh: Final[set[int]] = set()
        """Added since the last poll: an event of that number in hand is its predecessor's."""
        self._again: list[Handler] = []
        self._dirty: list[Handler] = []
        self._timers: Final[list[tuple[float, int, Timer]]] = []
        self._cancelled_timers = 0
        self._timer_serial = 0
        self.now = time.monotonic()
        """The time at which this turn began."""
        self.turns = 0
        self.asyncio_called = False
        """A handler scheduled something in asyncio, which must get its turn now."""

    def add(self, descriptor: int, handler: Handler, writable: bool) -> None:
        """Watch for input and hang-up, and for room to write if asked; edge-triggered."""
        self._handlers[descriptor] = handler
        self._fresh.add(descriptor)
        self._epoll.register(descriptor, IN | _RDHUP | _EDGE | (OUT if writable else 0))

    def watch_writable(self, descriptor: int) -> None:
        """From now on tell of room to write too. Not asked for at first: a Unix socket would tell at every read."""
        self._epoll.modify(descriptor, IN | OUT | _RDHUP | _EDGE)

    def add_listener(self, descriptor: int, handler: Handler) -> None:
        """Level-triggered: a turn takes a share of the waiting connections and comes back for more."""
        self._handlers[descriptor] = handler
        self._fresh.add(descriptor)
        self._epoll.register(descriptor, IN)

    def replace(self, descriptor: int, handler: Handler) -> None:
        """Another handler takes over a descriptor that is watched already."""
        self._handlers[descriptor] = handler

    def remove(self, descriptor: int) -> None:
        """Stop watching; call it before the descriptor is closed."""
        if self._handlers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def forget(self, descriptor: int) -> None:
        """Like `remove`, for a descriptor that is closed right behind this call: the kernel then unregisters it."""
        self._handlers.pop(descriptor, None)

    def again(self, handler: Handler) -> None:
        """Call `on_again` in the next turn, which will then not sleep."""
        self._again.append(handler)

    def touch(self, handler: Handler) -> None:
        """Call `on_flush` at the end of this turn; the handler sees to it that it asks once."""
        self._dirty.append(handler)

    def after(self, seconds: float, handler: Handler) -> "Timer":
        """Call `on_timer` once, unless it is cancelled before."""
        timer = Timer(handler)
        self._timer_serial += 1
        # Never before the time of this turn: one that sets itself anew would be due again at once, without end.
        due = max(time.monotonic(), self.now) + seconds
        heapq.heappush(self._timers, (due, self._timer_serial, timer))
        return timer

    def cancel(self, timer: "Timer") -> None:
        """Forget a timer that was set with `after`; one that has fired already is no matter."""
        if timer.handler is None:
            return
        timer.handler = None
        self._cancelled_timers += 1
        # An hour's keepalive of a connection that lived a second must not stay for an hour.
        if self._cancelled_timers > CANCELLED_TIMERS_KEPT and self._cancelled_timers > len(self._timers) >> 1:
            self._timers[:] = [entry for entry in self._timers if entry[2].handler is not None]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def turn(self, timeout: float | None) -> list[tuple[int, int]]:
        """Wait, serve the data plane once, flush; return the events of descriptors that are not the data plane's."""
        if self._dirty:  # touched from outside a turn
            self._flush()
        again = self._again
        self._again = []
        ready = self._epoll.poll(self._patience(timeout, bool(again or self._dirty)), MAX_EVENTS)
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
                self._crash(handler, error)
        for handler in again:
            try:
                handler.on_again()
            except Exception as error:
                self._crash(handler, error)
        if self._timers:
            self._run_timers()
        if self._dirty:
            self._flush()
        return foreign

    def _patience(self, timeout: float | None, busy: bool) -> float:
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
                self._crash(handler, error)

    def _flush(self) -> None:
        dirty = self._dirty
        self._dirty = []
        for handler in dirty:
            try:
                handler.on_flush()
            except Exception as error:
                self._crash(handler, error)

    def _crash(self, handler: Handler, error: Exception) -> None:
        handler.on_crash(error)

    def add_foreign(self, descriptor: int, mask: int) -> None:
        self._epoll.register(descriptor, mask)

    def modify_foreign(self, descriptor: int, mask: int) -> None:
        self._epoll.modify(descriptor, mask)

    def remove_foreign(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)

    def close(self) -> None:
        self._epoll.close()


class Deadlines(Handler):
    """Many handlers with the same patience, oldest first, and one timer for all of them."""

    def __init__(self, loop: Loop, seconds: float) -> None:
        self._loop: Final = loop
        self._seconds: Final = seconds
        self._due: Final[dict[Handler, float]] = {}
        self._armed = False

    def add(self, handler: Handler) -> None:
        """Call its `on_timer` unless it is discarded in time. Adding it again starts its time anew."""
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
        # Armed until the end: a handler that comes back from its own deadline must not set a second timer.
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
                handler.on_crash(error)
        self._armed = False
