"""Where the host of the machines keeps what the infrastructure needs, and how machines are called there."""

import hashlib
from dataclasses import dataclass
from typing import Final

from umbilical.hardway.artifacts.layout import INFRASTRUCTURE
from umbilical.hardway.config.cluster import Cluster, ClusterNode, Libvirt, MachinesKind

HAPROXY_BOOTSTRAP: Final = f"{INFRASTRUCTURE}/haproxy.bootstrap.cfg"
HAPROXY_FINAL: Final = f"{INFRASTRUCTURE}/haproxy.final.cfg"
SERVER_CA: Final = f"{INFRASTRUCTURE}/haproxy-server-ca.crt"
"""Whom the load balancer's checks believe to be kube-apiserver."""
MACHINE_CONFIG_CA: Final = f"{INFRASTRUCTURE}/haproxy-machine-config-ca.crt"
"""The same for the machine-config server; OpenShift only."""
COREFILE: Final = f"{INFRASTRUCTURE}/dns/Corefile"
ZONE: Final = f"{INFRASTRUCTURE}/dns/cluster.zone"
REVERSE_ZONE: Final = f"{INFRASTRUCTURE}/dns/reverse.zone"
NETWORK: Final = f"{INFRASTRUCTURE}/network.xml"
DOMAINS: Final = f"{INFRASTRUCTURE}/domains"
"""<node id>.xml"""
HOST_PLAN: Final = f"{INFRASTRUCTURE}/host-plan.json"
HOST_SCRIPT: Final = f"{INFRASTRUCTURE}/host-plan.sh"

DEFAULT_STATS_PORT: Final = 9000
# QEMU's own prefix, so that nobody takes such a card for a real one.
_MAC_PREFIX: Final = "52:54:00"


@dataclass(frozen=True)
class BalancerPlaces:
    """As HAProxy's configuration writes them."""

    config: str
    server_ca: str
    machine_config_ca: str
    stats_socket: str
    is_service: bool
    """Run by systemd under an account of its own, and shut into a directory."""


SERVICE_PLACES: Final = BalancerPlaces(
    config="/etc/haproxy/haproxy.cfg",
    server_ca="/etc/haproxy/haproxy-server-ca.crt",
    machine_config_ca="/etc/haproxy/haproxy-machine-config-ca.crt",
    # SELinux lets haproxy_t make sockets there, and its package makes the directory.
    stats_socket="/var/lib/haproxy/stats",
    is_service=True,
)
"""Of a virtualisation host: where the packages of distributions look."""
OWN_PLACES: Final = BalancerPlaces(
    config="haproxy.cfg",
    server_ca="haproxy-server-ca.crt",
    machine_config_ca="haproxy-machine-config-ca.crt",
    stats_socket="unix@stats.sock",
    is_service=False,
)
"""Of a lab: below a directory that `-C` names, see `balancer_command`."""


def libvirt_of(cluster: Cluster) -> Libvirt | None:
    """Return libvirt's part of the config where it counts."""
    return cluster.libvirt if cluster.machines is MachinesKind.LIBVIRT else None


def balancer_places(cluster: Cluster) -> BalancerPlaces:
    return SERVICE_PLACES if libvirt_of(cluster) else OWN_PLACES


def balancer_command(folder: str) -> tuple[str, ...]:
    """Say how a HAProxy of one's own is run from a directory that holds OWN_PLACES.

    `-W`: a master that starts a worker anew at SIGUSR2 and hands the listening sockets on, so that no connection is
    refused in between; the old worker serves what it has to its end. `-C` must be absolute: it is applied again.
    """
    return ("haproxy", "-W", "-C", folder, "-S", "unix@master.sock", "-f", OWN_PLACES.config)


def resolver_command() -> tuple[str, ...]:
    """Say how CoreDNS is run, in the directory of its Corefile: zones are named from there."""
    return ("coredns", "-conf", "Corefile")


@dataclass(frozen=True)
class MachinePlaces:
    """Of one virtual machine. QEMU may read below the pool's directory and not in a home: SELinux, and modes."""

    domain: str
    disk: str
    iso: str
    """The live system with this node's Ignition in it."""
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
    """Return the network card's own address: the config's, or one that follows from the names.

    Defining a machine again must not give it another card.
    """
    if node.mac:
        return node.mac
    digest = _digest(cluster, node.id)
    return ":".join((_MAC_PREFIX, *(f"{byte:02x}" for byte in digest[:3])))


def stable_uuid(cluster: Cluster, what: str) -> str:
    """libvirt refuses a second definition of a name with another UUID, and draws one where none is given."""
    digest = bytearray(_digest(cluster, what)[:16])
    # RFC 9562 §5.8: version 8, made by whatever means.
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _digest(cluster: Cluster, what: str) -> bytes:
    return hashlib.sha256(f"{cluster.domain}/{what}".encode()).digest()
