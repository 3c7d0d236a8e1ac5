"""How pods of a node get their network: the reference plugins over the node's own bridge.

The bridge and its address are there already, made with the node; masquerading is the node's business too.
"""

import json
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Final

PATH: Final = "/etc/cni/net.d/10-lab.conflist"
BRIDGE: Final = "pods0"
ADDRESSES_DIRECTORY: Final = "/var/lib/cni/networks"
_DEFAULT_ROUTES: Final = {4: "0.0.0.0/0", 6: "::/0"}


def conflist(networks: Sequence[IPv4Network | IPv6Network]) -> bytes:
    """Write the configuration for the networks of one node, in their order: the first gives the pod's main address."""
    plugins = [_bridge(networks)]
    return json.dumps({"cniVersion": "1.0.0", "name": "lab", "plugins": plugins}, indent=2).encode()


def _bridge(networks: Sequence[IPv4Network | IPv6Network]) -> dict[str, Any]:
    return {
        "type": "bridge",
        "bridge": BRIDGE,
        # The plugin finds the first address of the range on the bridge, as it would have set it.
        "isGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "dataDir": ADDRESSES_DIRECTORY,
            "ranges": [[{"subnet": str(network), "gateway": str(network[1])}] for network in networks],
            "routes": [{"dst": _DEFAULT_ROUTES[network.version]} for network in networks],
        },
    }
