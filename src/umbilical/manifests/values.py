"""Values that every spec checks alike: addresses, names, images, and the ports of a node."""

import ipaddress
import re
from typing import Final

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

AGENT_PORT: Final = 8091
"""Where agents reach a server, unless it is told otherwise."""
# The kubelet, etcd, the API servers, the machine config server and journal-gatewayd of a bootstrap node, and what
# metal3 adds on bare metal: a server that takes one of these keeps the node from coming up.
RESERVED_PORTS: Final = frozenset(
    {2379, 2380, 2381, 5050, 6080, 6180, 6181, 6183, 6385, 6388, 6443, 9978, 9979, 9980}
    | {10250, 10257, 10259, 19531, 22623, 22624}
)
PORT_RANGE: Final = range(1024, 49152)
LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# An image reference goes through sed into YAML, so only what a reference may hold is let in.
IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,510}")
