"""IBM Cloud: the rule in the group that goes with the bootstrap machine."""

from umbilical.assets.platforms.ibmcloud import edit, rules
from umbilical.assets.platforms.platform import Named
from umbilical.assets.platforms.request import Request


def test_the_rule_is_in_the_bootstrap_machines_own_group() -> None:
    assert rules(Request("ci"))[0].target.value == "ci-security-group-bootstrap"
    assert Named("ci-security-group-bootstrap") in edit(Request("ci")).path


def test_the_source_is_the_clusters_group() -> None:
    remotes = edit(Request("ci")).items[0]["source"]["remotes"]
    assert remotes == [{"remoteType": "sg", "securityGroupName": "ci-sg-cluster-wide"}]


def test_a_rule_for_the_port_is_recognised() -> None:
    made = edit(Request("ci"))
    assert made.opens(made.items[0])
    assert not made.opens({"action": "allow", "destination": {}})
