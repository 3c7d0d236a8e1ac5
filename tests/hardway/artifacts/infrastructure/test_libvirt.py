"""libvirt's network and virtual machines: addresses, names, disks, boot order, and texts that XML can carry."""

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from tests.support.hardway import cluster

from umbilical.hardway.artifacts.infrastructure.libvirt import domain_xml, network_xml, xml_bytes
from umbilical.hardway.config.cluster import Cluster


def _root(**changes: Any) -> tuple[Cluster, ElementTree.Element]:
    of = cluster(**changes)
    assert of.libvirt is not None
    return of, ElementTree.fromstring(network_xml(of, of.libvirt))


def _attributes(root: ElementTree.Element, path: str) -> dict[str, str]:
    found = root.find(path)
    assert found is not None
    return found.attrib


def test_the_network_is_masqueraded_behind_its_bridge() -> None:
    _, root = _root()
    assert _attributes(root, "forward") == {"mode": "nat"}
    assert _attributes(root, "bridge") == {"name": "virbr-ocp4", "stp": "on", "delay": "0"}
    assert _attributes(root, "ip") == {"family": "ipv4", "address": "192.168.126.1", "prefix": "24"}


def test_live_systems_get_addresses_and_only_if_there_is_a_range() -> None:
    of, root = _root()
    assert _attributes(root, "ip/dhcp/range") == {"start": "192.168.126.200", "end": "192.168.126.254"}
    _, without = _root(networks=replace(of.networks, dhcp=None))
    assert without.find("ip/dhcp") is None


def test_both_names_of_the_api_and_each_member_of_etcd_have_records() -> None:
    of, root = _root()
    hosts = {host.attrib["ip"]: [name.text for name in host] for host in root.findall("dns/host")}
    assert hosts["192.168.126.10"] == [of.api_name, of.internal_api_name]
    members = [f"etcd-{index}.ocp4.example.com" for index in range(3)]
    assert [srv.attrib["target"] for srv in root.findall("dns/srv")] == members


def _machine(node_id: str) -> ElementTree.Element:
    of = cluster()
    assert of.libvirt is not None
    return ElementTree.fromstring(domain_xml(of, of.libvirt, of.node(node_id)))


def test_a_machine_is_as_large_as_its_role_asks_on_the_clusters_network_and_its_live_system_cannot_be_written() -> None:
    master, worker = (_machine(node) for node in ("master-0", "worker-0"))
    assert (master.findtext("memory"), worker.findtext("memory"), worker.findtext("vcpu")) == ("16384", "8192", "4")
    assert _attributes(worker, "devices/interface/source") == {"network": "ocp4"}
    assert worker.find("devices/disk[@device='cdrom']/readonly") is not None


def test_each_element_has_its_line_and_text_is_escaped() -> None:
    root = Element("a")
    SubElement(root, "b", c='"').text = "<d>"
    assert xml_bytes(root) == b'<a>\n  <b c="&quot;">&lt;d&gt;</b>\n</a>\n'
