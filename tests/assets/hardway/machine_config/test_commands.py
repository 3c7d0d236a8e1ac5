"""The script that renders machine configs: run for real, with a podman that notes its calls."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.support import hardway

from umbilical.assets.hardway.machine_config.commands import TOPICS, script, steps
from umbilical.assets.hardway.machine_config.inputs_directory import render_machine_config
from umbilical.assets.hardway.topic import TopicKind
from umbilical.assets.tree import AssetTree
from umbilical.host.files import make_directory, write_file

# Stands in for podman: notes its arguments, and leaves behind what the real containers would.
PODMAN = """#!/usr/bin/env python3
import json, pathlib, sys
arguments = sys.argv[1:]
with open({calls!r}, "a") as file:
    file.write(json.dumps(arguments) + "\\n")
work = pathlib.Path(arguments[arguments.index("-v") + 1].split(":")[0])
if any("mco-bootstrap" in one for one in arguments):
    folder = work / "mco-bootstrap/bootstrap/manifests"
    folder.mkdir(parents=True)
    for name in ("machineconfigcontroller-controllerconfig.yaml", "master.machineconfigpool.yaml",
                 "worker.machineconfigpool.yaml", "machineconfigcontroller-pull-secret"):
        (folder / name).write_text("{{}}")
if any("mcc-output" in one for one in arguments):
    folder = work / "mcc-output/machine-configs"
    folder.mkdir(parents=True)
    for pool in {pools!r}:
        (folder / f"rendered-{{pool}}-0123.yaml").write_text("{{}}")
"""


def run(folder: Path, pools: tuple[str, ...] = ("master", "worker")) -> subprocess.CompletedProcess[str]:
    for asset in render_machine_config(hardway.inputs(), AssetTree()):
        make_directory((folder / asset.path).parent)
        write_file(folder / asset.path, asset.content, overwrite=True)
    programs = make_directory(folder / "bin")
    podman = write_file(
        programs / "podman", PODMAN.format(calls=str(folder / "calls"), pools=pools).encode(), overwrite=True
    )
    podman.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    command = ["bash", str(folder / "machine-config/render.sh")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def calls(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def test_three_containers_run_one_after_the_other_with_one_version(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    found = calls(tmp_path)
    images = hardway.payload().images
    assert [[one for one in call if "@sha256:" in one and "=" not in one] for call in found] == [
        [images["cluster-config-api"]],
        [images["machine-config-operator"]],
        [images["machine-config-operator"]],
    ]
    assert [[one for one in call if one.startswith("--payload-version")] for call in found] == [
        ["--payload-version=4.18.0"]
    ] * 3
    assert f"--release-image={hardway.RELEASE_IMAGE}" in found[1]


def test_the_controllers_input_holds_all_that_it_looks_for(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 0
    found = {one.name for one in (tmp_path / "machine-config/work/mcc-input").iterdir()}
    assert {
        "machineconfigcontroller-controllerconfig.yaml",
        "machineconfigcontroller-pull-secret",
        "master.machineconfigpool.yaml",
        "worker.machineconfigpool.yaml",
        "99_feature-gate.yaml",
        "image-references",
    } <= found


def test_a_second_run_begins_anew_and_leaves_the_inputs_alone(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 0
    assert run(tmp_path).returncode == 0
    assert len(calls(tmp_path)) == 6
    assert not (tmp_path / "machine-config/manifests/api-bootstrap").exists()


@pytest.mark.parametrize("pools", [("master",), ("worker",), ()])
def test_a_pool_without_a_result_is_a_failure(tmp_path: Path, pools: tuple[str, ...]) -> None:
    done = run(tmp_path, pools)
    assert done.returncode == 1
    assert "no rendered-" in done.stderr


def test_every_flag_of_the_script_is_explained() -> None:
    explained = {topic.name for topic in TOPICS if topic.kind is TopicKind.FLAG}
    used = {f"--{flag.name}" for step in steps(hardway.payload()) for flag in step.flags}
    assert explained == used
    text = script(hardway.payload()).decode()
    assert all(f"    {name}=" in text for name in used)
