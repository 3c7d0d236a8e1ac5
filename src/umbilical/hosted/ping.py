"""Dials an endpoint through the tunnel, over and over, and takes the time of every hop."""

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from umbilical.dialer.dialer import Dialer
from umbilical.dialer.failure import DialFailed, Reason
from umbilical.dialer.opener import Streams
from umbilical.dialer.settings import TcpServer
from umbilical.dialer.trace import Trace
from umbilical.hosted.access import Access
from umbilical.hosted.endpoint_tls import EndpointTls, TlsFacts, endpoint_context, facts_under, untrusting, words
from umbilical.hosted.pipe import TlsPipe
from umbilical.hosted.trip import ENDPOINT_TLS, Failure, Hop, Trip
from umbilical.pki.certificate import Certificate


@dataclass(frozen=True)
class PingOptions:
    host: str
    """A name is resolved by the agent."""
    port: int
    count: int = 4
    interval_seconds: float = 1.0
    hop_seconds: float = 10.0
    """For every hop."""
    tls: EndpointTls | None = None
    """None: no handshake with the endpoint."""


class Pinger:
    """Keeps one dialer, as a program would: later handshakes with the server may be resumed ones."""

    def __init__(self, access: Access, options: PingOptions) -> None:
        self._access = access
        self._options = options
        self._dialer = Dialer(access.dialer_settings(options.hop_seconds))
        # Files that cannot be used are told of before anything is dialled.
        self._context = None if options.tls is None else endpoint_context(options.tls)

    async def run(self, tell: Callable[[Trip], None]) -> None:
        """Ping as often as asked for, with the interval between beginnings."""
        began = time.monotonic()
        async with self._dialer:
            for number in range(self._options.count):
                await asyncio.sleep(max(0.0, began + number * self._options.interval_seconds - time.monotonic()))
                tell(await self.ping(number + 1))

    async def ping(self, sequence: int) -> Trip:
        trace, options = Trace(), self._options
        try:
            streams = await self._dialer.open(options.host, options.port, trace=trace)
        except DialFailed as failed:
            failure = _dial_failure(failed, trace, f"{_place(options)} through {self._access.title}")
            return Trip(sequence, _hops(trace), failure, await self._second_look(failed))
        try:
            server = facts_under(streams[1], is_verified=True)
            return await self._finish(sequence, trace, server, streams)
        finally:
            streams[1].transport.abort()

    async def _finish(self, sequence: int, trace: Trace, server: TlsFacts | None, streams: Streams) -> Trip:
        hops = _hops(trace)
        if self._context is None:
            return Trip(sequence, hops, None, server)
        began = time.monotonic()
        try:
            endpoint = await self._shake_hands(streams, self._context)
        except OSError as error:
            hops = (*hops, Hop(ENDPOINT_TLS, time.monotonic() - began))
            seen = await self._look_at_endpoint() if isinstance(error, ssl.SSLCertVerificationError) else None
            return Trip(sequence, hops, _tls_failure(error, self._options, seen), server, seen)
        hop = Hop(ENDPOINT_TLS, time.monotonic() - began, endpoint.version)
        return Trip(sequence, (*hops, hop), None, server, endpoint)

    async def _shake_hands(self, streams: Streams, context: ssl.SSLContext) -> TlsFacts:
        assert self._options.tls is not None
        name = self._options.tls.server_name or self._options.host
        return await TlsPipe(streams, context, name).handshake(self._options.hop_seconds)

    async def _second_look(self, failed: DialFailed) -> TlsFacts | None:
        """OpenSSL keeps nothing of a certificate that it refuses, and people need its names and dates."""
        server = self._access.server
        if failed.reason is not Reason.TLS or not isinstance(server, TcpServer):
            return None
        context = untrusting(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        try:
            async with asyncio.timeout(self._options.hop_seconds):
                _, writer = await asyncio.open_connection(server.host, server.port, ssl=context)
        except OSError:
            return None  # it is an extra: the failure is told without it
        found = facts_under(writer, is_verified=False)
        writer.transport.abort()
        return found

    async def _look_at_endpoint(self) -> TlsFacts | None:
        assert self._options.tls is not None
        context = untrusting(endpoint_context(self._options.tls))
        try:
            streams = await self._dialer.open(self._options.host, self._options.port)
        except DialFailed:
            return None
        try:
            return await self._shake_hands(streams, context)
        except OSError:
            return None
        finally:
            streams[1].transport.abort()


def _hops(trace: Trace) -> tuple[Hop, ...]:
    return tuple(Hop(hop.name, hop.seconds, hop.detail) for hop in trace.hops)


def _dial_failure(failed: DialFailed, trace: Trace, title: str) -> Failure:
    broken = next((hop.name for hop in trace.hops if hop.failure), "dial")
    # With TLS 1.3 a refused certificate of ours shows only when the answer to the dial is read.
    hop = "tls" if failed.reason is Reason.TLS else broken
    verdict = failed.verdict
    return Failure(hop, verdict.code, failed.reason.value, f"{title}: {verdict.words}", failed.text, verdict.remedy)


def _tls_failure(error: OSError, options: PingOptions, seen: TlsFacts | None) -> Failure:
    why = words(error)
    if seen is not None and seen.certificate is not None:
        why += f"; its certificate is {_shown(seen.certificate)}"
    what = f"{_place(options)}: TLS with the endpoint failed, the tunnel to it works"
    return Failure(ENDPOINT_TLS, "UMB574", "endpoint-tls", what, why, "compare with --endpoint-ca, --endpoint-name")


def _shown(certificate: Certificate) -> str:
    names = ", ".join(certificate.names) or "no address at all"
    begin, end = (moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in (certificate.not_before, certificate.not_after))
    return f"CN={certificate.common_name} for {names}, signed by {certificate.issuer_name}, valid {begin} to {end}"


def _place(options: PingOptions) -> str:
    return f"[{options.host}]:{options.port}" if ":" in options.host else f"{options.host}:{options.port}"
