"""Addresses of pods: low, unique, given back. That they can be dialled is shown in whole labs."""

import asyncio
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.lab.pods.errors import Waiting
from umbilical.lab.pods.node import Node
from umbilical.lab.pods.pod_networks import AddressPool, PodNetworks, link_name
from umbilical.lab.pods.spec import Container, Pod

IPV4 = ipaddress.ip_network("10.92.1.0/24")
IPV6 = ipaddress.ip_network("fd92:0:0:1::/64")


def test_the_first_pod_has_the_second_address_in_every_family() -> None:
    pool = AddressPool((IPV4, IPV6))
    assert [str(interface) for interface in pool.take("a")] == ["10.92.1.2/24", "fd92:0:0:1::2/64"]
    assert [str(gateway) for gateway in pool.gateways] == ["10.92.1.1", "fd92:0:0:1::1"]


def test_an_address_that_was_given_back_is_taken_again() -> None:
    pool = AddressPool((IPV4,))
    first, second = pool.take("a"), pool.take("b")
    pool.give_back("a")
    assert pool.take("c") == first
    assert pool.take("d") != second


def test_a_full_network_and_none_at_all_are_told_of() -> None:
    pool = AddressPool((ipaddress.ip_network("10.92.1.0/30"),))
    pool.take("a")
    with pytest.raises(Waiting, match="UMB835"):
        pool.take("b")
    with pytest.raises(Waiting, match="no pod network"):
        AddressPool(()).take("a")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60))
def test_no_address_is_taken_twice(moves: list[tuple[bool, int]]) -> None:
    pool = AddressPool((IPV4,))
    held: dict[str, object] = {}
    for takes, number in moves:
        uid = str(number)
        if takes and uid not in held:
            held[uid] = pool.take(uid)[0]
        elif not takes:
            pool.give_back(uid)
            held.pop(uid, None)
        assert len(set(held.values())) == len(held)


def test_a_links_name_is_as_short_as_the_kernel_wants_it() -> None:
    names = {link_name(f"uid-{number}") for number in range(100)}
    assert len(names) == 100
    assert max(map(len, names)) <= 15


def test_a_pod_without_a_network_is_told_why() -> None:
    networks = PodNetworks(Node("bootstrap", ("10.91.0.10",), {}))
    with pytest.raises(Waiting, match="UMB835"):
        asyncio.run(networks.attach(Pod("p", "ns", "u", (Container("a", "i"),))))
