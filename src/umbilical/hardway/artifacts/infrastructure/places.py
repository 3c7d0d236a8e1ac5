"""Paths of infrastructure files in the artifacts and on the host, and names of its virtual machines."""

import hashlib
from dataclasses import dataclass
from typing import Final

from umbilical.hardway.artifacts.layout import INFRASTRUCTURE
from umbilical.hardway.config.cluster import Cluster, ClusterNode, Libvirt, MachinesKind

HAPROXY_BOOTSTRAP: Final = f"{INFRASTRUCTURE}/haproxy.bootstrap.cfg"
HAPROXY_FINAL: Final = f"{INFRASTRUCTURE}/haproxy.final.cfg"
SERVER_CA: Final = f"{INFRASTRUCTURE}/haproxy-server-ca.crt"
"""CA with which the load balancer's checks verify kube-apiserver."""
MACHINE_CONFIG_CA: Final = f"{INFRASTRUCTURE}/haproxy-machine-config-ca.crt"
"""CA with which they verify the machine-config server; OpenShift only."""
COREFILE: Final = f"{INFRASTRUCTURE}/dns/Corefile"
ZONE: Final = f"{INFRASTRUCTURE}/dns/cluster.zone"
REVERSE_ZONE: Final = f"{INFRASTRUCTURE}/dns/reverse.zone"
NETWORK: Final = f"{INFRASTRUCTURE}/network.xml"
DOMAINS: Final = f"{INFRASTRUCTURE}/domains"
"""<node id>.xml"""
HOST_PLAN: Final = f"{INFRASTRUCTURE}/host-plan.json"
HOST_SCRIPT: Final = f"{INFRASTRUCTURE}/host-plan.sh"

DEFAULT_STATS_PORT: Final = 9000
# QEMU's prefix, which marks a virtual network card.
_MAC_PREFIX: Final = "52:54:00"


@dataclass(frozen=True)
class BalancerPlaces:
    """Paths in HAProxy's configuration."""

    config: str
    server_ca: str
    machine_config_ca: str
    stats_socket: str
    is_service: bool
    """systemd runs it as user haproxy in a chroot."""


SERVICE_PLACES: Final = BalancerPlaces(
    config="/etc/haproxy/haproxy.cfg",
    server_ca="/etc/haproxy/haproxy-server-ca.crt",
    machine_config_ca="/etc/haproxy/haproxy-machine-config-ca.crt",
    # SELinux lets haproxy_t make sockets there, and its package makes the directory.
    stats_socket="/var/lib/haproxy/stats",
    is_service=True,
)
"""Paths on a virtualisation host, as in the packages of distributions."""
OWN_PLACES: Final = BalancerPlaces(
    config="haproxy.cfg",
    server_ca="haproxy-server-ca.crt",
    machine_config_ca="haproxy-machine-config-ca.crt",
    stats_socket="unix@stats.sock",
    is_service=False,
)
"""Paths in a lab, relative to the directory of `-C`, see `balancer_command`."""


def libvirt_of(cluster: Cluster) -> Libvirt | None:
    """Return the libvirt settings, if the machines are libvirt's."""
    return cluster.libvirt if cluster.machines is MachinesKind.LIBVIRT else None


def balancer_places(cluster: Cluster) -> BalancerPlaces:
    return SERVICE_PLACES if libvirt_of(cluster) else OWN_PLACES


def balancer_command(folder: str) -> tuple[str, ...]:
    """Return the command that runs HAProxy in a directory with OWN_PLACES.

    `-W`: at SIGUSR2 the master process starts a new worker with the same listening sockets, so that no connection is
    refused; the old worker finishes its connections. `-C` must be absolute, because it is applied again.
    """
    return ("haproxy", "-W", "-C", folder, "-S", "unix@master.sock", "-f", OWN_PLACES.config)


def resolver_command() -> tuple[str, ...]:
    """Return the command that runs CoreDNS, in the directory of its Corefile, to which zone paths are relative."""
    return ("coredns", "-conf", "Corefile")


@dataclass(frozen=True)
class MachinePlaces:
    """Paths of one virtual machine, all in the pool directory: SELinux and modes forbid QEMU to read elsewhere."""

    domain: str
    disk: str
    iso: str
    """The live system with this node's Ignition config."""
    ignition: str


def machine_places(cluster: Cluster, libvirt: Libvirt, node: ClusterNode) -> MachinePlaces:
    domain = f"{cluster.name}-{node.id}"
    stem = f"{libvirt.pool_directory}/{domain}"
    return MachinePlaces(domain, f"{stem}.qcow2", f"{stem}.iso", f"{stem}.ign")


def base_iso(libvirt: Libvirt) -> str:
    return f"{libvirt.pool_directory}/{libvirt.iso}"


def domain_file(node: ClusterNode) -> str:
    return f"{DOMAINS}/{node.id}.xml"


def machine_address(cluster: Cluster, node: ClusterNode) -> str:
    """Return the MAC address: the configured one, or one derived from the names.

    A machine that is defined again must keep its MAC address.
    """
    if node.mac:
        return node.mac
    digest = _digest(cluster, node.id)
    return ":".join((_MAC_PREFIX, *(f"{byte:02x}" for byte in digest[:3])))


def stable_uuid(cluster: Cluster, what: str) -> str:
    """Return a UUID derived from the names: libvirt rejects a second definition with another UUID."""
    digest = bytearray(_digest(cluster, what)[:16])
    # RFC 9562 §5.8: version 8, for custom UUIDs.
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _digest(cluster: Cluster, what: str) -> bytes:
    return hashlib.sha256(f"{cluster.domain}/{what}".encode()).digest()
