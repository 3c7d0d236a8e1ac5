"""A pod's network comes and goes as a whole."""

import functools
import ipaddress
import os
import signal
import socket
from pathlib import Path

import pytest
from tests.support.lab_wires import Wires, talk
from tests.support.worlds import SCRATCH, World, run_in

from umbilical.host import namespaces
from umbilical.host.namespaces import Kind
from umbilical.lab import pod_network
from umbilical.lab.errors import LabError
from umbilical.lab.netlink import inside
from umbilical.lab.topology import Family

pytestmark = [pytest.mark.root, pytest.mark.real("nft")]
WORLDS = pytest.mark.parametrize("world", list(World), ids=lambda world: world.value)
ADDRESS = ipaddress.ip_interface("10.92.0.9/24")
GATEWAY = ipaddress.ip_address("10.92.0.1")


def _links(namespace: Path) -> list[str]:
    return namespaces.in_network(namespace, lambda: sorted(name for _, name in socket.if_nameindex()))


@WORLDS
def test_a_pod_has_a_loopback_an_interface_and_ways_out(world: World) -> None:
    def body() -> None:
        wires = Wires(Family.DUAL)
        pod = wires.pod("master-0")
        assert _links(pod.namespace) == ["eth0", "lo"]
        assert inside(pod.namespace, lambda netlink: netlink.addresses("eth0")) == ["10.92.0.2/24", "fd92::2/64"]
        assert inside(pod.namespace, lambda netlink: netlink.routes()) == {
            "0.0.0.0/0": "10.92.0.1",
            "::/0": "fd92::1",
        }
        assert "veth-2" in _links(wires.network.namespace("master-0"))

    run_in(world, body)


@WORLDS
def test_a_detached_pod_leaves_nothing_and_its_address_is_free_at_once(world: World) -> None:
    def body() -> None:
        wires = Wires(Family.DUAL)
        node = wires.network.namespace("master-0")
        before = _links(node), Path("/proc/self/mountinfo").read_text(), sorted(os.listdir(SCRATCH / "netns"))
        for _ in range(3):
            pod = wires.pod("master-0")
            for version in wires.versions:
                talk(pod, wires.node("bootstrap"), version)
            for _ in range(2):
                namespaces.in_network(node, functools.partial(pod_network.detach, pod.namespace))
        assert (_links(node), Path("/proc/self/mountinfo").read_text(), sorted(os.listdir(SCRATCH / "netns"))) == before

    run_in(world, body)


@WORLDS
def test_a_process_that_stays_behind_keeps_no_address(world: World) -> None:
    def body() -> None:
        wires = Wires()
        pod = wires.pod("master-0")
        child = os.fork()
        if child == 0:
            namespaces.enter(pod.namespace, Kind.NETWORK)
            os.kill(os.getpid(), signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        pod_network.detach(pod.namespace)
        talk(wires.pod("master-0"), wires.node("bootstrap"), 4)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    run_in(world, body)


@pytest.mark.parametrize(
    ("name", "bridge", "said"),
    [
        ("veth-2", "pods0", "UMB818 cannot link veth-2 with eth0 of net: File exists"),
        ("veth-9", "pods7", "UMB818 cannot join veth-9 to pods7: No such device"),
        ("veth-of-a-long-name", "pods0", "UMB818 cannot call a pod's link 'veth-of-a-long-name': "),
    ],
)
def test_a_pod_that_cannot_be_attached_leaves_nothing(name: str, bridge: str, said: str) -> None:
    def body() -> str:
        wires = Wires()
        wires.pod("master-0")
        node = wires.network.namespace("master-0")
        before = _links(node)

        def attach() -> None:
            pod_network.attach(SCRATCH / "net", name, [ADDRESS], [GATEWAY], bridge)

        with pytest.raises(LabError) as caught:
            namespaces.in_network(node, attach)
        assert not (SCRATCH / "net").exists()
        assert _links(node) == before
        return caught.value.brief

    assert run_in(World.ROOT, body).startswith(said)


def test_a_path_that_is_taken_is_refused_and_stays_as_it_is() -> None:
    def body() -> str:
        wires = Wires()
        pod = wires.pod("master-0")
        with pytest.raises(LabError) as caught:
            wires.pod("master-0")
        talk(pod, wires.node("bootstrap"), 4)
        return caught.value.brief

    assert run_in(World.ROOT, body) == "UMB818 cannot make the network namespace pod-master-0-2: File exists"


def test_a_gateway_that_no_address_reaches_is_refused() -> None:
    def body() -> str:
        node = Wires().network.namespace("master-0")
        stranger = ipaddress.ip_address("10.7.0.1")
        with pytest.raises(LabError) as caught:
            namespaces.in_network(node, lambda: pod_network.attach(SCRATCH / "net", "veth-9", [ADDRESS], [stranger]))
        return caught.value.brief

    assert run_in(World.ROOT, body) == "UMB818 cannot route 0.0.0.0/0 via 10.7.0.1: Network is unreachable"
