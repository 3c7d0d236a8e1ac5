"""The simulated network: virtual time, a heap of events, connections with delays, and a record of all that happens.

One seed decides everything. Each connection draws from a random source of its own, so that what happens on one does not
change the delays of another.
"""

import errno
import hashlib
import heapq
import socket
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.simulation.poller import Poller
from tests.simulation.sockets import Line, SimListener, SimSocket, Target

START_SECONDS: Final = 1_000.0
"""Virtual time does not begin at 0, which some code takes for `never`."""
CALL_SECONDS: Final = 50e-9
FIRST_DESCRIPTOR: Final = 10
RECORDED_LINES: Final = 400
"""The last lines of the record, for the report of a failure."""

Dialled = Callable[[SimSocket], None]


class Network:
    def __init__(self, seed: int) -> None:
        self.seed: Final = seed
        self.now = START_SECONDS
        self.random: Final = Random(seed)
        self.process = "actor"
        """Whose code runs now: it owns the sockets that are opened."""
        self.turn = 0
        """Number of loop turns so far, of all loops."""
        self.bytes_received = 0
        self.happenings = 0
        """Lines of the record so far."""
        self.exhausted_until = 0.0
        """Until then nobody gets a new descriptor."""
        self.most_reads_per_turn: Final[dict[int, int]] = {}
        """By connection: the most reads of one socket of ours within one turn."""
        self.sockets: Final[dict[int, SimSocket | SimListener]] = {}
        self.endpoints: Final[dict[Target, Dialled | int | None]] = {}
        """What a dial meets: a function that takes the far socket, an errno, or None: no answer at all."""
        self._events: Final[list[tuple[float, int, Callable[..., None], tuple[Any, ...]]]] = []
        self._serial = 0
        self._connections = 0
        self._free: Final[list[int]] = []
        self._next_descriptor = FIRST_DESCRIPTOR
        self._record: Final = hashlib.blake2b(digest_size=16)
        self._lines: Final[deque[bytes]] = deque(maxlen=RECORDED_LINES)

    def monotonic(self) -> float:
        """In place of `time.monotonic`; no clock stands still while code runs."""
        self.now += CALL_SECONDS
        return self.now

    def epoll(self) -> Poller:
        """In place of `select.epoll`."""
        return Poller(self)

    def socket(
        self, family: int = socket.AF_INET, kind: int = 0, protocol: int = 0, descriptor: int | None = None
    ) -> "SimSocket | SimListener":
        """In place of `socket.socket`."""
        if descriptor is not None:
            return self.sockets[descriptor]
        if self.is_exhausted():
            raise OSError(errno.EMFILE, "Too many open files")
        return SimSocket(self, family, self.process, self._number())

    def is_exhausted(self) -> bool:
        return self.now < self.exhausted_until

    def _number(self) -> int:
        self._connections += 1
        return self._connections

    def descriptor(self, sock: "SimSocket | SimListener") -> int:
        """The lowest free one, as a kernel gives it: numbers are used again."""
        if self._free:
            number = heapq.heappop(self._free)
        else:
            number = self._next_descriptor
            self._next_descriptor += 1
        self.sockets[number] = sock
        return number

    def release(self, descriptor: int) -> None:
        del self.sockets[descriptor]
        heapq.heappush(self._free, descriptor)

    def listen(self, family: int, port: int) -> SimListener:
        return SimListener(self, family, self.process, port)

    def pair(self, family: int, near: str, far: str) -> tuple[SimSocket, SimSocket]:
        first, second = SimSocket(self, family, near, self._number()), SimSocket(self, family, far, self._number())
        first.join(second)
        return first, second

    def connect(self, listener: SimListener, owner: str = "actor") -> SimSocket:
        """A connection to one of our listeners; it waits in the backlog after the time of one way."""
        near, far = self.pair(listener.family, owner, listener.process)
        self.after(near.line.delay(), listener.arrived, far)
        return near

    def dial(self, sock: SimSocket, target: Target) -> None:
        """A connect to an endpoint, answered after a round trip."""
        answer = self.endpoints.get(target, errno.ECONNREFUSED)
        if answer is not None:
            self.after(2 * sock.line.delay(), self._dialled, sock, target, answer)

    def _dialled(self, sock: SimSocket, target: Target, answer: Dialled | int) -> None:
        if sock.closed:
            return
        if isinstance(answer, int):
            sock.refused(answer)
            return
        far = SimSocket(self, sock.family, "actor", self._number())
        sock.join(far)
        far.remote = target
        sock.connected()
        answer(far)

    def line(self, number: int) -> Line:
        return Line(Random(self.seed * 1_000_003 + number))

    def after(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now + seconds, action, *arguments)

    def at(self, when: float, action: Callable[..., None], *arguments: Any) -> None:
        self._serial += 1
        heapq.heappush(self._events, (when, self._serial, action, arguments))

    def next_at(self) -> float:
        return self._events[0][0] if self._events else float("inf")

    def run_due(self) -> None:
        """Everything whose time has come."""
        events = self._events
        while events and events[0][0] <= self.now:
            _, _, action, arguments = heapq.heappop(events)
            action(*arguments)

    def note(self, what: bytes, number: int, value: int, payload: bytes = b"") -> None:
        """One line of the record: two runs of a seed have the same."""
        line = b"%d %s %d %d" % (int(self.now * 1e9), what, number, value)
        self.happenings += 1
        self._lines.append(line)
        self._record.update(line)
        self._record.update(payload)

    def digest(self) -> str:
        return self._record.copy().hexdigest()

    def last_lines(self) -> list[str]:
        return [line.decode() for line in self._lines]
