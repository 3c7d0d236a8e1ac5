"""A simulated process: the real loop on a simulated poller, and the replacement of clock, chance and sockets."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from tests.simulation.network import Network
from tests.simulation.tls import PlainContext

from umbilical.tunnel import dialing, listening, ports, server, server_core
from umbilical.tunnel import loop as loop_module
from umbilical.tunnel.faults import Breakable
from umbilical.tunnel.loop import Loop

TURN_SECONDS: Final = 20e-6
"""Virtual time that a turn takes by itself."""
SECONDS_PER_BYTE: Final = 4e-9
"""And for each byte that it receives: a loop may fall behind the network."""


class Crash:
    def __init__(self, process: str, broken: Breakable, place: str, error: Exception) -> None:
        self.error: Final = error
        self.text: Final = f"{process}: {type(broken).__name__}, {place}: {error!r}"


class _WatchedLoop(Loop):
    """The real loop; it also tells which handlers raised."""

    def __init__(self, crashes: list[Crash], name: str) -> None:
        super().__init__()
        self._crashes: Final = crashes
        self._name: Final = name

    def crash(self, broken: Breakable, place: str, error: Exception) -> None:
        self._crashes.append(Crash(self._name, broken, place, error))
        super().crash(broken, place, error)


class Process:
    def __init__(self, name: str, network: Network) -> None:
        self.name: Final = name
        self.crashes: Final[list[Crash]] = []
        self.loop: Final[Loop] = _WatchedLoop(self.crashes, name)
        self._network: Final = network
        self._poller: Final[Any] = self.loop._epoll
        self._idle_turns = 0
        self.most_idle_turns = 0
        """In a row: turns that neither slept before nor moved anything."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sockets that are opened here are this process's."""
        before, self._network.process = self._network.process, self.name
        try:
            yield
        finally:
            self._network.process = before

    def is_busy(self) -> bool:
        loop = self.loop
        return bool(loop._again or loop._dirty) or self._poller.is_ready() or self.next_timer() <= self._network.now

    def sleeps(self) -> None:
        """It had nothing to do."""
        self._idle_turns = 0

    def next_timer(self) -> float:
        timers = self.loop._timers
        return timers[0][0] if timers else float("inf")

    def live_timers(self) -> list[str]:
        return [type(timer.handler).__name__ for _, _, timer in self.loop._timers if timer.handler is not None]

    def watched(self) -> int:
        return int(self._poller.watched())

    def turn(self) -> None:
        network = self._network
        received, happenings = network.bytes_received, network.happenings
        has_rest = bool(self.loop._again)  # frames or payload that the turn before left for this one
        network.turn += 1
        with self.running():
            self.loop.turn(0.0)
        is_idle = network.happenings == happenings and not has_rest
        self._idle_turns = self._idle_turns + 1 if is_idle else 0
        self.most_idle_turns = max(self.most_idle_turns, self._idle_turns)
        network.now += TURN_SECONDS + (network.bytes_received - received) * SECONDS_PER_BYTE


@contextmanager
def simulated(network: Network) -> Iterator[None]:
    """Replace the clock, the poller, chance, sockets and certificates of the real code by simulated ones."""
    certificates = SimpleNamespace(
        agent_listener=lambda *_: PlainContext(), frontend=lambda *_: None, agent=lambda *_: PlainContext()
    )
    replaced: list[tuple[Any, str, Any]] = [
        (loop_module, "time", network),
        (loop_module, "select", network),
        (dialing, "socket", _Sockets(network)),
        (listening, "socket", _Sockets(network)),
        (server_core, "random", Random(network.seed)),
        (server, "certificates", certificates),
        (ports, "listen_tcp", lambda address, what: network.listen(2, address.port)),
        (ports, "listen_unix", lambda frontend: network.listen(1, 0)),
    ]
    with ExitStack() as stack:
        for module, name, value in replaced:
            stack.enter_context(patch.object(module, name, value))
        yield


class _Sockets:
    """The module `socket`, whose sockets are simulated."""

    def __init__(self, network: Network) -> None:
        import socket

        self._real: Final = socket
        self.socket: Final = network.socket

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
