"""OpenStack: which group depends on the release."""

import pytest

from umbilical.assets.errors import AssetError
from umbilical.assets.platforms.openstack import blocks, commands, leftovers, rules
from umbilical.assets.platforms.request import Release, Request, parse_network

NETWORKS = (parse_network("10.0.0.0/16"), parse_network("fd00::/64"))


@pytest.mark.parametrize(("minor", "group"), [(20, "ci-master"), (21, "ci-bootstrap"), (22, "ci-bootstrap")])
def test_the_bootstrap_machine_has_its_own_group_from_4_21_on(minor: int, group: str) -> None:
    made = rules(Request("ci", networks=NETWORKS, release=Release(4, minor)))
    assert {rule.target.value for rule in made} == {group}


def test_an_unnamed_release_is_asked_for() -> None:
    with pytest.raises(AssetError, match="--release"):
        rules(Request("ci", networks=NETWORKS))


def test_each_network_has_its_rule_and_its_family() -> None:
    request = Request("ci", networks=NETWORKS, release=Release(4, 21))
    families = [block.attributes["ethertype"] for block in blocks(request)[1:] if block.attributes]
    assert families == ["IPv4", "IPv6"]
    assert [command.words[7] for command in commands(request).open] == families


def test_leftovers_are_looked_for_in_both_groups_by_the_installers_tags() -> None:
    words = [" ".join(str(word) for word in command.words) for command in leftovers(Request("ci")).show]
    assert "openshiftClusterID=ci,openshiftRole=bootstrap" in words[0]
    assert "ci-master" in words[1]
