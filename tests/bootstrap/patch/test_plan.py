"""What a patch would do, and the receipt by which it is undone."""

import json
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bootstrap_corpus import Case, bootstrap_config

from umbilical.bootstrap.names import BOOTKUBE, OWN, RECEIPT
from umbilical.bootstrap.patch.anchors import Anchor
from umbilical.bootstrap.patch.patch import patch
from umbilical.bootstrap.patch.plan import PURPOSES, Plan, plan_value
from umbilical.bootstrap.patch.receipt import Receipt, decode_receipt, sha256
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.fault import RenderError
from umbilical.ignition.document import IgnitionDocument

SPEC = for_shape(Shape.OPENSHIFT)


def _plan(case: Case) -> Plan:
    return patch(IgnitionDocument(case.content()), SPEC).plan


def test_a_plan_tells_every_file_with_its_purpose_where_the_lines_go_and_what_it_costs() -> None:
    plan = _plan(Case("4.18"))
    assert [change.path for change in plan.changes] == [*PURPOSES, BOOTKUBE]
    assert {change.why for change in plan.changes[:-1]} == set(PURPOSES.values())
    assert (plan.count("+"), plan.count("~"), plan.count("-")) == (9, 1, 0)
    assert plan.changes[-1].lines == "+9 lines"
    plan = _plan(Case("4.18"))
    assert [insertion.anchor for insertion in plan.insertions] == list(Anchor)
    assert plan.size_after > plan.size_before > 0
    assert plan.release == "4.18"
    assert plan.notes() == []


def test_a_plan_says_what_agents_dial() -> None:
    assert _plan(Case("4.18")).address == "the node's IPv4 address in 10.0.0.0/16, found when it boots"
    assert _plan(Case("4.18", ipv6=True)).address.startswith("the node's IPv6 address in fd2e:")
    fixed = SPEC.replace(node_ip=ip_address("10.0.0.9"))
    assert patch(IgnitionDocument(bootstrap_config()), fixed).plan.address == "10.0.0.9"


def test_a_plan_for_a_patched_config_tells_only_what_differs() -> None:
    once = patch(IgnitionDocument(bootstrap_config()), SPEC).document
    same = patch(once, SPEC).plan
    assert same.insertions == ()
    assert same.notes() == ["the config is already patched with these options: nothing changes"]
    other = patch(once, SPEC.replace(certificate_hours=3)).plan
    assert not other.changes_nothing
    assert other.count("~") == 1
    assert "patched with other options" in other.notes()[0]


def test_a_plan_is_json_with_stable_names() -> None:
    value = json.loads(json.dumps(plan_value(_plan(Case("5.0", native="off")))))
    told = {"kind": "BootstrapPlan", "profile": "native-off", "platform": "aws", "agentPort": 8091, "nodeIP": None}
    assert {**value, **told, "machineNetworks": ["10.0.0.0/16"]} == value
    assert value["changes"][0].keys() == {"sign", "path", "lines", "why"}
    assert value["insertions"][0].keys() == {"anchor", "beforeLine", "text", "why"}
    assert len(value["notes"]) == 1


GOOD = Receipt(
    original_sha256=sha256(b"original"),
    script_sha256=sha256(b"script"),
    files=(OWN.library, RECEIPT),
    insertions={"A1": f". {OWN.library}\n"},
    entry='{"path":"/usr/local/bin/bootkube.sh"}',
)


def test_a_receipt_comes_back_as_it_was_and_knows_its_document() -> None:
    assert decode_receipt(GOOD.encode()) == GOOD
    assert GOOD.restores(b"original")
    assert not GOOD.restores(b"original ")


def _with(field: str, changed: object) -> bytes:
    return json.dumps({**json.loads(GOOD.encode()), field: changed}).encode()


def test_a_receipt_that_we_did_not_write_is_refused() -> None:
    value = json.loads(GOOD.encode())
    fields = ("version", "originalSha256", "scriptSha256", "files", "insertions")
    for content in (
        *(b"", b"[]", b"[" * 100_000, _with("version", 2), _with("files", "all"), _with("files", [OWN.library])),
        *(_with("insertions", {"A1": ""}), _with("insertions", {"A1": 5}), _with("scriptSha256", None)),
        *(json.dumps({key: value[key] for key in value if key != field}).encode() for field in fields),
    ):
        with pytest.raises(RenderError, match="UMB129"):
            decode_receipt(content)


def test_a_receipt_cannot_claim_files_of_others() -> None:
    with pytest.raises(RenderError, match="lists /etc/passwd, which no patch adds"):
        decode_receipt(_with("files", [RECEIPT, "/etc/passwd"]))


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(), st.lists).map(lambda v: json.dumps(v).encode()))
def test_whatever_else_is_in_its_place_is_refused(content: bytes) -> None:
    with pytest.raises(RenderError, match="UMB129"):
        decode_receipt(content)
