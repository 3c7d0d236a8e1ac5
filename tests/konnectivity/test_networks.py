"""Networks and the longest prefix, held against the standard library's own arithmetic."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.konnectivity.networks import NetworkTable, covers, parse_network


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.0.0.0/8", (4, 8, 10)),
        ("10.1.2.3/8", (4, 8, 10)),
        ("0.0.0.0/0", (4, 0, 0)),
        ("10.0.0.1/32", (4, 32, 0x0A000001)),
        ("fd00::/8", (6, 8, 0xFD)),
        ("::/0", (6, 0, 0)),
        ("::1/128", (6, 128, 1)),
        ("::ffff:10.0.0.0/104", (4, 8, 10)),
        ("::ffff:0.0.0.0/96", (4, 0, 0)),
        ("::ffff:10.0.0.0/95", (6, 95, 0xFFFF >> 1)),
    ],
)
def test_a_network_is_its_version_and_prefix(text: str, network: tuple[int, int, int]) -> None:
    assert parse_network(text) == network


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "/8",
        "10.0.0.0",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "10.0.0.0/+8",
        "10.0.0.0/8/8",
        "10.0.0.0/255.0.0.0",
        "10.0.0.0/\u0668",
        "10.0.0/8",
        "010.0.0.0/8",
        "fd00::/129",
        "fd00::/9999999999",
        "fe80::%eth0/64",
        "example.com/8",
        "\u0661.0.0.0/8",
    ],
)
def test_anything_else_is_no_network(text: str) -> None:
    assert parse_network(text) is None


@given(st.text())
def test_no_text_breaks_the_reader_or_the_search(text: str) -> None:
    table = NetworkTable()
    table.group((4, 8, 10))
    parse_network(text)
    parse_network(f"{text}/8")
    table.find(text)


V4 = st.builds(
    lambda number, length: (4, length, number >> (32 - length)), st.integers(0, 2**32 - 1), st.integers(0, 32)
)
V6 = st.builds(
    lambda number, length: (6, length, number >> (128 - length)), st.integers(0, 2**128 - 1), st.integers(0, 128)
)


def as_network(network: tuple[int, int, int]) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    version, length, prefix = network
    if version == 4:
        return ipaddress.IPv4Network((prefix << (32 - length), length))
    return ipaddress.IPv6Network((prefix << (128 - length), length))


@given(st.lists(V4 | V6, max_size=30), st.ip_addresses(), st.data())
def test_the_longest_prefix_that_holds_the_address_is_found(
    networks: list[tuple[int, int, int]], address: ipaddress.IPv4Address | ipaddress.IPv6Address, data: st.DataObject
) -> None:
    is_inside = data.draw(st.booleans())
    if networks and is_inside:  # else hardly any network would ever hold the address
        address = data.draw(st.sampled_from([as_network(network)[0] for network in networks]))
    table = NetworkTable()
    groups = {network: table.group(network) for network in networks}
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    holding = [network for network in groups if address in as_network(network)]
    found = table.find(str(address))
    if holding:
        assert found is groups[max(holding, key=lambda network: network[1])]
    else:
        assert found is None


@given(st.lists(V4 | V6, max_size=20))
def test_networks_without_agents_are_forgotten(networks: list[tuple[int, int, int]]) -> None:
    table = NetworkTable()
    for network in networks:
        table.group(network)
    assert table.count == len(set(networks))
    for network in networks * 2:
        table.forget_if_empty(network)
    assert table.count == 0
    assert table.find("10.0.0.1") is None


def test_ipv4_in_the_clothes_of_ipv6_is_ipv4_and_no_other_ipv6_network_holds_it() -> None:
    table = NetworkTable()
    all_of_six = table.group((6, 0, 0))
    assert table.find("10.0.0.1") is None
    assert table.find("::ffff:10.0.0.1") is None
    ten = table.group((4, 8, 10))
    assert table.find("::ffff:10.0.0.1") is ten
    assert table.find("::ffff:a00:1") is ten
    assert table.find("fe80::1%eth0") is all_of_six


@pytest.mark.parametrize(
    ("outer", "inner", "holds"),
    [
        ("10.0.0.0/8", "10.1.0.0/16", True),
        ("10.0.0.0/8", "10.0.0.0/8", True),
        ("10.0.0.0/8", "10.0.0.0/7", False),
        ("10.0.0.0/8", "11.0.0.0/16", False),
        ("0.0.0.0/0", "1.2.3.4/32", True),
        ("::/0", "1.2.3.4/32", False),
        ("fd00::/8", "fd12::/16", True),
    ],
)
def test_a_network_covers_those_within_it(outer: str, inner: str, holds: bool) -> None:
    first, second = parse_network(outer), parse_network(inner)
    assert first is not None
    assert second is not None
    assert covers(first, second) is holds
