"""Receive windows that follow the way: the round trips of one connection, and what arrives in each.

A round begins with a PING and ends with its answer. A window is at most four times what arrives in the shortest round
trip: what it allows now arrives one round later, so twice as much would let a transfer begin slowly, and more than four
times would only be a queue. A short way, as on one machine, needs none of this.
"""

from typing import Final

from umbilical.tunnel.loop import Loop
from umbilical.tunnel.resource_limits import memory_limit
from umbilical.tunnel.settings import Limits
from umbilical.wire.http2.connection import Connection
from umbilical.wire.http2.streams import Stream

KIB: Final = 1024
ROUND_PING: Final = b"distance"
ROUND_BYTES: Final = 64 * KIB
"""A round begins when so much has arrived since the last: requests and answers need no larger windows."""
NEAR_SECONDS: Final = 0.002
"""A shorter round trip is only measured, now and then: the first windows allow a gigabyte per second."""
NEAR_PAUSE_SECONDS: Final = 1.0
FAR_SECONDS: Final = 0.004
"""From here on bytes that wait in the kernel cost more than the wake-ups that they save."""
GAIN: Final = 4.0
MEMORY_SHARE: Final = 4
"""A quarter of the memory may be granted; only readers that stop make use of it."""
UNKNOWN_MEMORY_BYTES: Final = 256 * KIB * KIB
LARGEST_CONNECTION_WINDOW_BYTES: Final = 64 * KIB * KIB


class WindowBudget:
    """Bytes of credit that all connections of the process may grant above the first windows."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes: Final = total_bytes
        self.granted_bytes = 0

    @staticmethod
    def of(limits: Limits) -> "WindowBudget":
        """As configured, or a part of the memory that this process may use."""
        return WindowBudget(limits.window_bytes or memory_limit() // MEMORY_SHARE or UNKNOWN_MEMORY_BYTES)

    def ask(self, count: int) -> int:
        """Return how much of `count` is granted."""
        granted = max(0, min(count, self.total_bytes - self.granted_bytes))
        self.granted_bytes += granted
        return granted

    def give_back(self, count: int) -> None:
        self.granted_bytes -= count


class RoundTrips:
    def __init__(self, loop: Loop, connection: Connection, budget: WindowBudget) -> None:
        self.budget: Final = budget
        self.current = 0
        """Number of the round under way; 0 between rounds."""
        self.shortest_seconds = 0.0
        """0 until the first answer."""
        self._loop: Final = loop
        self._connection: Final = connection
        self._number = 0
        self._begun_at = 0.0
        self._not_before = 0.0
        self._arrived = 0
        self._windows: list[SizedWindow] = []

    def heard(self, count: int) -> None:
        """So many bytes were read from the peer, and are handled next. Those that begin a round count for it: a window
        often arrives in one burst."""
        self._arrived += count
        if not self.current and self._arrived >= ROUND_BYTES and self._loop.now >= self._not_before:
            self.begin()
            self._arrived = count

    def begin(self) -> None:
        self._number += 1
        self.current = self._number
        self._begun_at = self._loop.now
        self._arrived = 0
        self._connection.sender.ping(ROUND_PING)

    def join(self, window: "SizedWindow") -> None:
        """It takes bytes in the round under way."""
        self._windows.append(window)

    def answered(self) -> None:
        if not self.current:
            return
        self.current = 0
        now = self._loop.now
        seconds = max(now - self._begun_at, 1e-6)
        self._learn(seconds)
        windows, self._windows = self._windows, []
        if self.shortest_seconds < NEAR_SECONDS:
            self._not_before = now + NEAR_PAUSE_SECONDS
        else:
            share = self.shortest_seconds / seconds
            wanted = int(GAIN * self._arrived * share)
            self._connection.enlarge_connection(min(wanted, LARGEST_CONNECTION_WINDOW_BYTES))
            for window in windows:
                window.round_over(share)
        self._arrived = 0

    def stop(self) -> None:
        """The connection is over."""
        self.current = 0
        self._windows.clear()

    def _learn(self, seconds: float) -> None:
        """A longer round trip counts if little arrived in it: otherwise the answer waited behind payload."""
        if self.shortest_seconds == 0.0 or seconds < self.shortest_seconds:
            self.shortest_seconds = seconds
        elif self._arrived < ROUND_BYTES:
            self.shortest_seconds += (seconds - self.shortest_seconds) / 4

    def is_far(self) -> bool:
        return self.shortest_seconds >= FAR_SECONDS


class SizedWindow:
    """The receive window of one stream: what its readers take in each round, and what the budget granted for it."""

    def __init__(self, rounds: RoundTrips, connection: Connection, stream: Stream) -> None:
        self.stream: Final = stream
        self._rounds: Final = rounds
        self._connection: Final = connection
        self._first: Final = stream.window
        self._granted = 0
        self._is_over = False
        self._round = 0
        self._taken = 0

    def count(self, size: int) -> None:
        """Its readers took so many bytes."""
        current = self._rounds.current
        if current:
            if current != self._round:
                self._round = current
                self._taken = 0
                self._rounds.join(self)
            self._taken += size

    def round_over(self, share: float) -> None:
        """A round in which it took part has ended; it lasted 1 / `share` shortest round trips."""

    def wanted(self, share: float) -> int:
        """The window for the rate of the round that has ended."""
        return int(GAIN * self._taken * share)

    def grow(self, window: int) -> None:
        """Enlarge it, as far as the budget allows. What was granted once is not asked for again after it shrank."""
        if self._is_over:
            return
        more = window - self._first - self._granted
        if more > 0:
            self._granted += self._rounds.budget.ask(more)
            window = self._first + self._granted
        self._connection.enlarge(self.stream, window)
        self._connection.credit(self.stream, 0)

    def give_back(self) -> None:
        """The stream is over, and nothing waits for its readers. It may still be part of a round."""
        self._is_over = True
        self._rounds.budget.give_back(self._granted)
        self._granted = 0
