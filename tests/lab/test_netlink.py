"""Links, routes and rules as the kernel and nft take them, in namespaces of the test's own."""

import functools
import ipaddress
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import packet_rules
from tests.support.lab_wires import each_world, in_roots_world
from tests.support.worlds import SCRATCH, World

from umbilical.fault import LabError
from umbilical.host import namespaces
from umbilical.lab import nft, packet_filter
from umbilical.lab.netlink import Link, Netlink, inside

WORLDS = pytest.mark.parametrize("world", list(World), ids=lambda world: world.value)
NETWORK = ipaddress.ip_network("10.7.0.0/24")


def _pair() -> None:
    namespaces.create_network(SCRATCH / "far")
    with Netlink() as netlink:
        netlink.add_veth("near0", "far0", SCRATCH / "far")
        netlink.set_link("near0", up=True)
        netlink.add_address("near0", ipaddress.ip_interface("10.0.0.1/24"))


def _names(netlink: Netlink) -> list[str]:
    return [link.name for link in netlink.links()]


@each_world
def test_a_pair_of_links_has_each_end_in_its_namespace_and_both_go_together(world: World) -> None:
    _pair()
    with Netlink() as netlink:
        assert _names(netlink) == ["lo", "near0"]
        assert inside(SCRATCH / "far", _names) == ["lo", "far0"]
        for _ in range(2):
            netlink.delete_link("near0")
    assert inside(SCRATCH / "far", _names) == ["lo"]


@pytest.mark.root
@each_world
def test_a_link_has_a_carrier_when_both_ends_are_up(world: World) -> None:
    _pair()
    seen = []
    with Netlink() as netlink:
        for up in (False, True, False):
            inside(SCRATCH / "far", functools.partial(Netlink.set_link, name="far0", up=up))
            link = netlink.link("near0")
            assert isinstance(link, Link)
            seen.append((link.is_up, link.has_carrier))
    assert seen == [(True, False), (True, True), (True, False)]


@pytest.mark.root
@each_world
def test_a_route_is_replaced_and_removed_and_removing_it_twice_is_fine(world: World) -> None:
    _pair()
    seen = []
    with Netlink() as netlink:
        for neighbour in ("10.0.0.2", "10.0.0.3"):
            netlink.set_route(NETWORK, ipaddress.ip_interface(f"{neighbour}/24"))
            seen.append(netlink.routes())
        for _ in range(2):
            netlink.delete_route(NETWORK)
            seen.append(netlink.routes())
    assert seen == [{"10.7.0.0/24": "10.0.0.2"}, {"10.7.0.0/24": "10.0.0.3"}, {}, {}]


@pytest.mark.root
@each_world
def test_a_default_route_of_one_family_goes_without_the_other(world: World) -> None:
    _pair()
    seen = []
    with Netlink() as netlink:
        netlink.add_address("near0", ipaddress.ip_interface("fd00::1/64"))
        netlink.set_route(ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_address("10.0.0.2"))
        netlink.set_route(ipaddress.ip_network("::/0"), ipaddress.ip_address("fd00::2"))
        for anywhere in ("::/0", "0.0.0.0/0"):
            seen.append(netlink.routes())
            netlink.delete_route(ipaddress.ip_network(anywhere))
    assert seen == [{"0.0.0.0/0": "10.0.0.2", "::/0": "fd00::2"}, {"0.0.0.0/0": "10.0.0.2"}]


@pytest.mark.root
@each_world
def test_conversations_leave_no_descriptor_and_no_thread(world: World) -> None:
    _pair()
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(20):
        inside(SCRATCH / "far", lambda netlink: netlink.links())
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert threading.active_count() == 1


@pytest.mark.root
@in_roots_world
def test_a_refusal_says_what_was_tried_and_why_it_failed() -> None:
    said = []
    with Netlink() as netlink:
        calls: list[Callable[[], None]] = [
            lambda: netlink.add_veth("a", "b", SCRATCH / "missing"),
            lambda: netlink.add_address("missing0", ipaddress.ip_interface("10.0.0.1/24")),
            lambda: netlink.set_route(NETWORK, ipaddress.ip_address("10.0.0.2")),
            lambda: netlink.add_bridge("lo"),
        ]
        for call in calls:
            with pytest.raises(LabError) as caught:
                call()
            said.append(caught.value.brief)
    assert said == [
        "UMB818 failed to link a with b of missing: No such file or directory",
        "UMB818 failed to add 10.0.0.1/24 to missing0: No such device",
        "UMB818 failed to route 10.7.0.0/24 via 10.0.0.2: Network is unreachable",
        "UMB818 failed to create the bridge lo: File exists",
    ]


@pytest.mark.root
@in_roots_world
def test_without_permission_the_remedy_is_a_namespace_of_ones_own() -> None:
    with Netlink() as netlink:
        os.setresuid(65534, 65534, 65534)
        with pytest.raises(LabError) as caught:
            netlink.set_link("lo", up=True)
    assert caught.value.why == "Operation not permitted"
    assert caught.value.remedy == "run it in a network namespace of your own, like that of `umbilical lab up`"


TEXTS = {
    "block_tcp_port": packet_rules.block_tcp_port(8091),
    "lose_at_random": nft.lose_at_random(30, "machine0"),
    "drop_ipv4": packet_rules.drop_address(ipaddress.ip_address("10.91.0.10")),
    "drop_ipv6": packet_rules.drop_address(ipaddress.ip_address("fd91::10")),
}
FRONTS = {4: ipaddress.ip_address("10.91.0.200"), 6: ipaddress.ip_address("fd91::200")}


def _listed(name: str) -> str:
    return subprocess.check_output(["nft", "list", "table", "inet", f"umbilical_{name}"], timeout=30, text=True)


@pytest.mark.root
@pytest.mark.real("nft")
@in_roots_world
def test_an_address_is_spread_over_any_number_of_others() -> None:
    for front, count in ((FRONTS[4], 0), (FRONTS[4], 1), (FRONTS[6], 0), (FRONTS[6], 3)):
        targets = [front + number for number in range(1, count + 1)]
        nft.load("front", nft.spread(front, 8090, targets))
        rules = _listed("front")
        assert f"daddr {front} tcp dport 8090" in rules
        assert ("dnat" in rules) is bool(count)
        assert ("reject with tcp reset" in rules) is not bool(count)
        assert all(str(target) in rules for target in targets)


@pytest.mark.root
@pytest.mark.real("nft")
@each_world
def test_every_text_is_loaded_with_all_its_rules(world: World) -> None:
    for name, text in TEXTS.items():
        nft.load(name, text)
        rules = [line for line in text.splitlines() if line.endswith("drop")]
        kept = [line for line in _listed(name).splitlines() if line.endswith("drop")]
        assert rules
        assert len(kept) == len(rules)
    assert packet_filter.loaded() == sorted(TEXTS)
    for name in TEXTS:
        packet_filter.unload(name)
    assert packet_filter.loaded() == []


@pytest.mark.root
@pytest.mark.real("nft")
@in_roots_world
def test_without_permission_the_kernel_is_quoted() -> None:
    os.setresuid(65534, 65534, 65534)
    with pytest.raises(LabError) as caught:
        nft.load("mine", "")
    said = caught.value.brief
    assert said.startswith("UMB818 failed to load the rules mine: ")
    assert "Operation not permitted" in said


@given(
    st.text().filter(lambda name: not name.isascii() or not name.replace("_", "x").isalnum() or name.lower() != name)
)
def test_a_name_that_could_be_more_than_a_name_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="UMB818"):
        nft.load(name, "")


def test_nft_is_found_beyond_an_ordinary_users_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nft"
    program.touch()
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(nft, "SYSTEM_FOLDERS", (str(tmp_path),))
    assert nft.program() == program
