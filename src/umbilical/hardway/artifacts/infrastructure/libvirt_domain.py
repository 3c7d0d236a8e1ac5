"""One virtual machine for libvirt: a disk that boots first, the live system behind it, one network card."""

from xml.etree.ElementTree import Element, SubElement

from umbilical.hardway.artifacts.infrastructure.places import machine_address, machine_places, stable_uuid
from umbilical.hardway.artifacts.infrastructure.xml_text import xml_bytes
from umbilical.hardway.config.cluster import Cluster, Libvirt, Node


def domain_xml(cluster: Cluster, libvirt: Libvirt, node: Node) -> bytes:
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
    """Put the disk first: empty it falls through to the live system, installed it never installs again."""
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
    # A console is a shell of the machine: for this host alone.
    SubElement(devices, "graphics", type="vnc", autoport="yes", listen="127.0.0.1")
    generator = SubElement(devices, "rng", model="virtio")
    SubElement(generator, "backend", model="random").text = "/dev/urandom"
