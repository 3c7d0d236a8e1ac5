"""The wires of a lab: a switch, a link from it to every node, and the ways between the nodes' pods.

Runs inside the keeper. Each node and the switch is a network namespace, held by a mount in the keeper's own mount
namespace: when the keeper ends, all of it is gone. Nodes know the way to each other's pods; the bootstrap node does
not, and its default route ends at the switch, which answers "network is unreachable". Where the control plane has a
network of its own, the switch is also the edge between the two: it lets nodes dial a few ports there, and nothing back.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from umbilical.fault import LabError
from umbilical.host import namespaces
from umbilical.lab import nft, packet_filter
from umbilical.lab.netlink import NAME_LENGTH, Netlink, create_namespace, inside
from umbilical.lab.topology import IpAddress, IpInterface, IpNetwork, Management, Node, Topology

SWITCH: Final = "switch"
SWITCH_BRIDGE: Final = "switch0"
MACHINE_LINK: Final = "machine0"
MANAGEMENT_BRIDGE: Final = "manage0"
POD_BRIDGE: Final = "pods0"
POD_RULES: Final = "pods"
TRANSIT_RULES: Final = "transit"
# Locally administered. Fixed, since a bridge would otherwise take another one with every link that joins it.
SWITCH_HARDWARE_ADDRESS: Final = "02:75:6d:62:00:01"
MANAGEMENT_HARDWARE_ADDRESS: Final = "02:75:6d:62:00:02"
DEFAULT_ROUTES: Final[Mapping[int, IpNetwork]] = {
    4: ipaddress.ip_network("0.0.0.0/0"),
    6: ipaddress.ip_network("::/0"),
}
SETTINGS: Final = Path("/proc/sys/net")
# Written before there are links, so that `default` becomes theirs. Values of the host's namespace are partly inherited.
COMMON_SETTINGS: Final = {
    4: {"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0"},
    # Without them a link's own address is tentative for a second, and nodes would listen to router advertisements.
    6: {
        "ipv6/conf/all/disable_ipv6": "0",
        "ipv6/conf/default/disable_ipv6": "0",
        "ipv6/conf/default/accept_dad": "0",
        "ipv6/conf/default/dad_transmits": "0",
        "ipv6/conf/default/accept_ra": "0",
        "ipv6/conf/default/keep_addr_on_down": "1",
    },
}
FORWARDING: Final = {4: {"ipv4/ip_forward": "1"}, 6: {"ipv6/conf/all/forwarding": "1"}}
# Refusals are counted per second otherwise, and a dial that is not refused hangs.
UNLIMITED_REFUSALS: Final = {4: {"ipv4/icmp_ratelimit": "0"}, 6: {"ipv6/icmp/ratelimit": "0"}}


class LabNetwork:
    """The namespaces of one lab, as files in `folder`."""

    def __init__(self, topology: Topology, folder: Path) -> None:
        self._topology = topology
        self._folder = folder

    def namespace(self, node: str) -> Path:
        """Say which file holds a node's namespace. Raises LabError: there is no such node."""
        return self._folder / self._topology.node(node).name

    def build(self) -> None:
        """Make all namespaces, links, addresses, routes and rules. Raises LabError: the machine refuses something."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._create(self._folder / SWITCH, self._switch_settings())
        for node in self._topology.nodes:
            self._create(self._folder / node.name, FORWARDING if node.pod_networks else {})
        inside(self._folder / SWITCH, self._furnish_switch)
        for node in self._topology.nodes:
            self._furnish(node)

    def set_link(self, node: str, up: bool) -> None:
        """Cut or mend the cable of a node.

        At the switch's end: the node keeps its addresses and routes and merely hears nothing any more.
        """
        port = _port(self._topology.node(node))
        inside(self._folder / SWITCH, lambda netlink: netlink.set_link(port, up=up))
        if up:
            self._forget_neighbours()

    def set_default_route(self, node: str, present: bool) -> None:
        """Give a node its way to the switch, or take it. Doing it twice is fine."""
        change = _add_default_routes if present else _delete_default_routes
        gateways = self._topology.gateways_of(self._topology.node(node))
        inside(self.namespace(node), lambda netlink: change(netlink, gateways))

    def add_rules(self, node: str, name: str, ruleset: str) -> None:
        """Load the inside of a table (see `umbilical.lab.nft`) under a name, in place of what had that name.

        Raises LabError: there is no `nft` (UMB822), or it refuses the rules; nothing has changed then.
        """
        namespaces.in_network(self.namespace(node), lambda: nft.load(name, ruleset))

    def remove_rules(self, node: str, name: str) -> None:
        """Remove what `add_rules` loaded. Rules that are not there are fine."""
        namespaces.in_network(self.namespace(node), lambda: packet_filter.unload(name))

    def count_port(self, node: str, name: str, port: int) -> None:
        """Count the bytes that come to a TCP port of a node and leave from it, under a name; `remove_rules` ends it."""
        namespaces.in_network(self.namespace(node), lambda: packet_filter.load(name, packet_filter.count_port(port)))

    def counted_bytes(self, node: str, name: str) -> int:
        """Return what was counted since `count_port`; 0 where nothing counts."""
        return namespaces.in_network(self.namespace(node), lambda: packet_filter.counted_bytes(name))

    def describe(self) -> dict[str, object]:
        """Say how things are now, as the kernel tells it, in values that JSON knows."""
        nodes = {node.name: self._describe(node) for node in self._topology.nodes}
        return {"switch": [str(gateway) for gateway in self._topology.gateways], "nodes": nodes}

    def _create(self, path: Path, more: Mapping[int, Mapping[str, str]]) -> None:
        create_namespace(path)
        namespaces.in_network(path, lambda: self._write_settings(more))
        inside(path, lambda netlink: netlink.set_link("lo", up=True))

    def _write_settings(self, more: Mapping[int, Mapping[str, str]]) -> None:
        for version in self._topology.family.versions:
            for name, value in {**COMMON_SETTINGS[version], **more.get(version, {})}.items():
                _write_setting(name, value)

    def _switch_settings(self) -> dict[int, Mapping[str, str]]:
        forwarding = {} if self._topology.management is None else FORWARDING
        return {version: {**UNLIMITED_REFUSALS[version], **forwarding.get(version, {})} for version in (4, 6)}

    def _furnish_switch(self, netlink: Netlink) -> None:
        topology, management = self._topology, self._topology.management
        _add_bridge(netlink, SWITCH_BRIDGE, SWITCH_HARDWARE_ADDRESS, topology.gateways, topology.machine_networks)
        if management is not None:
            hardware = MANAGEMENT_HARDWARE_ADDRESS
            _add_bridge(netlink, MANAGEMENT_BRIDGE, hardware, management.gateways, management.networks)
        for node in topology.nodes:
            bridge = MANAGEMENT_BRIDGE if topology.is_managed(node) else SWITCH_BRIDGE
            netlink.add_veth(_port(node), MACHINE_LINK, self._folder / node.name)
            netlink.join_bridge(_port(node), bridge)
            netlink.set_link(_port(node), up=True)
        # One table: what any of them refuses is refused.
        alone = packet_filter.refuse_transit(SWITCH_HARDWARE_ADDRESS)
        chains = alone if management is None else _edge(management, topology.machine_networks)
        packet_filter.load(TRANSIT_RULES, chains)

    def _furnish(self, node: Node) -> None:
        inside(self._folder / node.name, lambda netlink: self._furnish_node(netlink, node))

    def _furnish_node(self, netlink: Netlink, node: Node) -> None:
        netlink.set_link(MACHINE_LINK, up=True)
        for address in node.addresses:
            netlink.add_address(MACHINE_LINK, address)
        _add_default_routes(netlink, self._topology.gateways_of(node))
        if node.pod_networks:
            self._furnish_pods(netlink, node)

    def _furnish_pods(self, netlink: Netlink, node: Node) -> None:
        netlink.add_bridge(POD_BRIDGE)
        netlink.set_link(POD_BRIDGE, up=True)
        for gateway in node.pod_gateways:
            netlink.add_address(POD_BRIDGE, gateway)
        for other in self._topology.nodes:
            if other.name != node.name:
                _route_to_pods(netlink, other)
        chains = packet_filter.masquerade(node.pod_networks, self._topology.pod_networks, MACHINE_LINK)
        packet_filter.load(POD_RULES, chains)

    def _forget_neighbours(self) -> None:
        """Let nobody be told "no route to host" by a question that was asked while the cable was cut."""
        for node in self._topology.nodes:
            inside(self._folder / node.name, lambda netlink: netlink.forget_neighbours(MACHINE_LINK))

    def _describe(self, node: Node) -> dict[str, object]:
        path = self._folder / node.name
        seen = inside(path, _look)
        rules = [name for name in namespaces.in_network(path, packet_filter.loaded) if name != POD_RULES]
        return {
            "namespace": str(path),
            "pod_networks": [str(network) for network in node.pod_networks],
            **seen,
            "rules": rules,
        }


def _port(node: Node) -> str:
    """Name the switch's end of a node's link."""
    return f"to-{node.name}"


def _edge(management: Management, outside: Sequence[IpNetwork]) -> list[packet_filter.Chain]:
    openings = [(each.address, each.port) for each in management.openings]
    return packet_filter.edge(SWITCH_HARDWARE_ADDRESS, MANAGEMENT_HARDWARE_ADDRESS, outside, openings)


def _add_bridge(
    netlink: Netlink, name: str, hardware: str, gateways: Sequence[IpAddress], networks: Sequence[IpNetwork]
) -> None:
    """Make a bridge that has the gateways' addresses itself."""
    netlink.add_bridge(name, hardware)
    netlink.set_link(name, up=True)
    widths = {network.version: network.prefixlen for network in networks}
    for gateway in gateways:
        netlink.add_address(name, ipaddress.ip_interface(f"{gateway}/{widths[gateway.version]}"))


def _add_default_routes(netlink: Netlink, gateways: Sequence[IpAddress]) -> None:
    for gateway in gateways:
        netlink.set_route(DEFAULT_ROUTES[gateway.version], gateway)


def _delete_default_routes(netlink: Netlink, gateways: Sequence[IpAddress]) -> None:
    for gateway in gateways:
        netlink.delete_route(DEFAULT_ROUTES[gateway.version])


def _route_to_pods(netlink: Netlink, other: Node) -> None:
    for network in other.pod_networks:
        neighbour = next(address.ip for address in other.addresses if address.version == network.version)
        netlink.set_route(network, neighbour)


def _look(netlink: Netlink) -> dict[str, object]:
    link = netlink.link(MACHINE_LINK)
    defaults = {str(route) for route in DEFAULT_ROUTES.values()}
    return {
        "addresses": netlink.addresses(MACHINE_LINK),
        "is_linked": link is not None and link.is_up and link.has_carrier,
        "has_default_route": not defaults.isdisjoint(netlink.routes()),
    }


def _write_setting(name: str, value: str) -> None:
    try:
        (SETTINGS / name).write_text(value)
    except OSError as error:
        what = f"cannot set {name.replace('/', '.')} in a namespace of the lab"
        remedy = (
            "the kernel has no IPv6: give --family ipv4" if name.startswith("ipv6") else "see that /proc is writable"
        )
        raise LabError("UMB818", what, error.strerror or str(error), remedy) from error


# As container runtimes call it.
POD_LINK: Final = "eth0"


def attach_pod(
    namespace: Path,
    name: str,
    addresses: Sequence[IpInterface],
    gateways: Sequence[IpAddress],
    bridge: str = POD_BRIDGE,
) -> None:
    """Make a network namespace at a path that is free, with `eth0` on the node's bridge; `name` is the node's end.

    Raises LabError: the name is too long, name or path is in use, or the kernel refuses; nothing is left behind then.
    """
    if not 0 < len(name) <= NAME_LENGTH:
        why = f"a link's name has at most {NAME_LENGTH} letters"
        raise LabError("UMB818", f"cannot call a pod's link {name!r}", why, "take a shorter name")
    create_namespace(namespace)
    try:
        with Netlink() as netlink:
            _link_pod(netlink, namespace, name, bridge)
        inside(namespace, lambda netlink: _furnish_pod(netlink, addresses, gateways))
    except BaseException:
        detach_pod(namespace)
        raise


def detach_pod(namespace: Path) -> None:
    """Remove a pod's network; the node's end goes with it. Doing it twice is fine.

    The link goes first and for sure: a process that still runs would keep the namespace, and so the address in use.
    """
    if namespace.exists():
        inside(namespace, lambda netlink: netlink.delete_link(POD_LINK))
        namespaces.remove_network(namespace)


def _link_pod(netlink: Netlink, namespace: Path, name: str, bridge: str) -> None:
    netlink.add_veth(name, POD_LINK, namespace)
    netlink.join_bridge(name, bridge)
    netlink.set_link(name, up=True)


def _furnish_pod(netlink: Netlink, addresses: Sequence[IpInterface], gateways: Sequence[IpAddress]) -> None:
    netlink.set_link("lo", up=True)
    netlink.set_link(POD_LINK, up=True)
    for address in addresses:
        netlink.add_address(POD_LINK, address)
    for gateway in gateways:
        netlink.set_route(DEFAULT_ROUTES[gateway.version], gateway)
