"""libvirt's XML: the network, with DNS and DHCP from its dnsmasq, and one virtual machine per node."""

from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from umbilical.hardway.artifacts.infrastructure.places import base_iso, machine_address, machine_places, stable_uuid
from umbilical.hardway.artifacts.infrastructure.zones import (
    ETCD_PEER_PORT,
    ETCD_SERVICE,
    SRV_PRIORITY,
    SRV_WEIGHT,
    etcd_names,
    host_records,
)
from umbilical.hardway.config.cluster import Cluster, ClusterNode, Libvirt

DEVICE: Final = "/dev/vda"


def install_commands(cluster: Cluster, libvirt: Libvirt, node: ClusterNode) -> list[tuple[str, ...]]:
    """Return the commands that make a node's live image and its empty disk; its Ignition config is in the image."""
    places = machine_places(cluster, libvirt, node)
    wanted = ("--dest-device", DEVICE, "--dest-ignition", places.ignition, "--output", places.iso)
    size = f"{cluster.sizes[node.role].disk_gib}G"
    return [
        ("coreos-installer", "iso", "customize", "--force", *wanted, base_iso(libvirt)),
        ("qemu-img", "create", "-q", "-f", "qcow2", places.disk, size),
    ]


def xml_bytes(root: ElementTree.Element) -> bytes:
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode").encode() + b"\n"


def domain_xml(cluster: Cluster, libvirt: Libvirt, node: ClusterNode) -> bytes:
    places, size = machine_places(cluster, libvirt, node), cluster.sizes[node.role]
    root = Element("domain", type="kvm")
    SubElement(root, "name").text = places.domain
    SubElement(root, "uuid").text = stable_uuid(cluster, node.id)
    SubElement(root, "memory", unit="MiB").text = str(size.memory_mib)
    SubElement(root, "vcpu").text = str(size.cpus)
    _add_boot(root)
    features = SubElement(root, "features")
    SubElement(features, "acpi")
    SubElement(features, "apic")
    SubElement(root, "cpu", mode="host-passthrough")
    SubElement(root, "clock", offset="utc")
    for event, action in (("poweroff", "destroy"), ("reboot", "restart"), ("crash", "destroy")):
        SubElement(root, f"on_{event}").text = action
    devices = SubElement(root, "devices")
    _add_disks(devices, places.disk, places.iso)
    _add_network(devices, libvirt, machine_address(cluster, node))
    _add_consoles(devices)
    return xml_bytes(root)


def _add_boot(root: Element) -> None:
    """Boot from disk first: an empty disk falls through to the live system, an installed one is not overwritten."""
    system = SubElement(root, "os")
    SubElement(system, "type", arch="x86_64", machine="q35").text = "hvm"
    SubElement(system, "boot", dev="hd")
    SubElement(system, "boot", dev="cdrom")


def _add_disks(devices: Element, disk: str, iso: str) -> None:
    hard_disk = SubElement(devices, "disk", type="file", device="disk")
    SubElement(hard_disk, "driver", name="qemu", type="qcow2")
    SubElement(hard_disk, "source", file=disk)
    SubElement(hard_disk, "target", dev="vda", bus="virtio")
    cdrom = SubElement(devices, "disk", type="file", device="cdrom")
    SubElement(cdrom, "driver", name="qemu", type="raw")
    SubElement(cdrom, "source", file=iso)
    SubElement(cdrom, "target", dev="sda", bus="sata")
    SubElement(cdrom, "readonly")


def _add_network(devices: Element, libvirt: Libvirt, address: str) -> None:
    card = SubElement(devices, "interface", type="network")
    SubElement(card, "mac", address=address)
    SubElement(card, "source", network=libvirt.network)
    SubElement(card, "model", type="virtio")


def _add_consoles(devices: Element) -> None:
    SubElement(devices, "serial", type="pty")
    SubElement(devices, "console", type="pty")
    channel = SubElement(devices, "channel", type="unix")
    SubElement(channel, "target", type="virtio", name="org.qemu.guest_agent.0")
    # The console gives full access to the machine, so it listens on loopback only.
    SubElement(devices, "graphics", type="vnc", autoport="yes", listen="127.0.0.1")
    generator = SubElement(devices, "rng", model="virtio")
    SubElement(generator, "backend", model="random").text = "/dev/urandom"


DNSMASQ: Final = "http://libvirt.org/schemas/network/dnsmasq/1.0"
# As in libvirt's example: lower ports belong to the host.
_NAT_PORTS: Final = ("1024", "65535")


def network_xml(cluster: Cluster, libvirt: Libvirt) -> bytes:
    root = Element("network", {"xmlns:dnsmasq": DNSMASQ})
    SubElement(root, "name").text = libvirt.network
    SubElement(root, "uuid").text = stable_uuid(cluster, "network")
    nat = SubElement(SubElement(root, "forward", mode="nat"), "nat")
    SubElement(nat, "port", start=_NAT_PORTS[0], end=_NAT_PORTS[1])
    SubElement(root, "bridge", name=libvirt.bridge, stp="on", delay="0")
    # Queries for this domain are not forwarded: a wrong name must fail here.
    SubElement(root, "domain", name=cluster.domain, localOnly="yes")
    _add_names(root, cluster)
    _add_addresses(root, cluster)
    # libvirt's <dns> does not support wildcards.
    options = SubElement(root, "dnsmasq:options")
    wildcard = f"address=/{cluster.apps_domain}/{cluster.networks.ingress_vip}"
    SubElement(options, "dnsmasq:option", value=wildcard)
    return xml_bytes(root)


def _add_names(root: Element, cluster: Cluster) -> None:
    dns = SubElement(root, "dns")
    for target in etcd_names(cluster):
        SubElement(
            dns,
            "srv",
            service=ETCD_SERVICE,
            protocol="tcp",
            domain=cluster.domain,
            target=target,
            port=str(ETCD_PEER_PORT),
            priority=str(SRV_PRIORITY),
            weight=str(SRV_WEIGHT),
        )
    for record in host_records(cluster):
        host = SubElement(dns, "host", ip=str(record.address))
        for name in record.names:
            SubElement(host, "hostname").text = name


def _add_addresses(root: Element, cluster: Cluster) -> None:
    networks = cluster.networks
    family = "ipv6" if networks.gateway.version == 6 else "ipv4"
    prefix = str(networks.machine.prefixlen)
    ip = SubElement(root, "ip", family=family, address=str(networks.gateway), prefix=prefix)
    if networks.dhcp is not None:
        pool = SubElement(ip, "dhcp")
        SubElement(pool, "range", start=str(networks.dhcp.first), end=str(networks.dhcp.last))
