import json
from ipaddress import ip_address

from tests.support.bootstrap_corpus import Case, bootstrap_config

from umbilical.assets.bootkube.anchors import Anchor
from umbilical.assets.bootkube.patch import patch
from umbilical.assets.bootkube.plan import PURPOSES, Plan, plan_value
from umbilical.assets.names import BOOTKUBE
from umbilical.assets.spec import Shape, for_shape
from umbilical.ignition.document import Document

SPEC = for_shape(Shape.OPENSHIFT)


def _plan(case: Case) -> Plan:
    return patch(Document(case.content()), SPEC).plan


def test_a_plan_tells_every_file_with_its_purpose_and_the_script_last() -> None:
    plan = _plan(Case("4.18"))
    assert [change.path for change in plan.changes] == [*PURPOSES, BOOTKUBE]
    assert {change.why for change in plan.changes[:-1]} == set(PURPOSES.values())
    assert (plan.count("+"), plan.count("~"), plan.count("-")) == (9, 1, 0)
    assert plan.changes[-1].lines == "+9 lines"


def test_a_plan_tells_where_the_lines_go_and_what_it_costs() -> None:
    plan = _plan(Case("4.18"))
    assert [insertion.anchor for insertion in plan.insertions] == list(Anchor)
    assert plan.size_after > plan.size_before > 0
    assert plan.release == "4.18"
    assert plan.notes() == []


def test_a_plan_says_what_agents_dial() -> None:
    assert _plan(Case("4.18")).address == "the node's IPv4 address in 10.0.0.0/16, found when it boots"
    assert _plan(Case("4.18", ipv6=True)).address.startswith("the node's IPv6 address in fd2e:")
    fixed = SPEC.replace(node_ip=ip_address("10.0.0.9"))
    assert patch(Document(bootstrap_config()), fixed).plan.address == "10.0.0.9"


def test_a_plan_for_a_patched_config_tells_only_what_differs() -> None:
    once = patch(Document(bootstrap_config()), SPEC).document
    same = patch(once, SPEC).plan
    assert same.insertions == ()
    assert same.notes() == ["this config is patched in the same way already: nothing changes"]
    other = patch(once, SPEC.replace(certificate_hours=3)).plan
    assert not other.changes_nothing
    assert other.count("~") == 1
    assert "patched in another way" in other.notes()[0]


def test_a_plan_is_json_with_stable_names() -> None:
    value = json.loads(json.dumps(plan_value(_plan(Case("5.0", native="off")))))
    assert value["kind"] == "BootstrapPlan"
    assert value["profile"] == "native-off"
    assert value["platform"] == "aws"
    assert value["agentPort"] == 8091
    assert value["nodeIP"] is None
    assert value["machineNetworks"] == ["10.0.0.0/16"]
    assert value["changes"][0].keys() == {"sign", "path", "lines", "why"}
    assert value["insertions"][0].keys() == {"anchor", "beforeLine", "text", "why"}
    assert len(value["notes"]) == 1
