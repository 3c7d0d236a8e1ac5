"""The way to one endpoint: through a server and an agent, then TLS with it. What one ping passed hop by hop, what many
of them come to, and how they are sent at an even pace.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from umbilical.dialer.dialer import Dialer
from umbilical.dialer.failure import DialFailed, Reason
from umbilical.dialer.settings import TcpServer
from umbilical.dialer.streams import Streams
from umbilical.dialer.trace import Trace
from umbilical.hosted.access import Access
from umbilical.hosted.endpoint_tls import EndpointTls, TlsFacts, endpoint_context, facts_under, untrusting, words
from umbilical.hosted.http_call import Pipe, TlsPipe
from umbilical.pki.certificate import Certificate

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


@dataclass(frozen=True)
class Endpoint:
    host: str
    """A name is resolved by the agent."""
    port: int
    tls: EndpointTls | None = None
    """None: no handshake with it."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Way:
    """Keeps one dialer, as a program would: later handshakes with the server may be resumed ones."""

    def __init__(self, access: Access, endpoint: Endpoint, hop_seconds: float) -> None:
        """Raises HostedError or StartupError when files cannot be used: before anything is dialled."""
        self.endpoint: Final = endpoint
        self._access: Final = access
        self._seconds: Final = hop_seconds
        self._context: Final = None if endpoint.tls is None else endpoint_context(endpoint.tls)
        self._dialer: Final = Dialer(access.dialer_settings(hop_seconds))

    async def open(self, sequence: int = 1) -> tuple[Trip, Pipe | None]:
        """Go the way once. The pipe is there if the trip is ok, and the caller's to close."""
        trace = Trace()
        try:
            streams = await self._dialer.open(self.endpoint.host, self.endpoint.port, trace=trace)
        except DialFailed as failed:
            failure = _dial_failure(failed, trace, f"{self.endpoint} through {self._access.title}")
            return Trip(sequence, _hops(trace), failure, await self._second_look(failed)), None
        server = facts_under(streams[1], is_verified=True)
        if self._context is None:
            return Trip(sequence, _hops(trace), None, server), Pipe(streams)
        return await self._secure(sequence, trace, server, streams, self._context)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._dialer.close()

    async def _secure(
        self, sequence: int, trace: Trace, server: TlsFacts | None, streams: Streams, context: ssl.SSLContext
    ) -> tuple[Trip, Pipe | None]:
        hops, began = _hops(trace), time.monotonic()
        pipe = self._tls_pipe(streams, context)
        try:
            endpoint = await pipe.handshake(self._seconds)
        except OSError as error:
            pipe.close()
            hops = (*hops, Hop(ENDPOINT_TLS, time.monotonic() - began))
            seen = await self._look_at_endpoint() if isinstance(error, ssl.SSLCertVerificationError) else None
            return Trip(sequence, hops, _tls_failure(error, self.endpoint, seen), server, seen), None
        except BaseException:
            pipe.close()
            raise
        hop = Hop(ENDPOINT_TLS, time.monotonic() - began, endpoint.version)
        return Trip(sequence, (*hops, hop), None, server, endpoint), pipe

    def _tls_pipe(self, streams: Streams, context: ssl.SSLContext) -> TlsPipe:
        assert self.endpoint.tls is not None
        return TlsPipe(streams, context, self.endpoint.tls.server_name or self.endpoint.host)

    async def _second_look(self, failed: DialFailed) -> TlsFacts | None:
        """OpenSSL keeps nothing of a certificate that it refuses, and people need its names and dates."""
        server = self._access.server
        if failed.reason is not Reason.TLS or not isinstance(server, TcpServer):
            return None
        context = untrusting(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        try:
            async with asyncio.timeout(self._seconds):
                _, writer = await asyncio.open_connection(server.host, server.port, ssl=context)
        except OSError:
            return None  # it is an extra: the failure is told without it
        found = facts_under(writer, is_verified=False)
        writer.transport.abort()
        return found

    async def _look_at_endpoint(self) -> TlsFacts | None:
        assert self.endpoint.tls is not None
        context = untrusting(endpoint_context(self.endpoint.tls))
        try:
            streams = await self._dialer.open(self.endpoint.host, self.endpoint.port)
        except DialFailed:
            return None
        pipe = self._tls_pipe(streams, context)
        try:
            return await pipe.handshake(self._seconds)
        except OSError:
            return None
        finally:
            pipe.close()


def _hops(trace: Trace) -> tuple[Hop, ...]:
    return tuple(Hop(hop.name, hop.seconds, hop.detail) for hop in trace.hops)


def _dial_failure(failed: DialFailed, trace: Trace, title: str) -> Failure:
    broken = next((hop.name for hop in trace.hops if hop.failure), "dial")
    # With TLS 1.3 a refused certificate of ours shows only when the answer to the dial is read.
    hop = "tls" if failed.reason is Reason.TLS else broken
    verdict = failed.verdict
    return Failure(hop, verdict.code, failed.reason.value, f"{title}: {verdict.words}", failed.text, verdict.remedy)


def _tls_failure(error: OSError, endpoint: Endpoint, seen: TlsFacts | None) -> Failure:
    why, remedy = words(error), "does it speak TLS on this port?"
    if seen is not None and seen.certificate is not None:
        why += f"; its certificate is {_shown(seen.certificate)}"
        remedy = "compare the CA, the name and the pair that you gave with this certificate"
    what = f"{endpoint}: TLS with the endpoint failed, the tunnel to it works"
    return Failure(ENDPOINT_TLS, "UMB574", "endpoint-tls", what, why, remedy)


def _shown(certificate: Certificate) -> str:
    names = ", ".join(certificate.names) or "no address at all"
    begin, end = (moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in (certificate.not_before, certificate.not_after))
    return f"CN={certificate.common_name} for {names}, signed by {certificate.issuer_name}, valid {begin} to {end}"


@dataclass(frozen=True)
class Pace:
    count: int = 4
    interval_seconds: float = 1.0
    """Between two beginnings; a trip that takes longer is not overtaken."""


async def ping(way: Way, pace: Pace, tell: Callable[[Trip], None]) -> None:
    """Tell of every trip as soon as it is over."""
    async with way:
        began = time.monotonic()
        for number in range(pace.count):
            await asyncio.sleep(max(0.0, began + number * pace.interval_seconds - time.monotonic()))
            trip, pipe = await way.open(number + 1)
            if pipe is not None:
                pipe.close()
            tell(trip)
