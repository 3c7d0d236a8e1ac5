"""The network of one pod: a namespace, and a link from it to the node's bridge.

Called by whoever runs pods, in a process that is inside the node's network and mount namespaces.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from umbilical.fault import LabError
from umbilical.host import namespaces
from umbilical.lab.netlink import NAME_LENGTH, Netlink, create_namespace, inside
from umbilical.lab.network import DEFAULT_ROUTES, POD_BRIDGE
from umbilical.lab.topology import IpAddress, IpInterface

# As container runtimes call it.
POD_LINK: Final = "eth0"


def attach(
    namespace: Path,
    name: str,
    addresses: Sequence[IpInterface],
    gateways: Sequence[IpAddress],
    bridge: str = POD_BRIDGE,
) -> None:
    """Make a network namespace at a path that is free, with `eth0` on the node's bridge; `name` is the node's end.

    Raises:
        LabError: the name is too long, name or path is in use, or the kernel refuses; nothing is left behind then.
    """
    if not 0 < len(name) <= NAME_LENGTH:
        why = f"a link's name has at most {NAME_LENGTH} letters"
        raise LabError("UMB818", f"cannot call a pod's link {name!r}", why, "take a shorter name")
    create_namespace(namespace)
    try:
        with Netlink() as netlink:
            _link(netlink, namespace, name, bridge)
        inside(namespace, lambda netlink: _furnish(netlink, addresses, gateways))
    except BaseException:
        detach(namespace)
        raise


def detach(namespace: Path) -> None:
    """Remove a pod's network; the node's end goes with it. Doing it twice is fine.

    The link goes first and for sure: a process that still runs would keep the namespace, and so the address in use.
    """
    if namespace.exists():
        inside(namespace, lambda netlink: netlink.delete_link(POD_LINK))
        namespaces.remove_network(namespace)


def _link(netlink: Netlink, namespace: Path, name: str, bridge: str) -> None:
    netlink.add_veth(name, POD_LINK, namespace)
    netlink.join_bridge(name, bridge)
    netlink.set_link(name, up=True)


def _furnish(netlink: Netlink, addresses: Sequence[IpInterface], gateways: Sequence[IpAddress]) -> None:
    netlink.set_link("lo", up=True)
    netlink.set_link(POD_LINK, up=True)
    for address in addresses:
        netlink.add_address(POD_LINK, address)
    for gateway in gateways:
        netlink.set_route(DEFAULT_ROUTES[gateway.version], gateway)
