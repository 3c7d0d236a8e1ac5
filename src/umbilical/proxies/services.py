"""Services of the hosted cluster: which names denote one, and their addresses from its API.

A public name whose first two labels look like a Service is not a Service. The API needs only `get` on Services; if it
does not answer, DNS is used.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from umbilical.fault import ApiRefused, ClusterError
from umbilical.proxies.lookup import Cache, LookupFailed, LookupObserver, LookupResult, LookupSource, SharedWork
from umbilical.record import Record
from umbilical.tunnel.outbound import is_literal

if TYPE_CHECKING:
    from umbilical.cluster.client import ApiClient

_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""RFC 1123: valid for namespaces and Services."""
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""Not a top-level domain: resolvers read a name that ends in a number as an address in an old notation."""
SERVICE_LABEL: Final = "svc"


class ServiceName(Record):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"Service {self.namespace}/{self.name}"


def parse_service_name(host: str, cluster_domain: str) -> ServiceName | None:
    """Parse NAME.NAMESPACE, NAME.NAMESPACE.svc or NAME.NAMESPACE.svc.DOMAIN; None for any other name.

    Two labels with a final dot are an absolute name, not a Service.
    """
    name = plain(host)
    if name.endswith(f".{SERVICE_LABEL}.{plain(cluster_domain)}"):
        name = name.removesuffix("." + plain(cluster_domain))
    labels = name.split(".")
    is_short = len(labels) == 2 and not host.endswith(".")
    if not (is_short or (len(labels) == 3 and labels[2] == SERVICE_LABEL)):
        return None
    if not all(map(_LABEL.fullmatch, labels)) or _is_address(labels):
        return None
    return ServiceName(labels[1], labels[0])


def is_cluster_name(host: str, cluster_domain: str) -> bool:
    """Return whether the name exists only in a cluster; this machine's cluster may have it too."""
    return plain(host).endswith((f".{SERVICE_LABEL}", "." + plain(cluster_domain)))


def is_public(host: str, cluster_domain: str) -> bool:
    """Return whether the name is public: not the cluster's own, not a short one, which a search list completes, not
    localhost, not an address in an old notation.
    """
    labels = plain(host).split(".")
    if len(labels) < 2 or not all(labels) or ":" in host or is_cluster_name(host, cluster_domain):
        return False
    return labels[-1] != "localhost" and not _NUMBER.fullmatch(labels[-1])


def absolute_names(host: str, cluster_domain: str) -> tuple[str, ...]:
    """Return the names to query, in order: short names of Services first, as for pods in the cluster."""
    name = plain(host)
    domain = plain(cluster_domain)
    if name.endswith(f".{SERVICE_LABEL}"):
        return (f"{name}.{domain}",)
    if name.count(".") == 1 and parse_service_name(host, cluster_domain) is not None:
        return (f"{name}.{SERVICE_LABEL}.{domain}", name)
    return (name,)


def plain(host: str) -> str:
    return host.lower().removesuffix(".")


def _is_address(labels: list[str]) -> bool:
    """Resolvers read 127.1 as an address."""
    return all(label.isdigit() for label in labels)


log: Final = logging.getLogger(__name__)

KNOWN_SECONDS: Final = 30.0
"""A ClusterIP does not change during the life of its Service."""
UNKNOWN_SECONDS: Final = 10.0
"""A new Service must be found soon."""
AFTER_ERROR_SECONDS: Final = 5.0
"""Pause after a failed request to the API."""
API_SECONDS: Final = 5.0


class HostedServices(Protocol):
    """The part of the hosted cluster's API that is needed here."""

    async def cluster_ips(self, namespace: str, name: str) -> tuple[str, ...] | None:
        """Return all ClusterIPs; empty if headless or ExternalName; None: no such Service. Raises ClusterError."""
        ...

    async def close(self) -> None: ...


class KubernetesServices:
    """Implements HostedServices with a kubeconfig, which is read at the first request."""

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
    """Return the ClusterIPs of both families, without "None" and missing ones."""
    spec = service.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    listed = spec.get("clusterIPs")
    found = listed if isinstance(listed, list) and listed else [spec.get("clusterIP")]
    return tuple(address for address in found if isinstance(address, str) and is_literal(address))


async def ask_api(api: HostedServices, service: ServiceName) -> tuple[str, ...] | None:
    """Call `cluster_ips` with a timeout. Raises LookupFailed."""
    try:
        async with asyncio.timeout(API_SECONDS):
            return await api.cluster_ips(service.namespace, service.name)
    except TimeoutError:
        text = f"the hosted cluster's API did not answer within {API_SECONDS:g} s"
        raise LookupFailed(LookupResult.TIMEOUT, str(service), text) from None
    except ClusterError as error:
        raise LookupFailed(LookupResult.FAILED, str(service), error.brief) from error


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
        """Return the Service's addresses; empty: use DNS."""
        service = parse_service_name(host, self._domain)
        if service is None:
            return ()
        known = self._known.get(service)
        if known is not None:
            self._count(LookupResult.CACHED)
            return known
        if self._failed_at is not None and self._now() < self._failed_at + AFTER_ERROR_SECONDS:
            return ()
        return await self._shared.run(service, lambda: self._ask(service))

    async def close(self) -> None:
        await self._shared.close()

    async def _ask(self, service: ServiceName) -> tuple[str, ...]:
        try:
            found = await ask_api(self._api, service)
        except LookupFailed as failure:
            self._api_failed(failure)
            return ()
        self._failed_at = None
        self._known.put(service, found or (), KNOWN_SECONDS if found else UNKNOWN_SECONDS)
        self._count(LookupResult.OK if found else LookupResult.ABSENT)
        return found or ()

    def _api_failed(self, failure: LookupFailed) -> None:
        if self._failed_at is None:
            log.warning("Service lookup failed, using DNS: %s", failure.text)
        self._failed_at = self._now()
        self._count(failure.result)

    def _count(self, result: LookupResult) -> None:
        self._observer.looked_up(LookupSource.SERVICE.value, result.value)
