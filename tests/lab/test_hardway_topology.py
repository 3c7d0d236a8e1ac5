"""The nodes of a hard-way cluster in a lab, and the host's twin among them."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

from tests.support.hardway_lab import small_cluster

from umbilical.lab.hardway_topology import HOST, topology_of
from umbilical.lab.topology import Family, Role, Topology


def test_every_machine_is_a_node_with_the_configs_address_and_pod_network() -> None:
    cluster = small_cluster(masters=3, workers=2)
    topology = topology_of(cluster)
    for node in cluster.nodes:
        found = topology.node(node.id)
        assert (found.role.value, found.address) == (node.role.value, str(node.address))
        assert found.pod_networks == (() if node.pod_network is None else (node.pod_network,))
    assert {node.name for node in topology.nodes} == {HOST, *(node.id for node in cluster.nodes)}


def test_the_hosts_twin_has_the_resolvers_address_and_is_on_the_machine_network() -> None:
    cluster = small_cluster()
    topology = topology_of(cluster)
    twin = topology.node(HOST)
    assert (twin.role, twin.address) == (Role.MANAGEMENT, str(cluster.networks.dns))
    assert not topology.is_managed(twin)
    assert topology.gateways_of(twin) == (cluster.networks.gateway,)


def test_the_topology_survives_its_way_through_the_labs_state() -> None:
    topology = topology_of(small_cluster(workers=1))
    assert Topology.from_json(topology.to_json()) == topology


def test_an_ipv6_cluster_makes_an_ipv6_lab() -> None:
    cluster = small_cluster()
    networks = replace(
        cluster.networks,
        machine=ip_network("fd26::/64"),
        pods=ip_network("fd28::/48"),
        services=ip_network("fd30::/112"),
        gateway=ip_address("fd26::1"),
        dns=ip_address("fd26::2"),
    )
    nodes = tuple(replace(node, address=networks.machine[100 + i]) for i, node in enumerate(cluster.nodes))
    topology = topology_of(replace(cluster, networks=networks, nodes=nodes))
    assert topology.family is Family.IPV6
    assert str(topology.node(HOST).addresses[0]) == "fd26::2/64"
