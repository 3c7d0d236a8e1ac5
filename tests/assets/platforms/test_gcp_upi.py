"""Google Cloud by hand: only the bootstrap machine is opened."""

from umbilical.assets.platforms.gcp_upi import blocks, commands, rules
from umbilical.assets.platforms.request import Request


def test_the_target_is_the_bootstrap_machines_own_tag() -> None:
    rule = rules(Request("ci"))[0]
    assert rule.target.value == "ci-bootstrap"
    assert [place.value for place in rule.sources] == ["ci-worker", "ci-master"]


def test_the_network_is_asked_for() -> None:
    assert [need.variable for need in commands(Request("ci")).needs] == ["network"]
    assert blocks(Request("ci"))[0].labels == ("network",)
