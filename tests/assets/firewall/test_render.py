"""Every platform in every form: it is there and parses, or it is refused in three lines."""

import json
import subprocess
from collections.abc import Callable
from itertools import product
from typing import Any, Final

import hcl2
import pytest
import yaml

from umbilical.assets.errors import AssetError
from umbilical.assets.firewall.render import Form, as_value, describe, forms, manifest_edit, render
from umbilical.assets.platforms.catalogue import PLATFORMS, platform_of
from umbilical.assets.platforms.request import Release, Request, parse_network

REQUEST: Final = Request(
    "ci", networks=(parse_network("10.0.0.0/16"), parse_network("fd00::/64")), release=Release(4, 21)
)
CLAIMED: Final = [(name, form) for name, form in product(PLATFORMS, Form) if form in forms(PLATFORMS[name])]
REFUSED: Final = [(name, form) for name, form in product(PLATFORMS, Form) if form not in forms(PLATFORMS[name])]
RESOURCES: Final = {
    "aws": {"aws_vpc_security_group_ingress_rule"},
    "azure": {"azurerm_network_security_rule"},
    "gcp": {"google_compute_firewall"},
    "ibmcloud": {"ibm_is_security_group_rule"},
    "powervs": {"ibm_is_security_group_rule"},
    "openstack": {"openstack_networking_secgroup_rule_v2"},
}


def _bash(text: str) -> Any:
    subprocess.run(["bash", "-n"], input=text, text=True, check=True, timeout=30)
    return text


PARSERS: Final[dict[Form, Callable[[str], Any]]] = {
    Form.CLI: _bash,
    Form.FIREWALLD: _bash,
    Form.TERRAFORM: hcl2.loads,
    Form.CAPI: yaml.safe_load,
    Form.JSON: json.loads,
    Form.NFTABLES: str,
}


@pytest.mark.parametrize(("name", "form"), CLAIMED, ids=str)
def test_a_form_that_is_claimed_can_be_parsed_and_names_the_port(name: str, form: Form) -> None:
    text = render(platform_of(name), REQUEST, form)
    assert PARSERS[form](text)
    assert "8091" in text
    assert "<infra-id>" not in text.partition('"made')[0]


@pytest.mark.parametrize(("name", "form"), REFUSED, ids=str)
def test_a_form_that_is_not_there_is_refused_with_those_that_are(name: str, form: Form) -> None:
    with pytest.raises(AssetError, match="UMB161") as fault:
        render(platform_of(name), REQUEST, form)
    assert fault.value.why
    assert len(str(fault.value).splitlines()) == 3
    for other in forms(platform_of(name)):
        assert other.value in fault.value.remedy


@pytest.mark.parametrize("name", RESOURCES)
def test_terraform_has_the_providers_own_resources(name: str) -> None:
    for chosen in (name, f"{name}-upi"):
        if chosen in PLATFORMS:
            parsed = hcl2.loads(render(platform_of(chosen), REQUEST, Form.TERRAFORM))
            kinds = {kind.strip('"') for resource in parsed["resource"] for kind in resource}
            assert kinds == RESOURCES[name]


@pytest.mark.parametrize(("name", "form"), CLAIMED, ids=str)
def test_closing_is_a_form_of_its_own_or_refused(name: str, form: Form) -> None:
    platform = platform_of(name)
    if form in (Form.TERRAFORM, Form.CAPI, Form.JSON):
        with pytest.raises(AssetError, match="UMB161"):
            render(platform, REQUEST, form, closing=True)
    else:
        text = render(platform, REQUEST, form, closing=True)
        assert text != render(platform, REQUEST, form)
        assert any(word in text for word in ("delete", "revoke", "--remove-rich-rule"))


@pytest.mark.parametrize(("name", "minor"), [("aws", 15), ("azure", 16), ("powervs", 16), ("ibmcloud", 18)])
def test_before_cluster_api_there_is_no_manifest_to_edit(name: str, minor: int) -> None:
    platform = platform_of(name)
    with pytest.raises(AssetError, match="Terraform before 4") as fault:
        manifest_edit(platform, Request("ci", release=Release(4, minor)))
    assert fault.value.code == "UMB161"
    assert manifest_edit(platform, Request("ci", release=Release(4, minor + 1))).items


@pytest.mark.parametrize("name", ["gcp", "openstack", "aws-upi", "none"])
def test_platforms_whose_manifests_have_no_rules_say_so(name: str) -> None:
    with pytest.raises(AssetError, match="UMB161"):
        manifest_edit(platform_of(name), REQUEST)


def test_json_tells_rules_and_what_becomes_of_them() -> None:
    value = as_value(platform_of("azure"), Request("ci"))
    assert (value["kind"], value["platform"], value["leaks"]) == ("FirewallRules", "azure", True)
    [rule] = value["rules"]
    assert (rule["name"], rule["priority"], rule["port"]) == ("konnectivity_in", 230, 8091)
    assert rule["sources"] == [{"kind": "service tag", "value": "VirtualNetwork"}]


def test_a_platform_is_described_without_any_cluster() -> None:
    told = describe(platform_of("openstack"))
    assert told["forms"] == ["cli", "terraform", "json"]
    assert told["removals"][1]["by"] == "you"
