"""The network of pods: one bridge, one range per family."""

import json
from ipaddress import ip_network

from umbilical.lab.kubelet import cni


def test_each_network_of_the_node_is_a_range_with_the_bridge_as_gateway() -> None:
    networks = [ip_network("10.92.3.0/24"), ip_network("fd92:0:0:3::/64")]
    written = json.loads(cni.conflist(networks))
    (bridge,) = written["plugins"]
    assert (bridge["type"], bridge["bridge"], bridge["isGateway"]) == ("bridge", "pods0", True)
    assert bridge["ipam"]["ranges"] == [
        [{"subnet": "10.92.3.0/24", "gateway": "10.92.3.1"}],
        [{"subnet": "fd92:0:0:3::/64", "gateway": "fd92:0:0:3::1"}],
    ]
    assert bridge["ipam"]["routes"] == [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]


def test_masquerading_is_left_to_the_node() -> None:
    (bridge,) = json.loads(cni.conflist([ip_network("10.92.3.0/24")]))["plugins"]
    assert bridge["ipMasq"] is False


def test_addresses_are_remembered_inside_the_node() -> None:
    (bridge,) = json.loads(cni.conflist([ip_network("10.92.3.0/24")]))["plugins"]
    assert bridge["ipam"]["dataDir"] == "/var/lib/cni/networks"
