"""The network of pods: one bridge, one range per family. What the lab does with it is shown by its kubelet's tests."""

import json
from ipaddress import ip_network

from umbilical.assets.cni import bridge_conflist


def test_the_bridge_is_the_gateway_of_every_range() -> None:
    written = json.loads(bridge_conflist("pods", "pods0", [ip_network("10.128.2.0/23"), ip_network("fd92::/64")]))
    (bridge,) = written["plugins"]
    assert (written["name"], bridge["bridge"], bridge["isGateway"]) == ("pods", "pods0", True)
    assert bridge["ipam"]["ranges"] == [
        [{"subnet": "10.128.2.0/23", "gateway": "10.128.2.1"}],
        [{"subnet": "fd92::/64", "gateway": "fd92::1"}],
    ]


def test_pods_keep_their_addresses_on_the_way_to_other_nodes() -> None:
    (bridge,) = json.loads(bridge_conflist("pods", "pods0", [ip_network("10.128.2.0/23")]))["plugins"]
    assert bridge["ipMasq"] is False
