"""The network of a lab: a switch, a link from it to every node, and routes between the nodes' pods.

Runs inside the keeper. Each node and the switch is a network namespace, held by a mount in the keeper's mount
namespace, so that all of them end with the keeper. Nodes have routes to each other's pods. The bootstrap node has not:
its default route leads to the switch, which answers "network is unreachable". If the control plane has a separate
network, the switch also connects the two: it lets nodes dial a few ports there, and nothing in the other direction.
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
# Locally administered. Fixed, because a bridge changes its address when a link joins.
SWITCH_HARDWARE_ADDRESS: Final = "02:75:6d:62:00:01"
MANAGEMENT_HARDWARE_ADDRESS: Final = "02:75:6d:62:00:02"
DEFAULT_ROUTES: Final[Mapping[int, IpNetwork]] = {4: ipaddress.ip_network("0.0.0.0/0"), 6: ipaddress.ip_network("::/0")}
SETTINGS: Final = Path("/proc/sys/net")
# Written before links exist, which copy `default`. Some values are inherited from the host.
COMMON_SETTINGS: Final = {
    4: {"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0"},
    # Otherwise link-local addresses are tentative for a second, and nodes accept router advertisements.
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
# Otherwise the kernel limits rejections per second, and other dials hang.
UNLIMITED_REFUSALS: Final = {4: {"ipv4/icmp_ratelimit": "0"}, 6: {"ipv6/icmp/ratelimit": "0"}}


class LabNetwork:
    """The namespaces of one lab, as files in `folder`."""

    def __init__(self, topology: Topology, folder: Path) -> None:
        self._topology = topology
        self._folder = folder

    def namespace(self, node: str) -> Path:
        """Return the file of a node's namespace. Raises LabError: unknown node (UMB812)."""
        return self._folder / self._topology.node(node).name

    def build(self) -> None:
        """Create all namespaces, links, addresses, routes and rules. Raises LabError: the kernel refused one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._create(self._folder / SWITCH, self._switch_settings())
        for node in self._topology.nodes:
            self._create(self._folder / node.name, FORWARDING if node.pod_networks else {})
        inside(self._folder / SWITCH, self._furnish_switch)
        for node in self._topology.nodes:
            self._furnish(node)

    def set_link(self, node: str, up: bool) -> None:
        """Set a node's link up or down, at the switch's end: the node keeps its addresses and routes."""
        port = _port(self._topology.node(node))
        inside(self._folder / SWITCH, lambda netlink: netlink.set_link(port, up=up))
        if up:
            self._forget_neighbours()

    def set_default_route(self, node: str, present: bool) -> None:
        """Add or remove a node's default route. Safe to call twice."""
        change = _add_default_routes if present else _delete_default_routes
        gateways = self._topology.gateways_of(self._topology.node(node))
        inside(self.namespace(node), lambda netlink: change(netlink, gateways))

    def add_rules(self, node: str, name: str, ruleset: str) -> None:
        """Load or replace a table with this content (see `umbilical.lab.nft`).

        Raises LabError: `nft` is missing (UMB822) or failed (UMB818); nothing changed then.
        """
        namespaces.in_network(self.namespace(node), lambda: nft.load(name, ruleset))

    def remove_rules(self, node: str, name: str) -> None:
        """Remove rules of `add_rules`; missing ones are fine."""
        namespaces.in_network(self.namespace(node), lambda: packet_filter.unload(name))

    def count_port(self, node: str, name: str, port: int) -> None:
        """Count the bytes of a TCP port of a node from now on; `remove_rules` with this name ends it."""
        namespaces.in_network(self.namespace(node), lambda: packet_filter.load(name, packet_filter.count_port(port)))

    def counted_bytes(self, node: str, name: str) -> int:
        """Return the bytes since `count_port`; 0 without it."""
        return namespaces.in_network(self.namespace(node), lambda: packet_filter.counted_bytes(name))

    def describe(self) -> dict[str, object]:
        """Return the current state from the kernel, as JSON values."""
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
        # One table: a packet that any rule rejects is rejected.
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
        """Flush neighbour entries, so that lookups that failed while the link was down are not reused."""
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
    """Return the name of the switch's end of a node's link."""
    return f"to-{node.name}"


def _edge(management: Management, outside: Sequence[IpNetwork]) -> list[packet_filter.Chain]:
    openings = [(each.address, each.port) for each in management.openings]
    return packet_filter.edge(SWITCH_HARDWARE_ADDRESS, MANAGEMENT_HARDWARE_ADDRESS, outside, openings)


def _add_bridge(
    netlink: Netlink, name: str, hardware: str, gateways: Sequence[IpAddress], networks: Sequence[IpNetwork]
) -> None:
    """Create a bridge with the gateways' addresses."""
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
        what = f"failed to set {name.replace('/', '.')} in a namespace of the lab"
        remedy = (
            "the kernel has no IPv6: use --family ipv4" if name.startswith("ipv6") else "check that /proc is writable"
        )
        raise LabError("UMB818", what, error.strerror or str(error), remedy) from error


# The name that container runtimes use.
POD_LINK: Final = "eth0"


def attach_pod(
    namespace: Path,
    name: str,
    addresses: Sequence[IpInterface],
    gateways: Sequence[IpAddress],
    bridge: str = POD_BRIDGE,
) -> None:
    """Create a network namespace at a free path, with `eth0` on the node's bridge; `name` is the node's end.

    Raises LabError: the name is too long, name or path exists, or the kernel refused; nothing is left behind then.
    """
    if not 0 < len(name) <= NAME_LENGTH:
        why = f"a link's name has at most {NAME_LENGTH} characters"
        raise LabError("UMB818", f"{name!r} is not a valid name for a pod's link", why, "choose a shorter name")
    create_namespace(namespace)
    try:
        with Netlink() as netlink:
            _link_pod(netlink, namespace, name, bridge)
        inside(namespace, lambda netlink: _furnish_pod(netlink, addresses, gateways))
    except BaseException:
        detach_pod(namespace)
        raise


def detach_pod(namespace: Path) -> None:
    """Remove a pod's network with both ends of its link. Safe to call twice.

    The link is removed first, because a process that still runs keeps the namespace and its address.
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
