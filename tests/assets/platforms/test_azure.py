"""Azure: names and numbers as the installer gives them, and never from anywhere."""

import pytest

from umbilical.assets.platforms.azure import commands, edit, leftovers, rules
from umbilical.assets.platforms.request import Request, parse_network
from umbilical.assets.spec import IpNetwork

NETWORKS = tuple(parse_network(text) for text in ("10.0.0.0/16", "fd00::/64", "10.1.0.0/16"))


def test_one_rule_lets_the_virtual_network_in() -> None:
    assert [(rule.name, rule.priority, rule.sources[0].value) for rule in rules(Request("ci"))] == [
        ("konnectivity_in", 230, "VirtualNetwork")
    ]


def test_known_networks_get_a_numbered_rule_each() -> None:
    made = rules(Request("ci", networks=NETWORKS))
    assert [(rule.name, rule.priority) for rule in made] == [
        ("konnectivity_in_ipv4_00", 100),
        ("konnectivity_in_ipv6_00", 110),
        ("konnectivity_in_ipv4_01", 120),
    ]
    assert [rule.sources[0].value for rule in made] == [str(network) for network in NETWORKS]


@pytest.mark.parametrize("networks", [(), NETWORKS])
def test_no_form_of_the_rule_has_any_source(networks: tuple[IpNetwork, ...]) -> None:
    request = Request("ci", networks=networks)
    assert "*" not in {item["source"] for item in edit(request).items}
    for command in commands(request).open:
        words = [str(word) for word in command.words]
        assert words[words.index("--source-address-prefixes") + 1] != "*"


def test_leftovers_are_found_under_the_name_that_the_installer_misses_too() -> None:
    shown = " ".join(str(word) for word in leftovers(Request("ci")).show[0].words)
    # konnectivity_in and ci_konnectivity_in both contain it.
    assert "contains(name, 'konnectivity_in')" in shown


def test_a_rule_for_the_port_is_recognised() -> None:
    opens = edit(Request("ci")).opens
    assert opens({"destinationPorts": "8091", "direction": "Inbound"})
    assert not opens({"destinationPorts": "8091", "direction": "Outbound"})
    assert not opens({"destinationPorts": "6443", "direction": "Inbound"})
