"""Addresses of Services in the hosted cluster, as its API says them; what it said is kept for a while."""

from typing import Protocol


class HostedServices(Protocol):
    """The hosted cluster's API, as far as it is needed here."""

    async def cluster_ips(self, namespace: str, name: str) -> tuple[str, ...] | None:
        """All ClusterIPs; none for a headless Service or an ExternalName; None: there is no such Service.

        Raises umbilical.cluster.errors.ClusterError.
        """
        ...

    async def close(self) -> None: ...
