"""Plans of a lab: addresses that nobody shares, and refusals that say which network is wrong."""

import contextlib
import ipaddress
import json
from dataclasses import replace
from ipaddress import ip_address, ip_network
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hardway_lab import small_cluster
from tests.support.lab_wires import PORT, Wires, dial, each_place, listen, talk
from tests.support.worlds import World

from umbilical.fault import LabError
from umbilical.lab.hardway.names import HOST, topology_of
from umbilical.lab.hosted.topology import front_address, plan_hosted
from umbilical.lab.topology import MOST_MASTERS, MOST_WORKERS, Family, LabNodeRole, Topology, plan_topology

PLANS = st.builds(
    plan_topology,
    masters=st.integers(1, MOST_MASTERS),
    workers=st.integers(0, MOST_WORKERS),
    family=st.sampled_from(Family),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def test_the_usual_lab_has_six_nodes_under_known_addresses() -> None:
    topology = plan_topology()
    assert {node.name: node.address for node in topology.nodes} == {
        "bootstrap": "10.91.0.10",
        "master-0": "10.91.0.11",
        "master-1": "10.91.0.12",
        "master-2": "10.91.0.13",
        "worker-0": "10.91.0.21",
        "worker-1": "10.91.0.22",
    }
    assert [str(gateway) for gateway in topology.gateways] == ["10.91.0.1"]
    assert [str(network) for network in topology.service_networks] == ["10.93.0.0/16"]


def test_pods_of_the_first_master_have_the_first_piece_and_the_bootstrap_node_has_none() -> None:
    topology = plan_topology(family=Family.DUAL)
    assert topology.bootstrap.pod_networks == ()
    assert [str(network) for network in topology.node("master-0").pod_networks] == ["10.92.0.0/24", "fd92::/64"]
    assert [str(network) for network in topology.node("worker-0").pod_networks] == ["10.92.3.0/24", "fd92:0:0:3::/64"]
    assert [str(gateway) for gateway in topology.node("worker-0").pod_gateways] == ["10.92.3.1/24", "fd92:0:0:3::1/64"]


def test_a_lab_of_one_or_both_families_has_addresses_written_with_the_same_digits() -> None:
    topology = plan_topology(family=Family.DUAL)
    assert [str(address) for address in topology.node("worker-1").addresses] == ["10.91.0.22/24", "fd91::22/64"]
    assert [str(gateway) for gateway in topology.gateways] == ["10.91.0.1", "fd91::1"]
    topology = plan_topology(family=Family.IPV6)
    assert topology.bootstrap.address == "fd91::10"
    networks = topology.machine_networks + topology.pod_networks + topology.service_networks
    assert {network.version for network in networks} == {6}


@given(PLANS)
def test_no_two_nodes_share_an_address_and_the_plan_survives_being_written(topology: Topology) -> None:
    assert Topology.from_json(json.loads(json.dumps(topology.to_json()))) == topology
    addresses = [address.ip for node in topology.nodes for address in node.addresses] + list(topology.gateways)
    assert len(set(addresses)) == len(addresses)
    machine = {network.version: network for network in topology.machine_networks}
    assert all(address in machine[address.version] for address in addresses)


@given(PLANS)
def test_no_two_pieces_of_the_pod_network_overlap_and_all_lie_in_it(topology: Topology) -> None:
    pieces = [piece for node in topology.nodes for piece in node.pod_networks]
    for left, right in combinations(pieces, 2):
        assert not left.overlaps(right)
    for piece in pieces:
        assert any(piece.overlaps(whole) for whole in topology.pod_networks)
    assert all(node.pod_networks for node in topology.nodes if node.role is not LabNodeRole.BOOTSTRAP)


@given(st.dictionaries(st.sampled_from(["family", "nodes", "machine_networks", "gateways"]), JSON))
def test_other_json_is_refused_in_three_lines(content: dict[str, object]) -> None:
    with pytest.raises(LabError, match="UMB811"):
        Topology.from_json({**plan_topology().to_json(), **content, "pod_networks": 7})


@given(JSON)
def test_a_node_that_is_none_is_refused_in_three_lines(node: object) -> None:
    with pytest.raises(LabError):
        Topology.from_json({**plan_topology().to_json(), "nodes": [node]})


def test_a_name_that_would_leave_the_folder_is_refused() -> None:
    content = json.loads(json.dumps(plan_topology().to_json()))
    content["nodes"][1]["name"] = "../../etc"
    with pytest.raises(LabError, match="a node needs a name"):
        Topology.from_json(content)


def test_a_network_can_be_given_per_family() -> None:
    topology = plan_topology(
        family=Family.DUAL, machine_network="192.168.7.0/24,fd00:7::/64", pod_network=["fd08::/48"]
    )
    assert topology.machine_networks == (ipaddress.ip_network("192.168.7.0/24"), ipaddress.ip_network("fd00:7::/64"))
    assert [str(network) for network in topology.pod_networks] == ["10.92.0.0/16", "fd08::/48"]


def test_a_plan_that_cannot_work_is_refused() -> None:
    for arguments, said in (
        ({"masters": 0}, "a lab cannot have 0 masters"),
        ({"masters": 11}, "a lab cannot have 11 masters"),
        ({"workers": -1}, "a lab cannot have -1 workers"),
        ({"workers": 80}, "a lab cannot have 80 workers"),
        ({"machine_network": "10.92.5.0/24"}, "the machine and the pod network overlap"),
        ({"service_network": "10.92.0.0/20"}, "the pod and the service network overlap"),
        ({"machine_network": "10.91.0.0/27", "workers": 20}, "the machine network is too small"),
        ({"machine_network": "fd91::/124", "family": Family.IPV6}, "the machine network is too small"),
        ({"pod_network": "10.92.0.0/22"}, "the pod network is too small"),
        ({"pod_network": "10.92.0.0/25"}, "the pod network is too small"),
        ({"service_network": "10.0.0.0/29"}, "the service network has the wrong size"),
        ({"service_network": "fd93::/64", "family": Family.IPV6}, "the service network has the wrong size"),
        ({"machine_network": "fd91::/64"}, "the machine network has the wrong IP family"),
        ({"pod_network": "10.92.0.0/16", "family": Family.IPV6}, "the pod network has the wrong IP family"),
        ({"pod_network": "10.0.0.0/16,10.1.0.0/16"}, "more than one pod network"),
        ({"machine_network": "127.0.0.0/24"}, "the machine network is not a private network"),
        ({"machine_network": "224.0.0.0/24"}, "the machine network is not a private network"),
        ({"machine_network": "fe80::/64", "family": Family.IPV6}, "the machine network is not a private network"),
        ({"machine_network": "0.0.0.0/0"}, "the machine network is not a private network"),
        ({"machine_network": "10.91.0.1/24"}, "the machine network '10.91.0.1/24' is not a network in CIDR notation"),
        ({"machine_network": "localhost"}, "the machine network 'localhost' is not a network in CIDR notation"),
        ({"machine_network": ""}, "the machine network '' is not a network in CIDR notation"),
    ):
        with pytest.raises(LabError, match="UMB811") as caught:
            plan_topology(**arguments)
        assert caught.value.what == said


@given(machine=st.text(max_size=30), masters=st.integers(), workers=st.integers(), family=st.sampled_from(Family))
def test_any_input_is_planned_or_refused_in_three_lines(
    machine: str, masters: int, workers: int, family: Family
) -> None:
    with contextlib.suppress(LabError):
        topology = plan_topology(masters=masters, workers=workers, family=family, machine_network=machine)
        assert len(topology.nodes) == 1 + masters + workers


def test_every_machine_of_the_hard_way_and_its_hosts_twin_is_a_node() -> None:
    cluster = small_cluster(masters=3, workers=2)
    topology = topology_of(cluster)
    for node in cluster.nodes:
        found = topology.node(node.id)
        assert (found.role.value, found.address) == (node.role.value, str(node.address))
        assert found.pod_networks == (() if node.pod_network is None else (node.pod_network,))
    assert {node.name for node in topology.nodes} == {HOST, *(node.id for node in cluster.nodes)}
    cluster = small_cluster()
    topology = topology_of(cluster)
    twin = topology.node(HOST)
    assert (twin.role, twin.address) == (LabNodeRole.MANAGEMENT, str(cluster.networks.dns))
    assert not topology.is_managed(twin)
    assert topology.gateways_of(twin) == (cluster.networks.gateway,)


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


SERVERS = ("management-0", "management-1")
OTHER_PORT = PORT + 1


def _plan(family: Family = Family.IPV4) -> Topology:
    return plan_hosted(management=3, workers=2, openings={6443: ("bootstrap",), PORT: SERVERS}, family=family)


def test_the_control_plane_and_the_nodes_have_no_address_range_in_common() -> None:
    topology = _plan(Family.DUAL)
    assert topology.management is not None
    all_networks = (
        topology.management.networks + topology.machine_networks + topology.pod_networks + topology.service_networks
    )
    for left, right in combinations(all_networks, 2):
        assert left.version != right.version or not left.overlaps(right)
    for node in topology.nodes:
        home = topology.management.networks if topology.is_managed(node) else topology.machine_networks
        assert [address.network for address in node.addresses] == list(home)


def test_a_hosted_control_plane_and_its_nodes_have_networks_of_their_own() -> None:
    topology = _plan()
    assert [node.name for node in topology.members] == ["worker-0", "worker-1"]
    assert [node.name for node in topology.nodes if node.pod_networks] == ["worker-0", "worker-1"]
    assert topology.bootstrap.address == "192.168.91.10"
    assert topology.node("management-2").address == "192.168.91.13"
    assert str(front_address(topology)) == "192.168.91.90"
    assert front_address(topology) not in [address.ip for node in topology.nodes for address in node.addresses]


def test_what_is_opened_is_named_with_every_address_of_its_nodes() -> None:
    management = _plan(Family.DUAL).management
    assert management is not None
    ports = {"192.168.91.10": 6443, "fd94::10": 6443}
    ports |= dict.fromkeys(("192.168.91.11", "fd94::11", "192.168.91.12", "fd94::12"), PORT)
    assert [(str(each.address), each.port) for each in management.openings] == list(ports.items())


def test_any_topology_is_the_same_after_it_was_written_and_read() -> None:
    for topology in (*(_plan(family) for family in Family), topology_of(small_cluster(workers=1))):
        assert Topology.from_json(json.loads(json.dumps(topology.to_json()))) == topology


@each_place
@pytest.mark.root
@pytest.mark.real("nft")
def test_the_networks_of_a_hosted_cluster_reach_what_is_opened_and_nothing_else(world: World, family: Family) -> None:
    wires = Wires(topology=_plan(family))
    pod, worker = wires.pod("worker-0"), wires.node("worker-0")
    for version in wires.versions:
        with listen(pod, version), listen(worker, version):
            for name in ("bootstrap", "management-0"):
                assert dial(wires.node(name), pod.address(version)) == "Network is unreachable"
                assert dial(wires.node(name), worker.address(version)) == "Network is unreachable"
        bootstrap = wires.node("bootstrap")
        assert talk(bootstrap, wires.node("management-0"), version) == bootstrap.address(version)
    management = wires.topology.management
    assert management is not None
    places = (pod, wires.node("worker-1"))
    server, other = wires.node("management-0"), wires.node("management-2")
    for gateway, place in product(management.gateways, places):
        assert talk(place, server, gateway.version) == str(gateway)
        with listen(server, gateway.version, OTHER_PORT):
            assert dial(place, server.address(gateway.version), OTHER_PORT) == "Network is unreachable"
        with listen(other, gateway.version):
            assert dial(place, other.address(gateway.version)) == "Network is unreachable"
