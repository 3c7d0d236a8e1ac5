"""How an HTTP proxy gets to an endpoint: what its requests ask for, whoever provides it."""

from typing import Protocol

from umbilical.dialer.opener import Streams
from umbilical.proxies.http_head import Field
from umbilical.proxies.http_target import Target
from umbilical.proxies.proxy_connect import ProxyUrl
from umbilical.record import Record


class Route(Record):
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


class Ways(Protocol):
    async def connect(self, target: Target) -> Streams:
        """For CONNECT: bytes to the endpoint itself. Raises DialFailed."""
        ...

    def route(self, target: Target) -> Route:
        """For http:// URLs."""
        ...

    async def open(self, route: Route) -> Streams:
        """Raises DialFailed."""
        ...
