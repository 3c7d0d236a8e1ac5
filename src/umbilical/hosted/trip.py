"""What one ping through the tunnel passed, hop by hop, and what many of them come to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.hosted.endpoint_tls import TlsFacts

ENDPOINT_TLS: Final = "endpoint tls"
HOPS: Final = ("connect", "tls", "agent", "dial", ENDPOINT_TLS)
"""In the order in which they are passed; those of the dialer's trace, and the handshake behind it."""
TOTAL: Final = "total"


@dataclass(frozen=True)
class Hop:
    name: str
    seconds: float
    detail: str = ""
    """Where it led: an address, a TLS version, an agent's ID."""


@dataclass(frozen=True)
class Failure:
    """The hop that broke, as users are told of it."""

    hop: str
    code: str
    reason: str
    """A word for programs."""
    what: str
    why: str
    """As the failing side said it."""
    remedy: str


@dataclass(frozen=True)
class Trip:
    sequence: int
    hops: tuple[Hop, ...]
    """The last one may be the one that failed."""
    failure: Failure | None = None
    server: TlsFacts | None = None
    endpoint: TlsFacts | None = None

    @property
    def is_ok(self) -> bool:
        return self.failure is None

    @property
    def seconds(self) -> float:
        return sum(hop.seconds for hop in self.hops)

    @property
    def agent(self) -> str | None:
        """Which agent was chosen; None where the server does not tell, or it did not come to that."""
        return next((hop.detail or None for hop in self.hops if hop.name == "agent"), None)

    def hop(self, name: str) -> Hop | None:
        return next((hop for hop in self.hops if hop.name == name), None)


@dataclass(frozen=True)
class Spread:
    minimum: float
    average: float
    maximum: float


@dataclass(frozen=True)
class Summary:
    sent: int
    ok: int
    hops: dict[str, Spread]
    """Seconds by hop, and their total, of the trips that passed it."""

    @property
    def lost(self) -> int:
        return self.sent - self.ok

    @property
    def loss_percent(self) -> float:
        return 100.0 * self.lost / self.sent if self.sent else 0.0


def summarize(trips: Sequence[Trip]) -> Summary:
    spreads = {name: _spread(_seconds(trips, name)) for name in HOPS}
    spreads[TOTAL] = _spread([trip.seconds for trip in trips if trip.is_ok])
    known = {name: spread for name, spread in spreads.items() if spread is not None}
    return Summary(len(trips), sum(trip.is_ok for trip in trips), known)


def distinct_failures(trips: Iterable[Trip]) -> list[Failure]:
    """Every failure once, in the order of their first."""
    return list(dict.fromkeys(trip.failure for trip in trips if trip.failure is not None))


def _seconds(trips: Sequence[Trip], name: str) -> list[float]:
    """Of a hop that was passed: how long a failure took says nothing about the others."""
    return [
        hop.seconds
        for trip in trips
        for hop in trip.hops
        if hop.name == name and not (trip.failure is not None and trip.failure.hop == name)
    ]


def _spread(seconds: list[float]) -> Spread | None:
    return Spread(min(seconds), sum(seconds) / len(seconds), max(seconds)) if seconds else None
