"""Conversations with the kernel about links and routes, in namespaces of the test's own."""

import functools
import ipaddress
import os
import threading
from collections.abc import Callable

import pytest
from tests.support.worlds import SCRATCH, World, run_in

from umbilical.host import namespaces
from umbilical.lab.errors import LabError
from umbilical.lab.netlink import Link, Netlink, inside

pytestmark = pytest.mark.root
WORLDS = pytest.mark.parametrize("world", list(World), ids=lambda world: world.value)
NETWORK = ipaddress.ip_network("10.7.0.0/24")


def _pair() -> None:
    namespaces.create_network(SCRATCH / "far")
    with Netlink() as netlink:
        netlink.add_veth("near0", "far0", SCRATCH / "far")
        netlink.set_link("near0", up=True)
        netlink.add_address("near0", ipaddress.ip_interface("10.0.0.1/24"))


@WORLDS
def test_a_pair_of_links_has_each_end_in_its_namespace(world: World) -> None:
    def body() -> tuple[list[str], list[str]]:
        _pair()
        with Netlink() as netlink:
            here = [link.name for link in netlink.links()]
        return here, inside(SCRATCH / "far", lambda netlink: [link.name for link in netlink.links()])

    assert run_in(world, body) == (["lo", "near0"], ["lo", "far0"])


@WORLDS
def test_a_link_has_a_carrier_when_both_ends_are_up(world: World) -> None:
    def body() -> list[tuple[bool, bool]]:
        _pair()
        seen = []
        with Netlink() as netlink:
            for up in (False, True, False):
                inside(SCRATCH / "far", functools.partial(Netlink.set_link, name="far0", up=up))
                link = netlink.link("near0")
                assert isinstance(link, Link)
                seen.append((link.is_up, link.has_carrier))
        return seen

    assert run_in(world, body) == [(True, False), (True, True), (True, False)]


@WORLDS
def test_a_route_is_replaced_and_removed_and_removing_it_twice_is_fine(world: World) -> None:
    def body() -> list[dict[str, str]]:
        _pair()
        seen = []
        with Netlink() as netlink:
            for neighbour in ("10.0.0.2", "10.0.0.3"):
                netlink.set_route(NETWORK, ipaddress.ip_address(neighbour))
                seen.append(netlink.routes())
            for _ in range(2):
                netlink.delete_route(NETWORK)
                seen.append(netlink.routes())
        return seen

    assert run_in(world, body) == [{"10.7.0.0/24": "10.0.0.2"}, {"10.7.0.0/24": "10.0.0.3"}, {}, {}]


@WORLDS
def test_an_interface_is_taken_for_the_address_it_is(world: World) -> None:
    def body() -> dict[str, str]:
        _pair()
        with Netlink() as netlink:
            netlink.set_route(NETWORK, ipaddress.ip_interface("10.0.0.2/24"))
            return netlink.routes()

    assert run_in(world, body) == {"10.7.0.0/24": "10.0.0.2"}


@WORLDS
def test_a_default_route_of_one_family_goes_without_the_other(world: World) -> None:
    def body() -> list[dict[str, str]]:
        _pair()
        seen = []
        with Netlink() as netlink:
            netlink.add_address("near0", ipaddress.ip_interface("fd00::1/64"))
            netlink.set_route(ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_address("10.0.0.2"))
            netlink.set_route(ipaddress.ip_network("::/0"), ipaddress.ip_address("fd00::2"))
            for anywhere in ("::/0", "0.0.0.0/0"):
                seen.append(netlink.routes())
                netlink.delete_route(ipaddress.ip_network(anywhere))
        return seen

    assert run_in(world, body) == [{"0.0.0.0/0": "10.0.0.2", "::/0": "fd00::2"}, {"0.0.0.0/0": "10.0.0.2"}]


@WORLDS
def test_a_link_is_removed_with_its_other_end_and_removing_it_twice_is_fine(world: World) -> None:
    def body() -> list[str]:
        _pair()
        with Netlink() as netlink:
            for _ in range(2):
                netlink.delete_link("near0")
        return inside(SCRATCH / "far", lambda netlink: [link.name for link in netlink.links()])

    assert run_in(world, body) == ["lo"]


@WORLDS
def test_conversations_leave_no_descriptor_and_no_thread(world: World) -> None:
    def body() -> None:
        _pair()
        before = sorted(os.listdir("/proc/self/fd"))
        for _ in range(20):
            inside(SCRATCH / "far", lambda netlink: netlink.links())
        assert sorted(os.listdir("/proc/self/fd")) == before
        assert threading.active_count() == 1

    run_in(world, body)


def test_a_refusal_says_what_was_tried_and_why_it_failed() -> None:
    def body() -> list[str]:
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
        return said

    assert run_in(World.ROOT, body) == [
        "UMB818 cannot link a with b of missing: No such file or directory",
        "UMB818 cannot add 10.0.0.1/24 to missing0: No such device",
        "UMB818 cannot route 10.7.0.0/24 via 10.0.0.2: Network is unreachable",
        "UMB818 cannot make the bridge lo: File exists",
    ]


def test_without_permission_the_remedy_is_a_namespace_of_ones_own() -> None:
    def body() -> str:
        with Netlink() as netlink:
            os.setresuid(65534, 65534, 65534)
            with pytest.raises(LabError) as caught:
                netlink.set_link("lo", up=True)
        assert caught.value.why == "Operation not permitted"
        return caught.value.remedy

    assert run_in(World.ROOT, body) == "run it in a network namespace of your own: `umbilical lab up` makes one"
