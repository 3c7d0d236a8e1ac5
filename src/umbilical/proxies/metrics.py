"""Metrics of a proxy in Prometheus' text format, with the same names for SOCKS5 and HTTP.

Counters are kept here; gauges are read from their owners at each scrape.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from umbilical.dialer.failure import DialFailed
from umbilical.dialer.streams import Streams
from umbilical.tunnel.exposition import Exposition, Histogram, Labels, add, observe
from umbilical.tunnel.metrics import CertificateMetrics, render_process

OK: Final = "ok"
DIAL_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Up to --reply-timeout, the longest wait for a server's answer."""

Gauge = Callable[[], int]


class DialObserver(Protocol):
    """Counts dials; `result` is "ok" or the value of a DialReason."""

    def dialled(self, route: str, result: str, seconds: float) -> None: ...


async def observed(observer: DialObserver, route: str, dial: Awaitable[Streams]) -> Streams:
    """Await a dial and report its result to the observer. Raises DialFailed as the dial does."""
    began = time.monotonic()
    try:
        streams = await dial
    except DialFailed as failure:
        observer.dialled(route, failure.reason.value, time.monotonic() - began)
        raise
    observer.dialled(route, OK, time.monotonic() - began)
    return streams


class ByteCount:
    """A mutable counter for hot code."""

    def __init__(self) -> None:
        self.total = 0


class Traffic:
    """Payload bytes of all clients."""

    def __init__(self) -> None:
        self.to_endpoint: Final = ByteCount()
        self.to_client: Final = ByteCount()


class ProxyMetrics:
    def __init__(self) -> None:
        self.traffic: Final = Traffic()
        self.certificates: Final = CertificateMetrics()
        self.connections: Gauge = _none
        """Number of connected clients; set by the listener."""
        self.tunnel_healthy: Gauge = _none
        """1 while the tunnel works; set by DeferredOutbound."""
        self._refused: dict[Labels, float] = {}
        self._requests: dict[Labels, float] = {}
        self._dials: dict[Labels, float] = {}
        self._dial_seconds: dict[Labels, Histogram] = {}
        self._lookups: dict[Labels, float] = {}

    def refused(self, reason: str) -> None:
        """A connection was closed without being served: `limit` or `draining`."""
        add(self._refused, (reason,))

    def requested(self, protocol: str, result: str) -> None:
        """`protocol` is socks5, connect or http; `result` is ok, a DialReason's value, bad-request, …"""
        add(self._requests, (protocol, result))

    def dialled(self, route: str, result: str, seconds: float) -> None:
        """`route` is tunnel, direct or user-proxy; `result` is ok or the value of a DialReason."""
        add(self._dials, (route, result))
        observe(self._dial_seconds, (route,), DIAL_BOUNDS, seconds)

    def looked_up(self, source: str, result: str) -> None:
        """`source` is guest, service or management; `result` is ok, nxdomain, timeout, failed or cached."""
        add(self._lookups, (source, result))

    def render(self) -> bytes:
        out = Exposition()
        out.single_gauge("umbilical_proxy_connections", "Clients connected now.", self.connections())
        text = "Whether the tunnel works, according to its dials: 1 or 0."
        out.single_gauge("umbilical_proxy_tunnel_healthy", text, self.tunnel_healthy())
        self._render_clients(out)
        self._render_dials(out)
        self.certificates.render(out)
        render_process(out)
        return out.render()

    def _render_clients(self, out: Exposition) -> None:
        text = "Connections that were closed without being served, by reason."
        out.counter("umbilical_proxy_refused_connections_total", text, ("reason",), self._refused)
        text = "Requests of clients, by protocol and result."
        out.counter("umbilical_proxy_requests_total", text, ("protocol", "result"), self._requests)
        moved: dict[Labels, float] = {
            ("to_endpoint",): self.traffic.to_endpoint.total,
            ("to_client",): self.traffic.to_client.total,
        }
        text = "Payload bytes, by direction."
        out.counter("umbilical_proxy_bytes_total", text, ("direction",), moved)

    def _render_dials(self, out: Exposition) -> None:
        text = "Dials, by route (tunnel, direct, user-proxy) and result."
        out.counter("umbilical_proxy_dials_total", text, ("way", "result"), self._dials)
        text = "Duration of dials in seconds, by route."
        out.histogram("umbilical_proxy_dial_duration_seconds", text, ("way",), self._dial_seconds)
        text = "Name lookups, by source (guest, service, management) and result."
        out.counter("umbilical_proxy_lookups_total", text, ("way", "result"), self._lookups)


def _none() -> int:
    return 0
