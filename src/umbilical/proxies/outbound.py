"""The way out of a proxy: from a host and a port to a connection, by name resolution, tunnel or direct path."""

import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, Protocol

from umbilical.dialer.failure import DialFailed
from umbilical.dialer.opener import Opener, Streams
from umbilical.proxies.dns_lookup import LookupObserver
from umbilical.proxies.happy_eyeballs import Race, interleaved
from umbilical.proxies.service_lookup import HostedServices
from umbilical.proxies.settings import OutboundSettings
from umbilical.proxies.tunnel_health import TunnelHealth, WatchedTunnel

TUNNEL: Final = "tunnel"
DIRECT: Final = "direct"


class Observer(LookupObserver, Protocol):
    """Who counts; `result` is "ok" or a Reason's value."""

    def dialled(self, way: str, result: str, seconds: float) -> None: ...


class Outbound:
    def __init__(
        self,
        settings: OutboundSettings,
        opener: Opener,
        environment: Mapping[str, str],
        lookups: HostedServices | None,
        observer: Observer,
    ) -> None:
        self._health: Final = TunnelHealth(opener)
        self._tunnel: Final = WatchedTunnel(opener, self._health)
        self._observer: Final = observer

    @property
    def is_tunnel_healthy(self) -> bool:
        return self._health.is_healthy

    async def open(self, host: str, port: int) -> Streams:
        """Raises DialFailed."""
        return await self._observed(TUNNEL, self._race((host,), port))

    async def close(self) -> None:
        await self._health.close()

    async def _race(self, addresses: Sequence[str], port: int) -> Streams:
        race = Race(lambda address: self._tunnel.open(address, port))
        _, streams = await race.run(interleaved(addresses))
        return streams

    async def _observed(self, way: str, dial: Awaitable[Streams]) -> Streams:
        began = time.monotonic()
        try:
            streams = await dial
        except DialFailed as failure:
            self._observer.dialled(way, failure.reason.value, time.monotonic() - began)
            raise
        self._observer.dialled(way, "ok", time.monotonic() - began)
        return streams
