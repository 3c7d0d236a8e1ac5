"""OpenStack by hand: the playbooks' group, whatever the release."""

from umbilical.assets.platforms.openstack_upi import blocks, commands, leftovers, rules
from umbilical.assets.platforms.request import Request, parse_network


def test_the_masters_group_is_opened() -> None:
    request = Request("ci", networks=(parse_network("10.0.0.0/16"),))
    assert rules(request)[0].target.value == "ci-master"
    assert commands(request).open[0].words[-1] == "ci-master"
    assert blocks(request)[0].attributes == {"name": "ci-master"}
    assert "ci-master" in leftovers(request).show[0].words
