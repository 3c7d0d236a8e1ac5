"""Where the hosted cluster's DNS servers are: as given, or as the Service of its DNS says, again after each failure."""

import asyncio
from collections.abc import Callable
from typing import Final

from umbilical.fault import ClusterError, StartupError
from umbilical.proxies.dns_lookup import LookupFailed, Result
from umbilical.proxies.service_lookup import HostedServices
from umbilical.proxies.service_names import ServiceName
from umbilical.tunnel.outbound import is_literal

PORT: Final = 53
LOOK_AGAIN_SECONDS: Final = 1.0
"""The API is asked no oftener, however many lookups fail."""
API_SECONDS: Final = 5.0

Server = tuple[str, int]


def parse_servers(given: tuple[str, ...]) -> tuple[Server, ...]:
    """Raises StartupError."""
    return tuple(map(_parse_server, given))


def parse_service(text: str) -> ServiceName:
    """Raises StartupError."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise StartupError(
            "UMB535",
            f"the Service of the hosted cluster's DNS cannot be {text!r}",
            "it is no NAMESPACE/NAME",
            "write it like openshift-dns/dns-default or kube-system/kube-dns",
        )
    return ServiceName(namespace, name)


def _parse_server(text: str) -> Server:
    host, port = text, str(PORT)
    if text.startswith("[") and "]" in text:
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if rest else port
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not is_literal(host) or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise StartupError(
            "UMB534",
            f"the hosted cluster's DNS server cannot be {text!r}",
            "it is no address",
            "write it as IP, IP:PORT or [IPv6]:PORT",
        )
    return host, int(port)


class DnsServers:
    def __init__(
        self,
        given: tuple[Server, ...],
        service: ServiceName,
        api: HostedServices | None,
        now: Callable[[], float],
    ) -> None:
        self._given: Final = given
        self._service: Final = service
        self._api: Final = api
        self._now: Final = now
        self._found: tuple[Server, ...] = ()
        self._doubted = True
        self._asked_at: float | None = None
        self._failure: LookupFailed | None = None
        self._asking: Final = asyncio.Lock()

    async def current(self) -> tuple[Server, ...]:
        """At least one. Raises LookupFailed."""
        if self._given:
            return self._given
        async with self._asking:
            if self._is_due():
                await self._ask()
        if not self._found:
            assert self._failure is not None
            raise self._failure
        return self._found

    def doubt(self) -> None:
        """None of them gave an answer: the Service may have been made anew, with another address."""
        self._doubted = True

    def _is_due(self) -> bool:
        if self._asked_at is not None and self._now() < self._asked_at + LOOK_AGAIN_SECONDS:
            return False
        return self._doubted or not self._found

    async def _ask(self) -> None:
        """What was found before stays in use while the API cannot say better."""
        found = await self._addresses()
        self._asked_at = self._now()
        if isinstance(found, LookupFailed):
            self._failure = found
        else:
            self._found = tuple((address, PORT) for address in found)
            self._doubted = False

    async def _addresses(self) -> tuple[str, ...] | LookupFailed:
        service = self._service
        hop = f"Service {service.namespace}/{service.name}"
        if self._api is None:
            return LookupFailed(Result.FAILED, hop, "there is no kubeconfig to look it up with")
        try:
            async with asyncio.timeout(API_SECONDS):
                found = await self._api.cluster_ips(service.namespace, service.name)
        except TimeoutError:
            return LookupFailed(Result.TIMEOUT, hop, f"the hosted API gave no answer within {API_SECONDS:g} s")
        except ClusterError as error:
            return LookupFailed(Result.FAILED, hop, error.brief)
        if not found:
            words = "there is no such Service" if found is None else "it has no ClusterIP"
            return LookupFailed(Result.FAILED, hop, f"{words} to ask for names")
        return found
