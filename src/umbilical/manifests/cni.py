"""How pods of a node get their network where no operator brings one: the reference plugins over a bridge."""

import json
from collections.abc import Sequence
from typing import Any, Final

from umbilical.manifests.values import IpNetwork

ADDRESSES_DIRECTORY: Final = "/var/lib/cni/networks"
CONFIG_DIRECTORY: Final = "/etc/cni/net.d"
"""Where containerd looks."""
_DEFAULT_ROUTES: Final = {4: "0.0.0.0/0", 6: "::/0"}


def bridge_conflist(name: str, bridge: str, networks: Sequence[IpNetwork]) -> bytes:
    """Write the configuration for the networks of one node, in their order: the first gives the pod's main address."""
    plugins = [_bridge(bridge, networks)]
    return json.dumps({"cniVersion": "1.0.0", "name": name, "plugins": plugins}, indent=2).encode()


def _bridge(bridge: str, networks: Sequence[IpNetwork]) -> dict[str, Any]:
    return {
        "type": "bridge",
        "bridge": bridge,
        # Where the bridge has the first address of the range already, the plugin is content.
        "isGateway": True,
        "hairpinMode": True,
        # The plugin would masquerade between nodes too, and hide which pod asked.
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "dataDir": ADDRESSES_DIRECTORY,
            "ranges": [[{"subnet": str(network), "gateway": str(network[1])}] for network in networks],
            "routes": [{"dst": _DEFAULT_ROUTES[network.version]} for network in networks],
        },
    }
