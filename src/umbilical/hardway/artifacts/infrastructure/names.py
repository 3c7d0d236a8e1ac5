"""Which names the cluster's resolver answers: one table for zone files and for libvirt's network."""

from dataclasses import dataclass
from typing import Final

from umbilical.hardway.config.cluster import Cluster
from umbilical.manifests.objects import IpAddress

ETCD_PEER_PORT: Final = 2380
ETCD_SERVICE: Final = "etcd-server-ssl"
SRV_PRIORITY: Final = 0
SRV_WEIGHT: Final = 10


@dataclass(frozen=True)
class HostRecord:
    address: IpAddress
    names: tuple[str, ...]
    """In full; the first is what a reverse lookup says."""


def host_records(cluster: Cluster) -> list[HostRecord]:
    """List the API's names and every node's. A machine may learn its host name by a reverse lookup."""
    api = HostRecord(cluster.networks.api_vip, (cluster.api_name, cluster.internal_api_name))
    etcd = dict(zip((node.id for node in cluster.masters), etcd_names(cluster), strict=True))
    nodes = [
        HostRecord(node.address, (node.name, *((etcd[node.id],) if node.id in etcd else ()))) for node in cluster.nodes
    ]
    return [api, *nodes]


def etcd_names(cluster: Cluster) -> list[str]:
    """Return the targets of the SRV records by which old etcd clients look for members."""
    return [f"etcd-{index}.{cluster.domain}" for index, _ in enumerate(cluster.masters)]
