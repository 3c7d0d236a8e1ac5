"""How pods of a lab's node get their network: the reference plugins over the node's own bridge.

The bridge and its address are there already, made with the node; masquerading is the node's business too.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from umbilical.manifests.objects import CONFIG_DIRECTORY, bridge_conflist

PATH: Final = f"{CONFIG_DIRECTORY}/10-lab.conflist"
BRIDGE: Final = "pods0"


def conflist(networks: Sequence[IPv4Network | IPv6Network]) -> bytes:
    """Write the configuration for the networks of one node, in their order: the first gives the pod's main address."""
    return bridge_conflist("lab", BRIDGE, networks)
