import pytest
from tests.support.fault_scene import MemoryLab, MemoryScene

from umbilical.lab.errors import LabError
from umbilical.lab.faults import registry
from umbilical.lab.faults.networks import refuse_new_connections
from umbilical.lab.topology import Family, plan_topology


def test_a_cut_link_is_mended() -> None:
    scene = MemoryScene()
    fault = registry.find("link-cut")
    fault.mend(scene, fault.break_(scene))
    assert scene.memory.did == ["link of bootstrap down", "link of bootstrap up"]


def test_a_blocked_port_is_met_by_agents_that_come_anew() -> None:
    scene = MemoryScene().lay()
    before = scene.scripted.server_pid
    fault = registry.find("port-8091-blocked")
    memory = fault.break_(scene)
    assert scene.memory.did[0] == "rules port_blocked on bootstrap"
    assert scene.scripted.server_pid != before
    fault.mend(scene, memory)
    assert scene.memory.did[-1] == "no rules port_blocked on bootstrap"


def test_the_firewall_swallows_what_opens_a_connection_and_nothing_else() -> None:
    assert "tcp dport 8091 tcp flags & (syn | ack) == syn drop" in refuse_new_connections(8091)


def test_lost_packets_are_lost_no_more() -> None:
    scene = MemoryScene()
    fault = registry.find("packet-loss")
    fault.mend(scene, fault.break_(scene))
    assert scene.memory.did == ["rules packet_loss on bootstrap", "no rules packet_loss on bootstrap"]


@pytest.mark.parametrize(("family", "second"), [(Family.IPV4, "192.0.2.10/24"), (Family.IPV6, "2001:db8::10/64")])
def test_without_a_route_the_nodes_own_script_is_asked(family: Family, second: str) -> None:
    scene = MemoryScene(MemoryLab(plan_topology(masters=1, workers=0, family=family)))
    fault = registry.find("no-default-route")
    fault.break_(scene)
    assert scene.memory.did == [
        f"bootstrap$ ip addr replace {second} dev machine0",
        "default route of bootstrap gone",
    ]
    scene.memory.answers["bash"] = (1, b"", b"UMB112 cannot find the bootstrap node IP\n  why: two\n")
    assert fault.ask is not None
    assert "UMB112" in fault.ask(scene)
    assert "/tmp/umbilical-address.sh" not in scene.memory.files


def test_the_route_comes_back_and_the_script_finds_the_address_again() -> None:
    scene = MemoryScene()
    fault = registry.find("no-default-route")
    scene.memory.answers |= {"ip": (0, b"inet 192.0.2.10/24", b""), "bash": (0, b"10.91.0.10\n", b"")}
    fault.mend(scene, {})
    assert "bootstrap$ ip addr del 192.0.2.10/24 dev machine0" in scene.memory.did
    assert "default route of bootstrap there" in scene.memory.did
    scene.memory.answers["ip"] = (0, b"", b"")
    scene.memory.did.clear()
    fault.mend(scene, {})
    assert not any("addr del" in line for line in scene.memory.did), "twice is fine"
    scene.memory.answers["bash"] = (1, b"", b"UMB112 cannot find it\n")
    with pytest.raises(LabError, match="UMB864"):
        fault.mend(scene, {})
