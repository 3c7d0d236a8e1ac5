"""The hops of one dial and the time of each."""

import time
from typing import Final, Literal

from umbilical.record import Record

HopName = Literal["connect", "tls", "agent", "dial", "endpoint tls"]


class Hop(Record):
    name: HopName
    seconds: float
    detail: str = ""
    """An address, a TLS version, an agent's ID."""
    failure: str = ""
    """Why the dial failed at this hop; empty if it did not."""


class Trace:
    """Passed to `Dialer.open`, which fills it whether the dial succeeds or not.

    Only our own servers report `agent` and `dial` separately; with others all of it counts as `dial`.
    """

    def __init__(self) -> None:
        self.hops: Final[list[Hop]] = []
        """Hops to the server that was tried last, in order; the last one may have failed."""
        self.server = ""
        """Name of the server that was tried last."""
        self.passed_over: Final[list[str]] = []
        """Failures of the servers tried before it, one line each."""

    def begin(self, server: str) -> None:
        """Start again with the next server."""
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
    """Add a hop that began at `started` and ends now, if there is a trace."""
    if trace is not None:
        trace.add(name, time.monotonic() - started, detail, failure)
