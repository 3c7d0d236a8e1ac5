"""The route to one endpoint: through a server and an agent, then TLS with the endpoint. Results of pings hop by hop,
their summary, and a loop that sends them at a fixed interval.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from umbilical.dialer.dialer import Dialer
from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.settings import TcpServer
from umbilical.dialer.streams import Streams
from umbilical.dialer.trace import Hop, Trace
from umbilical.hosted.access import TunnelAccess
from umbilical.hosted.endpoint_tls import EndpointTls, TlsFacts, endpoint_context, facts_under, untrusting, words
from umbilical.hosted.http_call import Pipe, TlsPipe
from umbilical.pki.certificate import Certificate

ENDPOINT_TLS: Final = "endpoint tls"
HOPS: Final = ("connect", "tls", "agent", "dial", ENDPOINT_TLS)
"""In order: the hops of the dialer's trace, then the TLS handshake with the endpoint."""
TOTAL: Final = "total"


@dataclass(frozen=True)
class PingFailure:
    """The hop that failed, with the text for users."""

    hop: str
    code: str
    reason: str
    """Machine-readable."""
    what: str
    why: str
    """The failing side's own text."""
    remedy: str


@dataclass(frozen=True)
class PingResult:
    sequence: int
    hops: tuple[Hop, ...]
    """The last one may be the one that failed."""
    failure: PingFailure | None = None
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
        """The agent that was used; None if the server does not report it, or the dial did not get that far."""
        return next((hop.detail or None for hop in self.hops if hop.name == "agent"), None)

    def hop(self, name: str) -> Hop | None:
        return next((hop for hop in self.hops if hop.name == name), None)


@dataclass(frozen=True)
class PingSpread:
    minimum: float
    average: float
    maximum: float


@dataclass(frozen=True)
class PingSummary:
    sent: int
    ok: int
    hops: dict[str, PingSpread]
    """Seconds by hop, and in total, over the results in which it succeeded."""

    @property
    def lost(self) -> int:
        return self.sent - self.ok

    @property
    def loss_percent(self) -> float:
        return 100.0 * self.lost / self.sent if self.sent else 0.0


def summarize(results: Sequence[PingResult]) -> PingSummary:
    spreads = {name: _spread(_seconds(results, name)) for name in HOPS}
    spreads[TOTAL] = _spread([result.seconds for result in results if result.is_ok])
    known = {name: spread for name, spread in spreads.items() if spread is not None}
    return PingSummary(len(results), sum(result.is_ok for result in results), known)


def distinct_failures(results: Iterable[PingResult]) -> list[PingFailure]:
    """Return every failure once, in order of its first occurrence."""
    return list(dict.fromkeys(result.failure for result in results if result.failure is not None))


def _seconds(results: Sequence[PingResult], name: str) -> list[float]:
    """Return the times of a hop where it succeeded."""
    return [
        hop.seconds
        for result in results
        for hop in result.hops
        if hop.name == name and not (result.failure is not None and result.failure.hop == name)
    ]


def _spread(seconds: list[float]) -> PingSpread | None:
    return PingSpread(min(seconds), sum(seconds) / len(seconds), max(seconds)) if seconds else None


@dataclass(frozen=True)
class RouteEndpoint:
    host: str
    """A name is resolved by the agent."""
    port: int
    tls: EndpointTls | None = None
    """None: no TLS handshake."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class EndpointRoute:
    """Keeps one dialer, so that later handshakes with the server may resume a session."""

    def __init__(self, access: TunnelAccess, endpoint: RouteEndpoint, hop_seconds: float) -> None:
        """Raises HostedError or StartupError, before any dial, when a file cannot be loaded."""
        self.endpoint: Final = endpoint
        self._access: Final = access
        self._seconds: Final = hop_seconds
        self._context: Final = None if endpoint.tls is None else endpoint_context(endpoint.tls)
        self._dialer: Final = Dialer(access.dialer_settings(hop_seconds))

    async def open(self, sequence: int = 1) -> tuple[PingResult, Pipe | None]:
        """Dial once. Without a failure there is a pipe, which the caller closes."""
        trace = Trace()
        try:
            streams = await self._dialer.open(self.endpoint.host, self.endpoint.port, trace=trace)
        except DialFailed as failed:
            failure = _dial_failure(failed, trace, f"{self.endpoint} through {self._access.title}")
            return PingResult(sequence, tuple(trace.hops), failure, await self._refused_server_tls(failed)), None
        server = facts_under(streams[1], is_verified=True)
        if self._context is None:
            return PingResult(sequence, tuple(trace.hops), None, server), Pipe(streams)
        return await self._secure(sequence, trace, server, streams, self._context)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._dialer.close()

    async def _secure(
        self, sequence: int, trace: Trace, server: TlsFacts | None, streams: Streams, context: ssl.SSLContext
    ) -> tuple[PingResult, Pipe | None]:
        hops, began = tuple(trace.hops), time.monotonic()
        pipe = self._tls_pipe(streams, context)
        try:
            endpoint = await pipe.handshake(self._seconds)
        except OSError as error:
            pipe.close()
            hops = (*hops, Hop(ENDPOINT_TLS, time.monotonic() - began))
            seen = await self._refused_endpoint_tls() if isinstance(error, ssl.SSLCertVerificationError) else None
            return PingResult(sequence, hops, _tls_failure(error, self.endpoint, seen), server, seen), None
        except BaseException:
            pipe.close()
            raise
        hop = Hop(ENDPOINT_TLS, time.monotonic() - began, endpoint.version)
        return PingResult(sequence, (*hops, hop), None, server, endpoint), pipe

    def _tls_pipe(self, streams: Streams, context: ssl.SSLContext) -> TlsPipe:
        assert self.endpoint.tls is not None
        return TlsPipe(streams, context, self.endpoint.tls.server_name or self.endpoint.host)

    async def _refused_server_tls(self, failed: DialFailed) -> TlsFacts | None:
        """Connect again without verification: OpenSSL does not keep a refused certificate, and users need its names."""
        server = self._access.server
        if failed.reason is not DialReason.TLS or not isinstance(server, TcpServer):
            return None
        context = untrusting(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        try:
            async with asyncio.timeout(self._seconds):
                _, writer = await asyncio.open_connection(server.host, server.port, ssl=context)
        except OSError:
            return None  # optional: the failure is reported without it
        found = facts_under(writer, is_verified=False)
        writer.transport.abort()
        return found

    async def _refused_endpoint_tls(self) -> TlsFacts | None:
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


def _dial_failure(failed: DialFailed, trace: Trace, title: str) -> PingFailure:
    broken = next((hop.name for hop in trace.hops if hop.failure), "dial")
    # With TLS 1.3 the server refuses our certificate only after the handshake, when the answer is read.
    hop = "tls" if failed.reason is DialReason.TLS else broken
    report = failed.report
    return PingFailure(hop, report.code, failed.reason.value, f"{title}: {report.words}", failed.text, report.remedy)


def _tls_failure(error: OSError, endpoint: RouteEndpoint, seen: TlsFacts | None) -> PingFailure:
    why, remedy = words(error), "check that the endpoint speaks TLS on this port"
    if seen is not None and seen.certificate is not None:
        why += f"; its certificate is {_shown(seen.certificate)}"
        remedy = "compare the given CA, name and client certificate with this certificate"
    what = f"{endpoint}: the TLS handshake with the endpoint failed; the tunnel works"
    return PingFailure(ENDPOINT_TLS, "UMB574", "endpoint-tls", what, why, remedy)


def _shown(certificate: Certificate) -> str:
    names = ", ".join(certificate.names) or "no address at all"
    begin, end = (moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in (certificate.not_before, certificate.not_after))
    return f"CN={certificate.common_name} for {names}, signed by {certificate.issuer_name}, valid {begin} to {end}"


@dataclass(frozen=True)
class PingPace:
    count: int = 4
    interval_seconds: float = 1.0
    """From start to start; a ping that takes longer delays the next."""


async def ping(route: EndpointRoute, pace: PingPace, report: Callable[[PingResult], None]) -> None:
    """Report every result as soon as it is there."""
    async with route:
        began = time.monotonic()
        for number in range(pace.count):
            await asyncio.sleep(max(0.0, began + number * pace.interval_seconds - time.monotonic()))
            result, pipe = await route.open(number + 1)
            if pipe is not None:
                pipe.close()
            report(result)
