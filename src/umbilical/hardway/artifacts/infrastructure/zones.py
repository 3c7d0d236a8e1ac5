"""Zone files with the cluster's names, and the Corefile of a CoreDNS that serves them."""

import ipaddress
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from umbilical.hardway.config.cluster import Cluster
from umbilical.manifests.objects import IpAddress, IpNetwork

ETCD_PEER_PORT: Final = 2380
ETCD_SERVICE: Final = "etcd-server-ssl"
SRV_PRIORITY: Final = 0
SRV_WEIGHT: Final = 10


@dataclass(frozen=True)
class HostRecord:
    address: IpAddress
    names: tuple[str, ...]
    """Full names; the first is the result of a reverse lookup."""


def host_records(cluster: Cluster) -> list[HostRecord]:
    """List the names of the API and of every node."""
    api = HostRecord(cluster.networks.api_vip, (cluster.api_name, cluster.internal_api_name))
    etcd = dict(zip((node.id for node in cluster.masters), etcd_names(cluster), strict=True))
    nodes = [
        HostRecord(node.address, (node.name, *((etcd[node.id],) if node.id in etcd else ()))) for node in cluster.nodes
    ]
    return [api, *nodes]


def etcd_names(cluster: Cluster) -> list[str]:
    """Return the targets of the SRV records with which old etcd clients find members."""
    return [f"etcd-{index}.{cluster.domain}" for index, _ in enumerate(cluster.masters)]


TTL_SECONDS: Final = 60
DNS_PORT: Final = 53
_COREFILE: Final = """\
.:{port} {{
    bind {address}
    errors
    # Paths of zones are relative to this file; a zone with a new serial is reloaded without a restart.
    file cluster.zone {domain} {{
        reload 10s
    }}
    file reverse.zone {reverse} {{
        reload 10s
    }}
}}
"""


def corefile(cluster: Cluster, port: int = DNS_PORT) -> bytes:
    reverse = reverse_zone_name(cluster.networks.machine)
    text = _COREFILE.format(port=port, address=cluster.networks.dns, domain=cluster.domain, reverse=reverse)
    return text.encode()


def cluster_zone(cluster: Cluster) -> bytes:
    """Return the zone with API, nodes, etcd's SRV records, and the wildcard below apps."""
    lines = [_address(name, record.address) for record in host_records(cluster) for name in record.names]
    lines.append(_address(f"*.{cluster.apps_domain}", cluster.networks.ingress_vip))
    service = f"_{ETCD_SERVICE}._tcp.{cluster.domain}."
    value = f"IN SRV {SRV_PRIORITY} {SRV_WEIGHT} {ETCD_PEER_PORT}"
    lines += [f"{service} {value} {target}." for target in etcd_names(cluster)]
    return _zone(cluster, cluster.domain, lines)


def reverse_zone(cluster: Cluster) -> bytes:
    lines = [f"{record.address.reverse_pointer}. IN PTR {record.names[0]}." for record in host_records(cluster)]
    return _zone(cluster, reverse_zone_name(cluster.networks.machine), lines)


def reverse_zone_name(network: IpNetwork) -> str:
    """Return the smallest zone with all addresses of a network; reverse names consist of whole octets or nibbles."""
    bits = 8 if network.version == 4 else 4
    labels = ipaddress.ip_address(network.network_address).reverse_pointer.split(".")
    length = network.prefixlen // bits
    root = labels[-2:]
    return ".".join(labels[:-2][len(labels) - 2 - length :] + root)


def _address(name: str, address: IpAddress) -> str:
    return f"{name}. IN {'A' if address.version == 4 else 'AAAA'} {address}"


def _zone(cluster: Cluster, origin: str, lines: Sequence[str]) -> bytes:
    server = f"ns.{cluster.domain}"
    glue = [_address(server, cluster.networks.dns)] if origin == cluster.domain else []
    body = [f"{origin}. IN NS {server}.", *glue, *lines]
    # The serial is derived from the content: CoreDNS reloads a zone with another serial.
    serial = zlib.crc32("\n".join(body).encode())
    mailbox = f"hostmaster.{cluster.domain}"
    start = f"{origin}. IN SOA {server}. {mailbox}. {serial} 3600 600 86400 {TTL_SECONDS}"
    return "\n".join((f"$TTL {TTL_SECONDS}", start, *body, "")).encode()
