"""libvirt's network: a bridge behind masquerading, with names and addresses from its own dnsmasq."""

from typing import Final
from xml.etree.ElementTree import Element, SubElement

from umbilical.hardway.artifacts.infrastructure.names import (
    ETCD_PEER_PORT,
    ETCD_SERVICE,
    SRV_PRIORITY,
    SRV_WEIGHT,
    etcd_names,
    host_records,
)
from umbilical.hardway.artifacts.infrastructure.places import stable_uuid
from umbilical.hardway.artifacts.infrastructure.xml_text import xml_bytes
from umbilical.hardway.config.cluster import Cluster, Libvirt

DNSMASQ: Final = "http://libvirt.org/schemas/network/dnsmasq/1.0"
# What libvirt's own example has: ports below are the host's.
_NAT_PORTS: Final = ("1024", "65535")


def network_xml(cluster: Cluster, libvirt: Libvirt) -> bytes:
    root = Element("network", {"xmlns:dnsmasq": DNSMASQ})
    SubElement(root, "name").text = libvirt.network
    SubElement(root, "uuid").text = stable_uuid(cluster, "network")
    nat = SubElement(SubElement(root, "forward", mode="nat"), "nat")
    SubElement(nat, "port", start=_NAT_PORTS[0], end=_NAT_PORTS[1])
    SubElement(root, "bridge", name=libvirt.bridge, stp="on", delay="0")
    # Questions about this domain are never passed on: a wrong name must fail, not leave the house.
    SubElement(root, "domain", name=cluster.domain, localOnly="yes")
    _add_names(root, cluster)
    _add_addresses(root, cluster)
    # libvirt's own <dns> knows no wildcard.
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
