"""Real packets through a lab's networks, as root and as an ordinary user in a user namespace."""

import functools
import ipaddress
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from tests.support.fixture_types import Patch
from tests.support.lab_wires import Wires, dial, each_place, each_world, in_roots_world, listen, talk
from tests.support.worlds import SCRATCH, World, run_in

from umbilical.fault import LabError
from umbilical.host import namespaces
from umbilical.host.namespaces import NamespaceKind
from umbilical.lab import network
from umbilical.lab.netlink import inside
from umbilical.lab.network import LabNetwork
from umbilical.lab.topology import Family, plan_topology

pytestmark = [pytest.mark.root, pytest.mark.real("nft")]
OUTSIDE = {4: "192.0.2.1", 6: "2001:db8::1"}


@each_place
def test_nodes_and_pods_reach_each_other_and_nobody_reaches_what_is_cut_off(world: World, family: Family) -> None:
    wires = Wires(family)
    bootstrap, master, other = (wires.node(name) for name in ("bootstrap", "master-0", "master-1"))
    here, beside, elsewhere = wires.pod("master-0"), wires.pod("master-0", 3), wires.pod("master-1")
    for version in wires.versions:
        for client, server in ((bootstrap, master), (master, bootstrap), (here, beside), (here, elsewhere)):
            assert talk(client, server, version) == client.address(version)
        assert talk(elsewhere, here, version) == elsewhere.address(version)
        # Beyond the pods' network a pod is seen under the address of its node.
        assert talk(here, bootstrap, version) == talk(here, other, version) == master.address(version)
        assert talk(other, here, version) == other.address(version)
        talk(master, here, version)
        with listen(here, version):
            assert dial(bootstrap, here.address(version)) == "Network is unreachable"
        for place in (bootstrap, master, here):
            assert dial(place, OUTSIDE[version]) == "Network is unreachable"
    # A router's own refusals are limited to a few per second; the sixth dial would hang.
    if 4 in wires.versions:
        assert {dial(bootstrap, here.address(4)) for _ in range(40)} == {"Network is unreachable"}


@each_world
def test_two_labs_with_the_same_addresses_do_not_hear_each_other(world: World) -> None:
    one, other = Wires(folder="one"), Wires(folder="other")
    pods = one.pod("master-0"), other.pod("master-0")
    assert pods[0].addresses == pods[1].addresses
    with listen(one.node("master-0"), 4):
        assert dial(one.node("bootstrap"), "10.91.0.11") == "connected"
        assert dial(other.node("bootstrap"), "10.91.0.11") == "Connection refused"
    for wires, pod in zip((one, other), pods, strict=True):
        assert talk(pod, wires.node("bootstrap"), 4) == "10.91.0.11"


def _ip(*words: str) -> str:
    return subprocess.check_output(["ip", *words], timeout=30, text=True)


def _surroundings() -> dict[str, object]:
    """Everything of the namespace we are in that a lab could have changed."""
    return {
        "links": sorted(name for _, name in socket.if_nameindex()),
        "routes": _ip("route", "show", "table", "all"),
        "routes6": _ip("-6", "route", "show", "table", "all"),
        "policies": _ip("rule"),
        "addresses": _ip("-brief", "address"),
        "rules": subprocess.check_output(["nft", "list", "ruleset"], timeout=30),
        "forwarding": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
        "forwarding6": Path("/proc/sys/net/ipv6/conf/all/forwarding").read_text(),
    }


@pytest.mark.usefixtures("own_machine")
@pytest.mark.real("ip")
def test_nothing_appears_in_the_namespace_of_the_host() -> None:
    host = os.open("/proc/self/ns/net", os.O_RDONLY)

    def body() -> None:
        namespaces.enter(host, NamespaceKind.NETWORK)
        before = _surroundings()
        wires = Wires(Family.DUAL)
        pod = wires.pod("master-0")
        wires.network.set_link("master-0", up=False)
        assert "lo" in before["links"]  # type: ignore[operator]
        assert _surroundings() == before
        assert dial(pod, "10.91.0.99", seconds=0.1) != "connected"

    try:
        run_in(World.ROOT, body)
    finally:
        os.close(host)


@each_world
@pytest.mark.usefixtures("own_machine")
@pytest.mark.real("ip")
def test_nothing_appears_in_the_namespace_of_the_keeper_and_no_descriptor_stays_open(world: World) -> None:
    before = _surroundings()
    Wires(Family.DUAL).pod("master-0")
    assert before["links"] == ["lo"]
    assert _surroundings() == before
    before_files = sorted(os.listdir("/proc/self/fd"))
    Wires(folder="second").network.describe()
    assert sorted(os.listdir("/proc/self/fd")) == before_files


@each_world
def test_the_description_is_what_the_kernel_says(world: World) -> None:
    wires = Wires(Family.DUAL, masters=1)
    wires.network.set_link("bootstrap", up=False)
    wires.network.set_default_route("master-0", present=False)
    wires.network.add_rules("bootstrap", "empty", "")
    assert wires.network.describe() == {
        "switch": ["10.91.0.1", "fd91::1"],
        "nodes": {
            "bootstrap": {
                "namespace": str(SCRATCH / "netns/bootstrap"),
                "addresses": ["10.91.0.10/24", "fd91::10/64"],
                "pod_networks": [],
                "is_linked": False,
                "has_default_route": True,
                "rules": ["empty"],
            },
            "master-0": {
                "namespace": str(SCRATCH / "netns/master-0"),
                "addresses": ["10.91.0.11/24", "fd91::11/64"],
                "pod_networks": ["10.92.0.0/24", "fd92::/64"],
                "is_linked": True,
                "has_default_route": False,
                "rules": [],
            },
        },
    }


@in_roots_world
def test_networks_are_made_without_the_program_nft(monkeypatch: Patch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("umbilical.lab.nft.SYSTEM_FOLDERS", ())
    network = LabNetwork(plan_topology(), SCRATCH / "netns")
    network.build()
    with pytest.raises(LabError) as caught:
        network.add_rules("bootstrap", "mine", "")
    assert f"{caught.value.code}: {caught.value.remedy}" == "UMB822: install the package nftables"


@in_roots_world
def test_a_lab_where_one_stands_already_is_refused() -> None:
    Wires()
    with pytest.raises(LabError) as caught:
        Wires()
    assert caught.value.brief == "UMB818 failed to create the network namespace switch: File exists"


def test_a_machine_that_lets_us_make_no_more_namespaces_is_named() -> None:
    def body() -> str:
        Path("/proc/sys/user/max_net_namespaces").write_text("0")
        with pytest.raises(LabError) as caught:
            Wires()
        assert "user.max_net_namespaces" in caught.value.remedy
        return caught.value.brief

    # Only in a user namespace is the limit its own.
    said = run_in(World.ORDINARY, body)
    assert said == "UMB818 failed to create the network namespace switch: unshare: No space left on device"


def test_settings_that_cannot_be_written_and_a_kernel_without_ipv6_are_named() -> None:
    def read_only() -> str:
        namespaces.bind("/proc/sys", "/proc/sys", is_read_only=True)
        with pytest.raises(LabError) as caught:
            Wires()
        return caught.value.brief

    def without_ipv6() -> str:
        namespaces.mount("tmpfs", "/proc/sys/net", "tmpfs")
        with pytest.raises(LabError) as caught:
            Wires(Family.IPV6)
        return caught.value.remedy

    said = run_in(World.ROOT, read_only)
    assert said == "UMB818 failed to set ipv4.conf.all.rp_filter in a namespace of the lab: Read-only file system"
    assert run_in(World.ROOT, without_ipv6) == "the kernel has no IPv6: use --family ipv4"


ADDRESS = ipaddress.ip_interface("10.92.0.9/24")
GATEWAY = ipaddress.ip_address("10.92.0.1")


def _links(namespace: Path) -> list[str]:
    return namespaces.in_network(namespace, lambda: sorted(name for _, name in socket.if_nameindex()))


@each_world
def test_a_pod_has_an_interface_and_ways_out_and_leaves_nothing_when_it_is_detached(world: World) -> None:
    wires = Wires(Family.DUAL)
    pod = wires.pod("master-0")
    assert _links(pod.namespace) == ["eth0", "lo"]
    assert inside(pod.namespace, lambda netlink: netlink.addresses("eth0")) == ["10.92.0.2/24", "fd92::2/64"]
    assert inside(pod.namespace, lambda netlink: netlink.routes()) == {"0.0.0.0/0": "10.92.0.1", "::/0": "fd92::1"}
    assert "veth-2" in _links(wires.network.namespace("master-0"))
    node = wires.network.namespace("master-0")
    network.detach_pod(pod.namespace)
    before = _links(node), Path("/proc/self/mountinfo").read_text(), sorted(os.listdir(SCRATCH / "netns"))
    for _ in range(3):
        pod = wires.pod("master-0")
        for version in wires.versions:
            talk(pod, wires.node("bootstrap"), version)
        for _ in range(2):
            namespaces.in_network(node, functools.partial(network.detach_pod, pod.namespace))
    assert (_links(node), Path("/proc/self/mountinfo").read_text(), sorted(os.listdir(SCRATCH / "netns"))) == before


@each_world
def test_a_process_that_stays_behind_keeps_no_address(world: World) -> None:
    wires = Wires()
    pod = wires.pod("master-0")
    child = os.fork()
    if child == 0:
        namespaces.enter(pod.namespace, NamespaceKind.NETWORK)
        os.kill(os.getpid(), signal.SIGSTOP)
    os.waitpid(child, os.WUNTRACED)
    network.detach_pod(pod.namespace)
    talk(wires.pod("master-0"), wires.node("bootstrap"), 4)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("name", "bridge", "said"),
    [
        ("veth-2", "pods0", "UMB818 failed to link veth-2 with eth0 of net: File exists"),
        ("veth-9", "pods7", "UMB818 failed to join veth-9 to pods7: No such device"),
        ("veth-of-a-long-name", "pods0", "UMB818 'veth-of-a-long-name' is not a valid name for a pod's link: "),
    ],
)
@in_roots_world
def test_a_pod_that_cannot_be_attached_leaves_nothing(name: str, bridge: str, said: str) -> None:
    wires = Wires()
    wires.pod("master-0")
    node = wires.network.namespace("master-0")
    before = _links(node)

    def attach() -> None:
        network.attach_pod(SCRATCH / "net", name, [ADDRESS], [GATEWAY], bridge)

    with pytest.raises(LabError) as caught:
        namespaces.in_network(node, attach)
    assert not (SCRATCH / "net").exists()
    assert _links(node) == before
    assert caught.value.brief.startswith(said)


@in_roots_world
def test_a_path_that_is_taken_is_refused_and_stays_as_it_is() -> None:
    wires = Wires()
    pod = wires.pod("master-0")
    with pytest.raises(LabError) as caught:
        wires.pod("master-0")
    talk(pod, wires.node("bootstrap"), 4)
    assert caught.value.brief == "UMB818 failed to create the network namespace pod-master-0-2: File exists"


@in_roots_world
def test_a_gateway_that_no_address_reaches_is_refused() -> None:
    node = Wires().network.namespace("master-0")
    stranger = ipaddress.ip_address("10.7.0.1")
    with pytest.raises(LabError) as caught:
        namespaces.in_network(node, lambda: network.attach_pod(SCRATCH / "net", "veth-9", [ADDRESS], [stranger]))
    assert caught.value.brief == "UMB818 failed to route 0.0.0.0/0 via 10.7.0.1: Network is unreachable"
