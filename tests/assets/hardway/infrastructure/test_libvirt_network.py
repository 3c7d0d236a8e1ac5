"""libvirt's network: names in full first, a wildcard, addresses for live systems outside those of nodes."""

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from tests.support.hardway import cluster

from umbilical.assets.hardway.cluster import Cluster
from umbilical.assets.hardway.infrastructure.libvirt_network import DNSMASQ, network_xml


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


def test_every_node_is_found_by_its_full_name_which_comes_first() -> None:
    of, root = _root()
    hosts = {host.attrib["ip"]: [name.text for name in host] for host in root.findall("dns/host")}
    assert {str(node.address): node.name for node in of.nodes}.items() <= {
        address: names[0] for address, names in hosts.items()
    }.items()
    assert hosts["192.168.126.10"] == [of.api_name, of.internal_api_name]


def test_there_is_a_record_for_each_member_of_etcd() -> None:
    _, root = _root()
    assert [srv.attrib["target"] for srv in root.findall("dns/srv")] == [
        f"etcd-{index}.ocp4.example.com" for index in range(3)
    ]


def test_every_name_below_apps_is_answered_by_an_option_of_dnsmasq() -> None:
    _, root = _root()
    option = root.find(f"{{{DNSMASQ}}}options/{{{DNSMASQ}}}option")
    assert option is not None
    assert option.attrib["value"] == "address=/apps.ocp4.example.com/192.168.126.11"
