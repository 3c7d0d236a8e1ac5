"""Every platform in every form: it is there, parses and does what it says, or it is refused in three lines."""

import base64
import json
import os
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Final

import hcl2
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from umbilical.fault import RenderError
from umbilical.firewall.forms.render import Form, as_value, describe, forms, manifest_edit, render
from umbilical.firewall.forms.texts import command_line, quoted, script, terraform_text
from umbilical.firewall.platforms.catalogue import PLATFORMS, platform_of
from umbilical.firewall.platforms.platform import (
    Need,
    Reference,
    RuleCommands,
    ShellVariable,
    TerraformBlock,
    ToolCommand,
)
from umbilical.firewall.platforms.request import ReleaseLine, RuleRequest, parse_network

REQUEST: Final = RuleRequest(
    "ci", networks=(parse_network("10.0.0.0/16"), parse_network("fd00::/64")), release=ReleaseLine(4, 21)
)
CLAIMED: Final = [(name, form) for name, form in product(PLATFORMS, Form) if form in forms(PLATFORMS[name])]
REFUSED: Final = [(name, form) for name, form in product(PLATFORMS, Form) if form not in forms(PLATFORMS[name])]
RESOURCES: Final = {
    "aws": "aws_vpc_security_group_ingress_rule",
    "azure": "azurerm_network_security_rule",
    "gcp": "google_compute_firewall",
    "ibmcloud": "ibm_is_security_group_rule",
    "powervs": "ibm_is_security_group_rule",
    "openstack": "openstack_networking_secgroup_rule_v2",
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


@pytest.mark.parametrize("form", Form)
def test_a_form_that_is_claimed_can_be_parsed_and_names_the_port(form: Form) -> None:
    for name in [name for name, claimed in CLAIMED if claimed is form]:
        text = render(platform_of(name), REQUEST, form)
        assert PARSERS[form](text), name
        assert "8091" in text, name
        assert "<infra-id>" not in text.partition('"made')[0], name


def test_a_form_that_is_not_there_is_refused_with_those_that_are() -> None:
    for name, form in REFUSED:
        with pytest.raises(RenderError, match="UMB161") as fault:
            render(platform_of(name), REQUEST, form)
        assert fault.value.why
        assert len(str(fault.value).splitlines()) == 3
        assert all(other.value in fault.value.remedy for other in forms(platform_of(name))), (name, form)


def test_terraform_has_the_providers_own_resources() -> None:
    for name in [name for name, form in CLAIMED if form is Form.TERRAFORM]:
        parsed = hcl2.loads(render(platform_of(name), REQUEST, Form.TERRAFORM))
        kinds = {kind.strip('"') for resource in parsed["resource"] for kind in resource}
        assert kinds == {RESOURCES[name.removesuffix("-upi")]}


def test_closing_is_a_form_of_its_own_or_refused() -> None:
    for name, form in CLAIMED:
        platform = platform_of(name)
        if form in (Form.TERRAFORM, Form.CAPI, Form.JSON):
            with pytest.raises(RenderError, match="UMB161"):
                render(platform, REQUEST, form, closing=True)
        else:
            text = PARSERS[form](render(platform, REQUEST, form, closing=True))
            assert text != render(platform, REQUEST, form), name
            assert any(word in text for word in ("delete", "revoke", "--remove-rich-rule")), name


def test_before_cluster_api_there_is_no_manifest_to_edit() -> None:
    for name, minor in (("aws", 15), ("azure", 16), ("powervs", 16), ("ibmcloud", 18)):
        platform = platform_of(name)
        with pytest.raises(RenderError, match="Terraform before 4") as fault:
            manifest_edit(platform, RuleRequest("ci", release=ReleaseLine(4, minor)))
        assert fault.value.code == "UMB161"
        assert manifest_edit(platform, RuleRequest("ci", release=ReleaseLine(4, minor + 1))).items


def test_platforms_whose_manifests_have_no_rules_say_so() -> None:
    for name in ("gcp", "openstack", "aws-upi", "none"):
        with pytest.raises(RenderError, match="UMB161"):
            manifest_edit(platform_of(name), REQUEST)


def test_json_tells_rules_and_a_platform_is_described_without_any_cluster() -> None:
    value = as_value(platform_of("azure"), RuleRequest("ci"))
    assert (value["kind"], value["platform"], value["leaks"]) == ("FirewallRules", "azure", True)
    [rule] = value["rules"]
    assert (rule["name"], rule["priority"], rule["port"]) == ("konnectivity_in", 230, 8091)
    assert rule["sources"] == [{"kind": "service tag", "value": "VirtualNetwork"}]
    told = describe(platform_of("openstack"))
    assert told["forms"] == ["cli", "terraform", "json"]
    assert told["removals"][1]["by"] == "you"


CLOUDS: Final = [name for name, platform in PLATFORMS.items() if Form.CLI in forms(platform)]
VALUES: Final = {"control_plane": "sg-1", "node": "sg-2", "resource_group": "my group", "network": "my-net"}
REQUEST_OF_ONE: Final = RuleRequest("ci", networks=(parse_network("10.0.0.0/16"),), release=ReleaseLine(4, 18))
# Writes its words as one line of JSON, then says what the platform would have said.
STAND_IN: Final = """#!/bin/bash
for word in "$(basename "$0")" "$@"; do printf '%s\\0' "$word"; done | base64 -w0 >> "$CALLS"
echo >> "$CALLS"
[ -f "$ANSWERS/$(basename "$0")" ] && cat "$ANSWERS/$(basename "$0")"
exit 0
"""


def _run(folder: Path, text: str, **answers: str) -> subprocess.CompletedProcess[str]:
    for name in ("bin", "answers"):
        (folder / name).mkdir(exist_ok=True)
    for name in ("aws", "az", "gcloud", "ibmcloud", "openstack", "program"):
        program = folder / "bin" / name
        program.write_text(STAND_IN)
        program.chmod(0o755)
    for name, answer in answers.items():
        (folder / "answers" / name).write_text(answer)
    environment = {
        **VALUES,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "CALLS": str(folder / "calls"),
        "ANSWERS": str(folder / "answers"),
    }
    command = ["bash", "-c", text]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)


def _calls(folder: Path) -> list[list[str]]:
    lines = (folder / "calls").read_text().splitlines()
    return [base64.b64decode(line).decode().split("\0")[:-1] for line in lines]


@pytest.mark.parametrize("name", CLOUDS)
def test_what_opens_a_port_runs_under_bash(name: str, tmp_path: Path) -> None:
    done = _run(tmp_path, render(platform_of(name), REQUEST_OF_ONE, Form.CLI))
    assert done.returncode == 0, done.stderr
    words = [word for call in _calls(tmp_path) for word in call]
    assert any("8091" in word for word in words)
    assert not any(word == "" for word in words if "aws" not in words)


@pytest.mark.real("jq")
def test_rules_without_names_are_removed_by_the_ids_that_the_cloud_tells(tmp_path: Path) -> None:
    listed = [
        {"id": "r-1", "direction": "inbound", "port_min": 8091, "port_max": 8091},
        {"id": "r-2", "direction": "inbound", "port_min": 22, "port_max": 22},
        {"id": "r-3", "direction": "outbound", "port_min": 8091, "port_max": 8091},
    ]
    text = render(platform_of("ibmcloud"), REQUEST_OF_ONE, Form.CLI, closing=True)
    assert _run(tmp_path, text, ibmcloud=json.dumps(listed)).returncode == 0
    deletions = [call for call in _calls(tmp_path) if "security-group-rule-delete" in call]
    assert deletions == [
        ["ibmcloud", "is", "security-group-rule-delete", "ci-security-group-bootstrap", "r-1", "--force"]
    ]


@pytest.mark.real("jq")
def test_neutrons_rules_are_removed_by_port(tmp_path: Path) -> None:
    listed = [{"ID": "a", "Port Range": "8091:8091"}, {"ID": "b", "Port Range": "22:22"}]
    text = render(platform_of("openstack"), REQUEST_OF_ONE, Form.CLI, closing=True)
    assert _run(tmp_path, text, openstack=json.dumps(listed)).returncode == 0
    deletions = [call for call in _calls(tmp_path) if "delete" in call]
    assert deletions == [["openstack", "security", "group", "rule", "delete", "a"]]


def test_what_was_looked_up_is_used_by_the_lines_after_it(tmp_path: Path) -> None:
    text = render(platform_of("aws"), REQUEST_OF_ONE, Form.CLI)
    assert _run(tmp_path, text, aws="sg-77\n").returncode == 0
    opening = [call for call in _calls(tmp_path) if "authorize-security-group-ingress" in call]
    assert [call[call.index("--group-id") + 1] for call in opening] == ["sg-77", "sg-77"]


def test_a_value_that_only_the_user_knows_stops_the_script(tmp_path: Path) -> None:
    commands = RuleCommands((Need("missing", 'the group\'s `id` "$x" }'),), open=(ToolCommand(("program",)),))
    done = _run(tmp_path, script(commands, ()))
    assert done.returncode == 2
    assert done.stderr == 'missing is not set: the group\'s `id` "$x" }\n'
    assert not (tmp_path / "calls").exists()


@given(word=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20))
def test_any_word_reaches_a_program_unchanged(word: str) -> None:
    line = command_line(ToolCommand(("printf", "%s", word)))
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=30, check=True)
    assert done.stdout == word.encode()


def test_a_variable_is_quoted_behind_its_prefix() -> None:
    line = command_line(ToolCommand(("x", ShellVariable("v", "a b=")), pipe=(("y",),), into="out"))
    assert line == "out=$(x 'a b='\"$v\" | y)"


def test_blocks_nest_references_stay_bare_and_maps_are_written_over_lines() -> None:
    inner = TerraformBlock("allow", (), {"ports": ["1", "2"]})
    text = terraform_text(
        (TerraformBlock("resource", ("kind", "name"), {"a": 1, "group": Reference("var.x")}, (inner,)),)
    )
    assert text == (
        'resource "kind" "name" {\n  a     = 1\n  group = var.x\n\n  allow {\n    ports = ["1", "2"]\n  }\n}\n'
    )
    text = terraform_text((TerraformBlock("data", ("k", "n"), {"tags": {"Name": "x"}}),))
    assert text == 'data "k" "n" {\n  tags = {\n    Name = "x"\n  }\n}\n'


def test_nothing_in_a_string_is_evaluated() -> None:
    for text, literal in (
        ("${var.secret}", '"$${var.secret}"'),
        ("%{ if true }", '"%%{ if true }"'),
        ('a"b', '"a\\"b"'),
        ("a\\b", '"a\\\\b"'),
        ("a\nb", '"a\\nb"'),
    ):
        assert quoted(text) == literal


# This parser takes `%%{` and `$${` for a beginning, which Terraform does not: those stand in the table above.
@given(st.from_regex(r"([ -~](?<![$%])|[$%](?!\{)){0,40}", fullmatch=True))
def test_any_printable_string_is_one_attribute_to_a_real_parser(text: str) -> None:
    made = terraform_text((TerraformBlock("variable", ("x",), {"default": text, "after": 1}),))
    parsed = hcl2.loads(made)
    [variable] = parsed["variable"]
    [body] = [value for value in variable.values() if isinstance(value, dict)]
    assert set(body) >= {"default", "after"}
    assert "resource" not in parsed
