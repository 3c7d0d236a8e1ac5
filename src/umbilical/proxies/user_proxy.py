"""How an HTTP proxy gets to an endpoint: through the user's own proxy, behind the tunnel, or straight.

a host that leaves past the tunnel -> no user's proxy     (the APIs of a cloud)
NO_PROXY names it, or no proxy     -> straight through the tunnel
else                               -> to the proxy through the tunnel; it is sent the name unresolved
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
    """Whom a plain request is sent to."""

    host: str
    port: int
    proxy: ProxyUrl | None = None
    """The same place as a proxy: it is sent the whole URL instead of the path."""

    @property
    def key(self) -> tuple[str, int, str]:
        return self.host.lower(), self.port, self.proxy.scheme if self.proxy is not None else ""

    @property
    def fields(self) -> list[Field]:
        """What a proxy wants to see beside the client's own; secrets."""
        if self.proxy is None or not self.proxy.authorization:
            return []
        return [(b"Proxy-Authorization", self.proxy.authorization.encode("ascii"))]


class RequestRouter(Protocol):
    async def connect(self, target: RequestTarget) -> Streams:
        """For CONNECT: bytes to the endpoint itself. Raises DialFailed."""
        ...

    def route(self, target: RequestTarget) -> UpstreamRoute:
        """For http:// URLs."""
        ...

    async def open(self, route: UpstreamRoute) -> Streams:
        """Raises DialFailed."""
        ...


USER_PROXY: Final = "user-proxy"


class UserProxy:
    """Fulfils RequestRouter. `rules` is asked at every request: the proxy's credentials may change."""

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
        return (
            UpstreamRoute(target.host, target.port) if proxy is None else UpstreamRoute(proxy.host, proxy.port, proxy)
        )

    async def open(self, route: UpstreamRoute) -> Streams:
        if route.proxy is None:
            return await self._opener.open(route.host, route.port)
        return await observed(self._observer, USER_PROXY, self._reach(route.proxy))

    def _proxy(self, scheme: str, target: RequestTarget) -> ProxyUrl | None:
        if target.host in self._direct:
            return None
        return self._rules().proxy_for(scheme, target.host.removesuffix("."), target.port)

    def _check_inside(self, proxy: ProxyUrl) -> None:
        """Its URL may have changed since what is direct was decided: credentials must not go past the tunnel."""
        if proxy.host in self._direct:
            text = "its name is under a domain that is reached past the tunnel; start this proxy again to go through it"
            raise DialFailed(DialReason.PROXY, hop_of(proxy), text)

    async def _reach(self, proxy: ProxyUrl) -> Streams:
        self._check_inside(proxy)
        return await reach(proxy, self._opener, self._tls)

    async def _connect_through(self, proxy: ProxyUrl, target: RequestTarget) -> Streams:
        """Its 403 and 407 are no answer to our client, who can do nothing about either; it hears the words of it."""
        self._check_inside(proxy)
        try:
            return await connect_through(proxy, self._opener, target.host, target.port, self._tls)
        except DialFailed as failure:
            if failure.reason is DialReason.FORBIDDEN and failure.hop == hop_of(proxy):
                raise DialFailed(DialReason.PROXY, failure.hop, failure.text) from failure
            raise
