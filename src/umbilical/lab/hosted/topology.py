"""The networks of a hosted cluster: the control plane's, the nodes', and an edge that allows outbound connections only.

Their address ranges do not overlap. The openings are what an installation publishes for its nodes: kube-apiserver, and
the servers' ports for agents.
"""

import ipaddress
from collections.abc import Mapping
from typing import Final

from umbilical.lab.topology import (
    BOOTSTRAP_NUMBER,
    FIRST_WORKER_NUMBER,
    GATEWAY_NUMBER,
    MACHINE_DEFAULTS,
    POD_DEFAULTS,
    SERVICE_DEFAULTS,
    Family,
    IpAddress,
    IpNetwork,
    LabNodeRole,
    Management,
    Node,
    Opening,
    Topology,
    interface,
    share,
)

MANAGEMENT_DEFAULTS: Final = {4: "192.168.91.0/24", 6: "fd94::/64"}
FIRST_MANAGEMENT_NUMBER: Final = BOOTSTRAP_NUMBER + 1
FRONT_NUMBER: Final = 90
"""Host number in the management network of the Service address, which nft rules map to servers."""


def plan_hosted(
    *, management: int, workers: int, openings: Mapping[int, tuple[str, ...]], family: Family = Family.IPV4
) -> Topology:
    """Plan both networks. `openings` maps ports to the reachable nodes of the management network."""
    machine, pods, services, managed = (
        tuple(ipaddress.ip_network(defaults[version]) for version in family.versions)
        for defaults in (MACHINE_DEFAULTS, POD_DEFAULTS, SERVICE_DEFAULTS, MANAGEMENT_DEFAULTS)
    )
    control = [_node("bootstrap", LabNodeRole.BOOTSTRAP, BOOTSTRAP_NUMBER, managed)]
    control += [
        _node(f"management-{index}", LabNodeRole.MANAGEMENT, FIRST_MANAGEMENT_NUMBER + index, managed)
        for index in range(management)
    ]
    nodes = [
        _node(f"worker-{index}", LabNodeRole.WORKER, FIRST_WORKER_NUMBER + index, machine, _shares(pods, index))
        for index in range(workers)
    ]
    return Topology(
        family=family,
        machine_networks=machine,
        gateways=tuple(interface(network, GATEWAY_NUMBER).ip for network in machine),
        pod_networks=pods,
        service_networks=services,
        nodes=(*control, *nodes),
        management=Management(
            networks=managed,
            gateways=tuple(interface(network, GATEWAY_NUMBER).ip for network in managed),
            openings=tuple(_openings(openings, control)),
        ),
    )


def front_address(topology: Topology) -> IpAddress:
    """Return the Service address of all servers, for nodes of the management network that have its nft rules."""
    assert topology.management is not None, "a hosted cluster's topology has a management network"
    return interface(topology.management.networks[0], FRONT_NUMBER).ip


def _node(
    name: str, role: LabNodeRole, number: int, networks: tuple[IpNetwork, ...], pods: tuple[IpNetwork, ...] = ()
) -> Node:
    return Node(name, role, tuple(interface(network, number) for network in networks), pods)


def _shares(pods: tuple[IpNetwork, ...], index: int) -> tuple[IpNetwork, ...]:
    return tuple(share(network, index) for network in pods)


def _openings(wanted: Mapping[int, tuple[str, ...]], nodes: list[Node]) -> list[Opening]:
    addresses = {node.name: node.addresses for node in nodes}
    return [Opening(one.ip, port) for port, names in wanted.items() for name in names for one in addresses[name]]
