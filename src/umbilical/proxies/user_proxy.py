"""Routes of an HTTP proxy to endpoints: with or without the user's own proxy behind the tunnel.

a host that bypasses the tunnel -> without the user's proxy     (cloud APIs)
listed in NO_PROXY, or no proxy -> through the tunnel to the endpoint
else                            -> through the tunnel to the user's proxy, which resolves the name
"""

from collections.abc import Callable
from typing import Final, Protocol

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.streams import Opener, Streams
from umbilical.proxies.direct import DirectHosts
from umbilical.proxies.http_head import Field, RequestTarget
from umbilical.proxies.metrics import DialObserver, observed
from umbilical.proxies.proxy_connect import ProxyTls, ProxyUrl, connect_through, hop_of, reach
from umbilical.proxies.proxy_rules import ProxyRules
from umbilical.record import Record


class UpstreamRoute(Record):
    """Where a plain request is sent."""

    host: str
    port: int
    proxy: ProxyUrl | None = None
    """Set if host and port are a proxy's: it is sent the whole URL instead of the path."""

    @property
    def key(self) -> tuple[str, int, str]:
        return self.host.lower(), self.port, self.proxy.scheme if self.proxy is not None else ""

    @property
    def fields(self) -> list[Field]:
        """Additional headers for a proxy; secret."""
        if self.proxy is None or not self.proxy.authorization:
            return []
        return [(b"Proxy-Authorization", self.proxy.authorization.encode("ascii"))]


class RequestRouter(Protocol):
    async def connect(self, target: RequestTarget) -> Streams:
        """Open a connection to the endpoint itself, for CONNECT. Raises DialFailed."""
        ...

    def route(self, target: RequestTarget) -> UpstreamRoute:
        """Return the route for an http:// URL."""
        ...

    async def open(self, route: UpstreamRoute) -> Streams:
        """Raises DialFailed."""
        ...


USER_PROXY: Final = "user-proxy"


class UserProxy:
    """Implements RequestRouter. `rules` is called for every request: the proxy's credentials may change."""

    def __init__(
        self,
        rules: Callable[[], ProxyRules],
        direct: DirectHosts,
        opener: Opener,
        tls: ProxyTls,
        observer: DialObserver,
    ) -> None:
        self._rules: Final = rules
        self._direct: Final = direct
        self._opener: Final = opener
        self._tls: Final = tls
        self._observer: Final = observer

    async def connect(self, target: RequestTarget) -> Streams:
        proxy = self._proxy("https", target)
        if proxy is None:
            return await self._opener.open(target.host, target.port)
        return await observed(self._observer, USER_PROXY, self._connect_through(proxy, target))

    def route(self, target: RequestTarget) -> UpstreamRoute:
        proxy = self._proxy("http", target)
        hop: RequestTarget | ProxyUrl = proxy or target
        return UpstreamRoute(hop.host, hop.port, proxy)

    async def open(self, route: UpstreamRoute) -> Streams:
        if route.proxy is None:
            return await self._opener.open(route.host, route.port)
        return await observed(self._observer, USER_PROXY, self._reach(route.proxy))

    def _proxy(self, scheme: str, target: RequestTarget) -> ProxyUrl | None:
        if target.host in self._direct:
            return None
        return self._rules().proxy_for(scheme, target.host.removesuffix("."), target.port)

    def _check_inside(self, proxy: ProxyUrl) -> None:
        """Refuse a proxy below a direct domain: its URL may have changed, and credentials must stay in the tunnel."""
        if proxy.host in self._direct:
            text = "its name is below a domain that bypasses the tunnel; restart this proxy to use the tunnel for it"
            raise DialFailed(DialReason.PROXY, hop_of(proxy), text)

    async def _reach(self, proxy: ProxyUrl) -> Streams:
        self._check_inside(proxy)
        return await reach(proxy, self._opener, self._tls)

    async def _connect_through(self, proxy: ProxyUrl, target: RequestTarget) -> Streams:
        """Report its 403 and 407 as a failure of the proxy: the client cannot correct them."""
        self._check_inside(proxy)
        try:
            return await connect_through(proxy, self._opener, target.host, target.port, self._tls)
        except DialFailed as failure:
            if failure.reason is DialReason.FORBIDDEN and failure.hop == hop_of(proxy):
                raise DialFailed(DialReason.PROXY, failure.hop, failure.text) from failure
            raise
