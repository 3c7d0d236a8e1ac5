"""Edits of the installer's manifests: once, in every place, back again, and nothing else moves."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.capi_manifests import INFRA_ID, MANIFESTS, aws_cluster, azure_cluster, go_yaml, ibmcloud_cluster

from umbilical.fault import RenderError
from umbilical.firewall.forms.capi import append_items, closed, opened, remove_items, snippet
from umbilical.firewall.forms.render import manifest_edit
from umbilical.firewall.platforms.catalogue import platform_of
from umbilical.firewall.platforms.platform import ManifestEdit
from umbilical.firewall.platforms.request import ReleaseLine, RuleRequest, parse_network


def _edit(name: str, *networks: str, release: ReleaseLine | None = None, port: int = 8091) -> ManifestEdit:
    request = RuleRequest(INFRA_ID, port, tuple(parse_network(text) for text in networks), release)
    return manifest_edit(platform_of(name), request)


@pytest.mark.parametrize("name", MANIFESTS)
def test_an_edit_is_made_once_and_undone_to_the_byte(name: str) -> None:
    file, manifest = MANIFESTS[name]
    edit, text = _edit(name), manifest()
    assert edit.file == file
    after = opened(text, edit)
    assert after != text
    assert opened(after, edit) == after
    assert closed(after, edit) == text
    assert closed(text, edit) == text
    # Every line of the installer's stays, in its order.
    remaining = iter(after.splitlines())
    assert all(line in remaining for line in text.splitlines())


def test_every_subnet_of_azure_gets_the_rule() -> None:
    subnets = yaml.safe_load(opened(azure_cluster(), _edit("azure")))["spec"]["networkSpec"]["subnets"]
    names = [[rule["name"] for rule in subnet["securityGroup"]["securityRules"]] for subnet in subnets]
    assert names == [["apiserver_in", "konnectivity_in"]] * 2


def test_azure_never_gets_one_number_twice() -> None:
    text = azure_cluster(name="ssh_in", priority=230, direction="Inbound", destinationPorts="22")
    edit = _edit("azure")
    after = opened(text, edit)
    rules = yaml.safe_load(after)["spec"]["networkSpec"]["subnets"][0]["securityGroup"]["securityRules"]
    assert [rule["priority"] for rule in rules] == [101, 230, 240]
    assert closed(after, edit) == text


def test_ibm_clouds_rule_goes_into_the_bootstrap_group_alone() -> None:
    groups = yaml.safe_load(opened(ibmcloud_cluster(), _edit("ibmcloud")))["spec"]["network"]["securityGroups"]
    assert {group["name"]: len(group["rules"]) for group in groups} == {
        f"{INFRA_ID}-sg-cluster-wide": 1,
        f"{INFRA_ID}-security-group-bootstrap": 2,
    }


def test_a_rule_that_the_installer_made_itself_is_enough_and_another_port_is_another_rule() -> None:
    native = opened(aws_cluster(), _edit("aws", release=ReleaseLine(5, 0)))
    assert opened(native, _edit("aws")) == native
    # Ours has another description: closing it leaves the installer's alone.
    assert closed(native, _edit("aws")) == native
    both = opened(opened(aws_cluster(), _edit("aws")), _edit("aws", port=9191))
    rules: list[dict[str, Any]] = yaml.safe_load(both)["spec"]["network"]["additionalControlPlaneIngressRules"]
    assert [rule["fromPort"] for rule in rules] == [22623, 22, 8091, 9191]


def test_a_manifest_of_another_kind_is_refused() -> None:
    for text, why in (
        ("kind: Other\n", "its kind is not AWSCluster"),
        ("- 1\n", "its kind is not AWSCluster"),
        ("a: [\n", "not a YAML document"),
        ("a: 1\n---\nb: 2\n", "not a YAML document"),
        ("kind: AWSCluster\nspec: {}\n", "it has no spec.network"),
        ("kind: AWSCluster\nspec: {network: 7}\n", "it has no spec.network"),
        ("kind: AWSCluster\nspec: {network: {additionalControlPlaneIngressRules: 5}}\n", "not a list of rules"),
        ("kind: AWSCluster\nspec: {network: {additionalControlPlaneIngressRules: [5]}}\n", "not a list of rules"),
    ):
        for change in (opened, closed):
            with pytest.raises(RenderError, match="UMB164") as fault:
                change(text, _edit("aws"))
            assert why in fault.value.why


def test_a_missing_security_group_is_named() -> None:
    with pytest.raises(RenderError, match=r"\[name=ci-op-x7k2p-security-group-bootstrap\]"):
        opened(ibmcloud_cluster().replace("security-group-bootstrap", "other"), _edit("ibmcloud"))


def test_the_snippet_says_where_it_belongs() -> None:
    head, _, body = snippet(_edit("azure", "10.0.0.0/16")).partition("\n")
    assert head.endswith(
        "02_azure-cluster.yaml, AzureCluster: spec.networkSpec.subnets.[*].securityGroup.securityRules"
    )
    assert yaml.safe_load(body)[0]["source"] == "10.0.0.0/16"


GO = "a:\n  list:\n  - x: 1\n    y:\n    - 2\n  other: 3\nb: 4\n"
SET_IN = "# top\na:\n  list:\n    - x: 1 # one\n    # between\n    - x: 2\n  # after the list\n  other: 3\n"
MISSING = "a:\n  other: 3\nb: 4\n"


def test_an_item_is_added_as_lines_of_its_own_and_taken_out_to_the_byte() -> None:
    assert append_items(GO, ("a", "list"), [{"x": 9}]) == GO.replace("    - 2\n", "    - 2\n  - x: 9\n")
    added = append_items(SET_IN, ("a", "list"), [{"x": 9}])
    assert added == SET_IN.replace("    - x: 2\n", "    - x: 2\n    - x: 9\n"), "comments and indentation stay"
    for text in (GO, SET_IN):
        position = len(yaml.safe_load(text)["a"]["list"])
        added = append_items(text, ("a", "list"), [{"x": 9, "deep": {"list": ["p", "q"]}}, {"x": 10}])
        assert added != text
        assert remove_items(added, ("a", "list"), [position, position + 1]) == text


def test_a_missing_list_is_made_at_the_end_of_its_mapping() -> None:
    text = append_items(MISSING, ("a", "list"), [{"x": 9}])
    assert text == "a:\n  other: 3\n  list:\n  - x: 9\nb: 4\n"
    assert remove_items(text, ("a", "list"), [0]) == MISSING


def test_texts_that_take_no_lines_still_mean_the_same_afterwards() -> None:
    for text in (
        "a: {list: [{x: 1}], other: 3}\n",
        "a:\n  list: []\n",
        "a:\n  list:\n",
        "a:\n  list: null\n  b: 1\n",
        "shared: &s\n- x: 1\na:\n  list: *s\n",
        "a:\n  list:\n  - x: |\n      text\n      more",
    ):
        before = yaml.safe_load(text)
        after = yaml.safe_load(append_items(text, ("a", "list"), [{"x": 9}]))
        assert after["a"]["list"] == [*(before["a"]["list"] or []), {"x": 9}]
        after["a"]["list"] = before["a"]["list"]
        assert after == before


def test_a_block_scalar_at_the_end_is_not_cut() -> None:
    text = "a:\n  list:\n  - x: |\n      text\n\n      more\nb: 1\n"
    added = append_items(text, ("a", "list"), [{"x": 9}])
    assert yaml.safe_load(added)["a"]["list"][0]["x"] == "text\n\nmore\n"
    assert remove_items(added, ("a", "list"), [1]) == text


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-5, 70000), st.text(max_size=12))
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(max_size=6), _VALUES, min_size=1, max_size=3), max_size=4), _VALUES)
def test_any_manifest_of_gos_kind_comes_back_when_the_item_goes(items: list[dict[str, Any]], beside: Any) -> None:
    text = go_yaml({"kind": "K", "spec": {"beside": beside, "rules": items, "zone": "z"}})
    added = append_items(text, ("spec", "rules"), [{"port": 8091, "from": ["a", "b"]}])
    assert yaml.safe_load(added)["spec"]["rules"] == [*items, {"port": 8091, "from": ["a", "b"]}]
    removed = remove_items(added, ("spec", "rules"), [len(items)])
    meant = yaml.safe_load(text)
    if items:
        assert removed == text
    else:
        del meant["spec"]["rules"]
    assert yaml.safe_load(removed) == meant
