"""A hosted cluster's two networks: planned apart, and real packets pass where they should and nowhere else."""

import json
from itertools import combinations, product

import pytest
from tests.support.lab_wires import PLACES, PORT, Wires, dial, listen, talk
from tests.support.worlds import World, run_in

from umbilical.lab.hosted_topology import front_address, plan_hosted
from umbilical.lab.topology import Family, Topology

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


def test_only_the_workers_belong_to_the_cluster_and_have_pods() -> None:
    topology = _plan()
    assert [node.name for node in topology.members] == ["worker-0", "worker-1"]
    assert [node.name for node in topology.nodes if node.pod_networks] == ["worker-0", "worker-1"]
    assert topology.bootstrap.address == "192.168.91.10"
    assert topology.node("management-2").address == "192.168.91.13"


def test_what_is_opened_is_named_with_every_address_of_its_nodes() -> None:
    management = _plan(Family.DUAL).management
    assert management is not None
    assert [(str(each.address), each.port) for each in management.openings] == [
        ("192.168.91.10", 6443),
        ("fd94::10", 6443),
        ("192.168.91.11", PORT),
        ("fd94::11", PORT),
        ("192.168.91.12", PORT),
        ("fd94::12", PORT),
    ]


def test_nobody_has_the_servers_common_address() -> None:
    topology = _plan()
    assert str(front_address(topology)) == "192.168.91.90"
    assert front_address(topology) not in [address.ip for node in topology.nodes for address in node.addresses]


@pytest.mark.parametrize("family", Family)
def test_a_hosted_topology_is_the_same_after_it_was_written_and_read(family: Family) -> None:
    topology = _plan(family)
    assert Topology.from_json(json.loads(json.dumps(topology.to_json()))) == topology


@PLACES
@pytest.mark.root
@pytest.mark.real("nft")
def test_the_management_network_reaches_no_node_and_no_pod(world: World, family: Family) -> None:
    def body() -> None:
        wires = Wires(topology=_plan(family))
        pod, worker = wires.pod("worker-0"), wires.node("worker-0")
        for version in wires.versions:
            with listen(pod, version), listen(worker, version):
                for place in ("bootstrap", "management-0"):
                    assert dial(wires.node(place), pod.address(version)) == "Network is unreachable"
                    assert dial(wires.node(place), worker.address(version)) == "Network is unreachable"
            bootstrap = wires.node("bootstrap")
            assert talk(bootstrap, wires.node("management-0"), version) == bootstrap.address(version)

    run_in(world, body)


@PLACES
@pytest.mark.root
@pytest.mark.real("nft")
def test_nodes_and_pods_reach_what_is_opened_and_are_seen_as_the_edge(world: World, family: Family) -> None:
    def body() -> None:
        wires = Wires(topology=_plan(family))
        management = wires.topology.management
        assert management is not None
        places = (wires.pod("worker-0"), wires.node("worker-1"))
        server, other = wires.node("management-0"), wires.node("management-2")
        for gateway, place in product(management.gateways, places):
            assert talk(place, server, gateway.version) == str(gateway)
            with listen(server, gateway.version, OTHER_PORT):
                assert dial(place, server.address(gateway.version), OTHER_PORT) == "Network is unreachable"
            with listen(other, gateway.version):
                assert dial(place, other.address(gateway.version)) == "Network is unreachable"

    run_in(world, body)
