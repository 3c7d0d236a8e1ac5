"""The nodes of a lab and their addresses, as values.

All nodes share one machine network. The pod network is split into a part per node, except for the bootstrap node,
which runs host-network pods only. There is one range for Services. Each network exists once per address family.
"""

import difflib
import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import Final

from umbilical.fault import LabError

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpInterface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

BOOTSTRAP_NUMBER: Final = 10
FIRST_MASTER_NUMBER: Final = 11
FIRST_WORKER_NUMBER: Final = 21
GATEWAY_NUMBER: Final = 1
MOST_MASTERS: Final = FIRST_WORKER_NUMBER - FIRST_MASTER_NUMBER
# Below 100 the numbers look the same in decimal (.21) and in hexadecimal (::21).
MOST_WORKERS: Final = 100 - FIRST_WORKER_NUMBER
# It is used in file names and host names.
NODE_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,40}")
POD_WIDTH: Final = {4: 24, 6: 64}
MACHINE_DEFAULTS: Final = {4: "10.91.0.0/24", 6: "fd91::/64"}
POD_DEFAULTS: Final = {4: "10.92.0.0/16", 6: "fd92::/48"}
SERVICE_DEFAULTS: Final = {4: "10.93.0.0/16", 6: "fd93::/112"}
# Special ranges (RFC 6890) that kernels do not route.
UNUSABLE: Final = {
    "127.0.0.0/8": "loopback",
    "::1/128": "loopback",
    "224.0.0.0/4": "multicast",
    "ff00::/8": "multicast",
    "169.254.0.0/16": "link-local",
    "fe80::/10": "link-local",
    "0.0.0.0/8": "reserved",
    "240.0.0.0/4": "reserved",
    "::/8": "reserved",
}
# kube-apiserver accepts at most 2^20 service addresses.
SERVICE_BITS: Final = 20


class LabNodeRole(Enum):
    BOOTSTRAP = "bootstrap"
    MASTER = "master"
    WORKER = "worker"
    MANAGEMENT = "management"
    """A node in the management network of a hosted control plane."""


class Family(Enum):
    IPV4 = "ipv4"
    IPV6 = "ipv6"
    DUAL = "dual"

    @property
    def versions(self) -> tuple[int, ...]:
        """Return the IP versions, first that of `address`."""
        return {Family.IPV4: (4,), Family.IPV6: (6,), Family.DUAL: (4, 6)}[self]


@dataclass(frozen=True)
class Node:
    name: str
    role: LabNodeRole
    addresses: tuple[IpInterface, ...]
    """On the machine network, one per family."""
    pod_networks: tuple[IpNetwork, ...] = ()
    """Empty on the bootstrap node and in the management network."""

    @property
    def address(self) -> str:
        return str(self.addresses[0].ip)

    @property
    def pod_gateways(self) -> tuple[IpInterface, ...]:
        """The addresses of the node's pod bridge: the first of each pod network."""
        return tuple(interface(network, GATEWAY_NUMBER) for network in self.pod_networks)


@dataclass(frozen=True)
class Opening:
    """A port of the management network that the data plane may dial."""

    address: IpAddress
    port: int


@dataclass(frozen=True)
class Management:
    """The network of a hosted control plane. Nodes can dial its openings; it cannot dial nodes."""

    networks: tuple[IpNetwork, ...]
    gateways: tuple[IpAddress, ...]
    openings: tuple[Opening, ...] = ()


@dataclass(frozen=True)
class Topology:
    family: Family
    machine_networks: tuple[IpNetwork, ...]
    gateways: tuple[IpAddress, ...]
    """The switch's addresses, one per machine network."""
    pod_networks: tuple[IpNetwork, ...]
    """The whole ranges; each node has a part of each."""
    service_networks: tuple[IpNetwork, ...]
    nodes: tuple[Node, ...]
    management: Management | None = None
    """Network of the bootstrap node, if it is not the machine network."""

    @property
    def bootstrap(self) -> Node:
        return next(node for node in self.nodes if node.role is LabNodeRole.BOOTSTRAP)

    @property
    def members(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.role in {LabNodeRole.MASTER, LabNodeRole.WORKER})

    def is_managed(self, node: Node) -> bool:
        return self.management is not None and node.role in {LabNodeRole.BOOTSTRAP, LabNodeRole.MANAGEMENT}

    def gateways_of(self, node: Node) -> tuple[IpAddress, ...]:
        return self.management.gateways if self.management and self.is_managed(node) else self.gateways

    def node(self, name: str) -> Node:
        """Find a node by name. Raises LabError: unknown name (UMB812)."""
        names = [node.name for node in self.nodes]
        if name in names:
            return self.nodes[names.index(name)]
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
        remedy = f"did you mean {near[0]}?" if near else "umbilical lab status"
        raise LabError("UMB812", f"the lab has no node {name}", f"the lab's nodes are {', '.join(names)}", remedy)

    def to_json(self) -> dict[str, object]:
        return {
            "family": self.family.value,
            "machine_networks": _texts(self.machine_networks),
            "gateways": _texts(self.gateways),
            "pod_networks": _texts(self.pod_networks),
            "service_networks": _texts(self.service_networks),
            "nodes": [
                {
                    "name": node.name,
                    "role": node.role.value,
                    "addresses": _texts(node.addresses),
                    "pod_networks": _texts(node.pod_networks),
                }
                for node in self.nodes
            ],
            **({} if self.management is None else {"management": _management_json(self.management)}),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> "Topology":
        """Decode the result of `to_json`. Raises LabError: it is not valid."""
        try:
            return _topology(content)
        except (KeyError, TypeError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
            remedy = "umbilical lab down, then umbilical lab up"
            raise LabError("UMB811", "the topology of the lab is not valid", why, remedy) from error


def plan_topology(
    *,
    masters: int = 3,
    workers: int = 2,
    family: Family = Family.IPV4,
    machine_network: str | Sequence[str] | None = None,
    pod_network: str | Sequence[str] | None = None,
    service_network: str | Sequence[str] | None = None,
) -> Topology:
    """Assign addresses to all nodes. A network is one CIDR, or one per family (a list, or separated by a comma).

    Raises LabError: a network is invalid, too small, overlaps another, or has another family than the lab (UMB811).
    """
    _check_counts(masters, workers)
    machine = _networks("machine", machine_network, family, MACHINE_DEFAULTS)
    pods = _networks("pod", pod_network, family, POD_DEFAULTS)
    services = _networks("service", service_network, family, SERVICE_DEFAULTS)
    numbers = _numbers(masters, workers)
    _check_overlap({"machine": machine, "pod": pods, "service": services})
    _check_machine_room(machine, max(numbers.values()))
    _check_pod_room(pods, masters + workers)
    _check_service_room(services)
    return Topology(
        family=family,
        machine_networks=machine,
        gateways=tuple(interface(network, GATEWAY_NUMBER).ip for network in machine),
        pod_networks=pods,
        service_networks=services,
        nodes=tuple(_nodes(numbers, machine, pods)),
    )


def interface(network: IpNetwork, number: int) -> IpInterface:
    """Return the address with that number and the network's prefix length; IPv6 has the same digits: .21 and ::21."""
    offset = number if network.version == 4 else int(str(number), 16)
    return ipaddress.ip_interface(f"{network[offset]}/{network.prefixlen}")


def _numbers(masters: int, workers: int) -> dict[tuple[LabNodeRole, int], int]:
    numbers = {(LabNodeRole.BOOTSTRAP, 0): BOOTSTRAP_NUMBER}
    numbers.update({(LabNodeRole.MASTER, index): FIRST_MASTER_NUMBER + index for index in range(masters)})
    numbers.update({(LabNodeRole.WORKER, index): FIRST_WORKER_NUMBER + index for index in range(workers)})
    return numbers


def _nodes(
    numbers: Mapping[tuple[LabNodeRole, int], int], machine: tuple[IpNetwork, ...], pods: tuple[IpNetwork, ...]
) -> Iterator[Node]:
    # The bootstrap node is first and has no pod network, so parts are counted from the next node.
    for piece, ((role, index), number) in enumerate(numbers.items(), start=-1):
        addresses = tuple(interface(network, number) for network in machine)
        if role is LabNodeRole.BOOTSTRAP:
            yield Node(role.value, role, addresses)
        else:
            own = tuple(share(network, piece) for network in pods)
            yield Node(f"{role.value}-{index}", role, addresses, own)


def share(network: IpNetwork, index: int) -> IpNetwork:
    """Return a node's part. Computed, because listing all /64 of a wide network is not possible."""
    width = POD_WIDTH[network.version]
    step = 1 << (network.max_prefixlen - width)
    return ipaddress.ip_network(f"{network.network_address + index * step}/{width}")


def _networks(
    kind: str, given: str | Sequence[str] | None, family: Family, defaults: Mapping[int, str]
) -> tuple[IpNetwork, ...]:
    texts = given.split(",") if isinstance(given, str) else list(given or ())
    found: dict[int, IpNetwork] = {}
    for text in texts:
        network = _network(kind, text.strip())
        if network.version not in family.versions:
            why = f"{network} is IPv{network.version}, the lab's family is {family.value}"
            raise _refusal(f"the {kind} network has the wrong IP family", why, "choose another network or --family")
        if network.version in found:
            why = f"{found[network.version]} and {network} are both IPv{network.version}"
            raise _refusal(f"more than one {kind} network", why, "give one network per address family")
        found[network.version] = network
    return tuple(found.get(version) or ipaddress.ip_network(defaults[version]) for version in family.versions)


def _network(kind: str, text: str) -> IpNetwork:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        remedy = "write it as a CIDR, for example 10.91.0.0/24"
        raise _refusal(f"the {kind} network {text!r} is not a network in CIDR notation", str(error), remedy) from error
    for unusable, meaning in UNUSABLE.items():
        if _overlap(network, ipaddress.ip_network(unusable)):
            why = f"{network} contains addresses of {unusable}, which are {meaning}"
            raise _refusal(f"the {kind} network is not a private network", why, "choose one like 10.91.0.0/24")
    return network


def _overlap(left: IpNetwork, right: IpNetwork) -> bool:
    return left.version == right.version and left.overlaps(right)


def _check_counts(masters: int, workers: int) -> None:
    if not 1 <= masters <= MOST_MASTERS:
        raise _refusal(f"a lab cannot have {masters} masters", f"allowed: 1 to {MOST_MASTERS}", "use --masters 3")
    if not 0 <= workers <= MOST_WORKERS:
        raise _refusal(f"a lab cannot have {workers} workers", f"allowed: 0 to {MOST_WORKERS}", "use --workers 2")


def _check_overlap(networks: Mapping[str, tuple[IpNetwork, ...]]) -> None:
    named = [(kind, network) for kind, several in networks.items() for network in several]
    for (kind, network), (other_kind, other) in combinations(named, 2):
        if _overlap(network, other):
            why = f"{network} and {other} share addresses"
            raise _refusal(f"the {kind} and the {other_kind} network overlap", why, "choose separate networks")


def _check_machine_room(networks: tuple[IpNetwork, ...], highest: int) -> None:
    for network in networks:
        offset = highest if network.version == 4 else int(str(highest), 16)
        # The last IPv4 address is the broadcast address.
        if offset >= network.num_addresses - 1:
            why = f"{network} has {network.num_addresses} addresses, and nodes are numbered up to .{highest}"
            raise _refusal("the machine network is too small", why, "choose a larger network or fewer nodes")


def _check_pod_room(networks: tuple[IpNetwork, ...], nodes: int) -> None:
    for network in networks:
        width = POD_WIDTH[network.version]
        if network.prefixlen > width or 1 << (width - network.prefixlen) < nodes:
            why = f"each of {nodes} nodes needs a /{width} of {network}"
            raise _refusal("the pod network is too small", why, "choose a larger network or fewer nodes")


def _check_service_room(networks: tuple[IpNetwork, ...]) -> None:
    for network in networks:
        bits = network.max_prefixlen - network.prefixlen
        if not 4 <= bits <= SERVICE_BITS:
            why = f"{network} has 2^{bits} addresses; kube-apiserver accepts 2^4 to 2^{SERVICE_BITS}"
            raise _refusal("the service network has the wrong size", why, "choose a network like 10.93.0.0/16")


def _refusal(what: str, why: str, remedy: str) -> LabError:
    return LabError("UMB811", what, why, remedy)


def _texts(values: Sequence[IpAddress | IpInterface | IpNetwork]) -> list[str]:
    return [str(value) for value in values]


def _management_json(management: Management) -> dict[str, object]:
    openings = [{"address": str(each.address), "port": each.port} for each in management.openings]
    return {"networks": _texts(management.networks), "gateways": _texts(management.gateways), "openings": openings}


def _topology(content: Mapping[str, object]) -> Topology:
    nodes = tuple(map(_node, _list(content["nodes"])))
    if [node.role for node in nodes].count(LabNodeRole.BOOTSTRAP) != 1:
        raise ValueError("there must be one bootstrap node")
    return Topology(
        family=Family(content["family"]),
        machine_networks=tuple(map(ipaddress.ip_network, _strings(content["machine_networks"]))),
        gateways=tuple(map(ipaddress.ip_address, _strings(content["gateways"]))),
        pod_networks=tuple(map(ipaddress.ip_network, _strings(content["pod_networks"]))),
        service_networks=tuple(map(ipaddress.ip_network, _strings(content["service_networks"]))),
        nodes=nodes,
        management=_management(_object(content["management"])) if "management" in content else None,
    )


def _management(content: Mapping[str, object]) -> Management:
    return Management(
        networks=tuple(map(ipaddress.ip_network, _strings(content["networks"]))),
        gateways=tuple(map(ipaddress.ip_address, _strings(content["gateways"]))),
        openings=tuple(_opening(_object(each)) for each in _list(content["openings"])),
    )


def _opening(content: Mapping[str, object]) -> Opening:
    return Opening(ipaddress.ip_address(_string(content["address"])), int(str(content["port"])))


def _node(given: object) -> Node:
    content = _object(given)
    addresses = _strings(content["addresses"])
    if not addresses or not NODE_NAME.fullmatch(_string(content["name"])):
        raise ValueError(f"a node needs a name and an address: {content!r}")
    return Node(
        name=_string(content["name"]),
        role=LabNodeRole(content["role"]),
        addresses=tuple(map(ipaddress.ip_interface, addresses)),
        pod_networks=tuple(map(ipaddress.ip_network, _strings(content["pod_networks"]))),
    )


def _object(content: object) -> Mapping[str, object]:
    if not isinstance(content, Mapping):
        raise TypeError(f"expected an object, not {content!r}")
    return content


def _list(content: object) -> list[object]:
    if not isinstance(content, list):
        raise TypeError(f"expected a list, not {content!r}")
    return content


def _strings(content: object) -> list[str]:
    return [_string(item) for item in _list(content)]


def _string(content: object) -> str:
    if not isinstance(content, str):
        raise TypeError(f"expected a string, not {content!r}")
    return content
