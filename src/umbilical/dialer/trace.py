"""What one dial passed through, and how long each part took: for people who ask where the time went."""

import time
from typing import Final, Literal

from umbilical.record import Record

HopName = Literal["connect", "tls", "agent", "dial", "endpoint tls"]


class Hop(Record):
    name: HopName
    seconds: float
    detail: str = ""
    """Where it led: an address, a TLS version, an agent's ID."""
    failure: str = ""
    """Why it went no further; empty where it did."""


class Trace:
    """Given to `Dialer.open`, and filled whether the dial succeeds or not.

    `agent` and `dial` are told apart by our own servers alone; another's answer is all counted as `dial`.
    """

    def __init__(self) -> None:
        self.hops: Final[list[Hop]] = []
        """Of the server that was tried last, in order; the last one may have failed."""
        self.server = ""
        """Which one that is."""
        self.passed_over: Final[list[str]] = []
        """Why servers tried before it were given up, each in one line."""

    def begin(self, server: str) -> None:
        """The next server is tried."""
        failed = [hop.failure for hop in self.hops if hop.failure]
        if failed:
            self.passed_over.append(f"{self.server}: {failed[-1]}")
        self.hops.clear()
        self.server = server

    def add(self, name: HopName, seconds: float, detail: str, failure: str = "") -> None:
        self.hops.append(Hop(name, seconds, detail, failure))

    @property
    def seconds(self) -> float:
        return sum(hop.seconds for hop in self.hops)


def add_hop(trace: Trace | None, name: HopName, started: float, detail: str, failure: str = "") -> None:
    """Note a hop that began at `started` and is over now, if anybody asked for a trace."""
    if trace is not None:
        trace.add(name, time.monotonic() - started, detail, failure)
