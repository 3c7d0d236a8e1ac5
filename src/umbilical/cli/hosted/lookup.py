"""ClusterIPs of a control plane's Services, asked of the management cluster before anything is rendered."""

import asyncio
import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.spec import HostedSpec, IpAddress

if TYPE_CHECKING:
    from umbilical.cluster.client import ApiClient

_NONE: Final = ("", "None")
"""What a Service has in place of an address before it gets one, and if it shall have none."""


def with_looked_up(spec: HostedSpec, kubeconfig: Path) -> HostedSpec:
    """Put the addresses of aggregated APIs in: of Services that the spec names, and of those with the label.

    Raises:
        Fault: the API does not answer, or refuses.
    """
    from umbilical.cluster.client import make_client

    async def look() -> dict[str, tuple[IpAddress, ...]]:
        async with make_client(kubeconfig) as client:
            return await look_up(client, spec)

    return spec.with_addresses(asyncio.run(look()))


async def look_up(client: "ApiClient", spec: HostedSpec) -> dict[str, tuple[IpAddress, ...]]:
    from umbilical.cluster import objects

    kind = objects.Kind("Service", "/api/v1", "services")
    return addresses(await objects.list_objects(client, kind, spec.namespace), spec)


def addresses(services: Iterable[Mapping[str, Any]], spec: HostedSpec) -> dict[str, tuple[IpAddress, ...]]:
    """Pick from a list of Services; those that have no address yet are left out."""
    named = {api.service for api in spec.aggregated_apis}
    found = {}
    for service in services:
        head, body = service.get("metadata") or {}, service.get("spec") or {}
        is_labelled = (head.get("labels") or {}).get(names.AGGREGATED_LABEL) == "true"
        texts = body.get("clusterIPs") or [body.get("clusterIP") or ""]
        if (is_labelled or head.get("name") in named) and not any(text in _NONE for text in texts):
            found[head["name"]] = tuple(ipaddress.ip_address(text) for text in texts)
    return found
