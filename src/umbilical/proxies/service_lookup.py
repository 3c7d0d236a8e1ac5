"""Addresses of Services in the hosted cluster, as its API says them; what it said is kept for a while.

All that is asked for is `get` on Services. An API that does not answer only means that DNS is asked.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from umbilical.fault import ApiRefused, ClusterError
from umbilical.proxies.dns_cache import Cache
from umbilical.proxies.dns_lookup import LookupObserver, Result, Way
from umbilical.proxies.dns_sharing import SharedWork
from umbilical.proxies.service_names import ServiceName, parse_service_name
from umbilical.tunnel.outbound import is_literal

if TYPE_CHECKING:
    from umbilical.cluster.client import ApiClient

log: Final = logging.getLogger(__name__)

KNOWN_SECONDS: Final = 30.0
"""A ClusterIP lives as long as its Service."""
UNKNOWN_SECONDS: Final = 10.0
"""A Service that was just made shall be found soon."""
AFTER_ERROR_SECONDS: Final = 5.0
"""For so long an API that failed is left alone."""
API_SECONDS: Final = 5.0


class HostedServices(Protocol):
    """The hosted cluster's API, as far as it is needed here."""

    async def cluster_ips(self, namespace: str, name: str) -> tuple[str, ...] | None:
        """All ClusterIPs; none for a headless Service or an ExternalName; None: there is no such Service.

        Raises umbilical.fault.ClusterError.
        """
        ...

    async def close(self) -> None: ...


class KubernetesServices:
    """Fulfils HostedServices by a kubeconfig, which is read when the first Service is asked for."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig: Final = kubeconfig
        self._client: ApiClient | None = None

    async def cluster_ips(self, namespace: str, name: str) -> tuple[str, ...] | None:
        if self._client is None:
            from umbilical.cluster.client import make_client

            self._client = make_client(self._kubeconfig)
        try:
            service = await self._client.request("GET", f"/api/v1/namespaces/{namespace}/services/{name}")
        except ApiRefused as refusal:
            if refusal.status == 404:
                return None
            raise
        return addresses_of(service)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


def addresses_of(service: dict[str, Any]) -> tuple[str, ...]:
    """The ClusterIPs of both families; what is no address ("None", or nothing yet) is left out."""
    spec = service.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    listed = spec.get("clusterIPs")
    found = listed if isinstance(listed, list) and listed else [spec.get("clusterIP")]
    return tuple(address for address in found if isinstance(address, str) and is_literal(address))


class ServiceLookup:
    def __init__(
        self,
        api: HostedServices,
        cluster_domain: str,
        observer: LookupObserver,
        now: Callable[[], float],
    ) -> None:
        self._api: Final = api
        self._domain: Final = cluster_domain
        self._observer: Final = observer
        self._now: Final = now
        self._known: Final = Cache[ServiceName, tuple[str, ...]](now)
        self._shared: Final = SharedWork[ServiceName, tuple[str, ...]]()
        self._failed_at: float | None = None

    async def find(self, host: str) -> tuple[str, ...]:
        """The Service's addresses; none where DNS is to be asked."""
        service = parse_service_name(host, self._domain)
        if service is None:
            return ()
        known = self._known.get(service)
        if known is not None:
            self._count(Result.CACHED)
            return known
        if self._failed_at is not None and self._now() < self._failed_at + AFTER_ERROR_SECONDS:
            return ()
        return await self._shared.run(service, lambda: self._ask(service))

    async def close(self) -> None:
        await self._shared.close()

    async def _ask(self, service: ServiceName) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(API_SECONDS):
                found = await self._api.cluster_ips(service.namespace, service.name)
        except TimeoutError:
            self._api_failed(Result.TIMEOUT, f"the hosted API gave no answer within {API_SECONDS:g} s")
            return ()
        except ClusterError as error:
            self._api_failed(Result.FAILED, error.brief)
            return ()
        self._failed_at = None
        self._known.put(service, found or (), KNOWN_SECONDS if found else UNKNOWN_SECONDS)
        self._count(Result.OK if found else Result.ABSENT)
        return found or ()

    def _api_failed(self, result: Result, why: str) -> None:
        if self._failed_at is None:
            log.warning("Services are not looked up, DNS is asked: %s", why)
        self._failed_at = self._now()
        self._count(result)

    def _count(self, result: Result) -> None:
        self._observer.looked_up(Way.SERVICE.value, result.value)
