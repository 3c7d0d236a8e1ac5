"""Shell lines, run by a real bash with stand-ins for the clouds' programs."""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.assets.firewall.cloud_cli import command_line, script
from umbilical.assets.firewall.render import Form, forms, render
from umbilical.assets.platforms.catalogue import PLATFORMS, platform_of
from umbilical.assets.platforms.platform import Command, Commands, Need, Variable
from umbilical.assets.platforms.request import Release, Request, parse_network

CLOUDS: Final = [name for name, platform in PLATFORMS.items() if Form.CLI in forms(platform)]
VALUES: Final = {"control_plane": "sg-1", "node": "sg-2", "resource_group": "my group", "network": "my-net"}
REQUEST: Final = Request("ci", networks=(parse_network("10.0.0.0/16"),), release=Release(4, 18))
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
    import base64

    lines = (folder / "calls").read_text().splitlines()
    return [base64.b64decode(line).decode().split("\0")[:-1] for line in lines]


@pytest.mark.parametrize("name", CLOUDS)
def test_what_opens_a_port_runs_under_bash(name: str, tmp_path: Path) -> None:
    done = _run(tmp_path, render(platform_of(name), REQUEST, Form.CLI))
    assert done.returncode == 0, done.stderr
    words = [word for call in _calls(tmp_path) for word in call]
    assert any("8091" in word for word in words)
    assert not any(word == "" for word in words if "aws" not in words)


@pytest.mark.parametrize("name", CLOUDS)
def test_what_closes_a_port_is_accepted_by_bash(name: str) -> None:
    text = render(platform_of(name), REQUEST, Form.CLI, closing=True)
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.real("jq")
def test_rules_without_names_are_removed_by_the_ids_that_the_cloud_tells(tmp_path: Path) -> None:
    listed = [
        {"id": "r-1", "direction": "inbound", "port_min": 8091, "port_max": 8091},
        {"id": "r-2", "direction": "inbound", "port_min": 22, "port_max": 22},
        {"id": "r-3", "direction": "outbound", "port_min": 8091, "port_max": 8091},
    ]
    text = render(platform_of("ibmcloud"), REQUEST, Form.CLI, closing=True)
    assert _run(tmp_path, text, ibmcloud=json.dumps(listed)).returncode == 0
    deletions = [call for call in _calls(tmp_path) if "security-group-rule-delete" in call]
    assert deletions == [
        ["ibmcloud", "is", "security-group-rule-delete", "ci-security-group-bootstrap", "r-1", "--force"]
    ]


@pytest.mark.real("jq")
def test_neutrons_rules_are_removed_by_port(tmp_path: Path) -> None:
    listed = [{"ID": "a", "Port Range": "8091:8091"}, {"ID": "b", "Port Range": "22:22"}]
    text = render(platform_of("openstack"), REQUEST, Form.CLI, closing=True)
    assert _run(tmp_path, text, openstack=json.dumps(listed)).returncode == 0
    deletions = [call for call in _calls(tmp_path) if "delete" in call]
    assert deletions == [["openstack", "security", "group", "rule", "delete", "a"]]


def test_what_was_looked_up_is_used_by_the_lines_after_it(tmp_path: Path) -> None:
    text = render(platform_of("aws"), REQUEST, Form.CLI)
    assert _run(tmp_path, text, aws="sg-77\n").returncode == 0
    opening = [call for call in _calls(tmp_path) if "authorize-security-group-ingress" in call]
    assert [call[call.index("--group-id") + 1] for call in opening] == ["sg-77", "sg-77"]


def test_a_value_that_only_the_user_knows_stops_the_script(tmp_path: Path) -> None:
    commands = Commands((Need("missing", 'the group\'s `id` "$x" }'),), open=(Command(("program",)),))
    done = _run(tmp_path, script(commands, ()))
    assert done.returncode == 2
    assert done.stderr == 'missing is not set: the group\'s `id` "$x" }\n'
    assert not (tmp_path / "calls").exists()


@given(word=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20))
def test_any_word_reaches_a_program_unchanged(word: str) -> None:
    line = command_line(Command(("printf", "%s", word)))
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=30, check=True)
    assert done.stdout == word.encode()


def test_a_variable_is_quoted_behind_its_prefix() -> None:
    line = command_line(Command(("x", Variable("v", "a b=")), pipe=(("y",),), into="out"))
    assert line == "out=$(x 'a b='\"$v\" | y)"
