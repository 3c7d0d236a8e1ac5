"""Edits of the installer's manifests: once, in every place, and back again."""

from typing import Any

import pytest
import yaml
from tests.support.capi_manifests import INFRA_ID, MANIFESTS, aws_cluster, azure_cluster, ibmcloud_cluster

from umbilical.assets.errors import AssetError
from umbilical.assets.firewall.capi import closed, opened, snippet
from umbilical.assets.firewall.render import manifest_edit
from umbilical.assets.platforms.catalogue import platform_of
from umbilical.assets.platforms.platform import ManifestEdit
from umbilical.assets.platforms.request import Release, Request, parse_network


def _edit(name: str, *networks: str, release: Release | None = None, port: int = 8091) -> ManifestEdit:
    request = Request(INFRA_ID, port, tuple(parse_network(text) for text in networks), release)
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


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_line_of_the_installers_stays(name: str) -> None:
    _, manifest = MANIFESTS[name]
    before, after = manifest().splitlines(), opened(manifest(), _edit(name)).splitlines()
    added = len(after) - len(before)
    assert added > 0
    remaining = iter(after)
    assert all(line in remaining for line in before)


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


def test_a_rule_that_the_installer_made_itself_is_enough() -> None:
    native = opened(aws_cluster(), _edit("aws", release=Release(5, 0)))
    assert opened(native, _edit("aws")) == native
    # Ours has another description: closing it leaves the installer's alone.
    assert closed(native, _edit("aws")) == native


def test_another_port_is_another_rule() -> None:
    both = opened(opened(aws_cluster(), _edit("aws")), _edit("aws", port=9191))
    rules: list[dict[str, Any]] = yaml.safe_load(both)["spec"]["network"]["additionalControlPlaneIngressRules"]
    assert [rule["fromPort"] for rule in rules] == [22623, 22, 8091, 9191]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind: Other\n", "it holds no AWSCluster"),
        ("- 1\n", "it holds no AWSCluster"),
        ("a: [\n", "no YAML document"),
        ("a: 1\n---\nb: 2\n", "no YAML document"),
        ("kind: AWSCluster\nspec: {}\n", "it has no spec.network"),
        ("kind: AWSCluster\nspec: {network: 7}\n", "it has no spec.network"),
        ("kind: AWSCluster\nspec: {network: {additionalControlPlaneIngressRules: 5}}\n", "no list of rules"),
        ("kind: AWSCluster\nspec: {network: {additionalControlPlaneIngressRules: [5]}}\n", "no list of rules"),
    ],
)
def test_a_manifest_of_another_kind_is_refused(text: str, why: str) -> None:
    for change in (opened, closed):
        with pytest.raises(AssetError, match="UMB164") as fault:
            change(text, _edit("aws"))
        assert why in fault.value.why


def test_a_missing_security_group_is_named() -> None:
    with pytest.raises(AssetError, match=r"\[name=ci-op-x7k2p-security-group-bootstrap\]"):
        opened(ibmcloud_cluster().replace("security-group-bootstrap", "other"), _edit("ibmcloud"))


def test_the_snippet_says_where_it_belongs() -> None:
    head, _, body = snippet(_edit("azure", "10.0.0.0/16")).partition("\n")
    assert head.endswith(
        "02_azure-cluster.yaml, AzureCluster: spec.networkSpec.subnets.[*].securityGroup.securityRules"
    )
    assert yaml.safe_load(body)[0]["source"] == "10.0.0.0/16"
