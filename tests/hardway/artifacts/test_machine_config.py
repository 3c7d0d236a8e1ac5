"""Machine configs: the input directory of the render commands, the script that runs them, and their results."""

import base64
import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support import hardway

from umbilical.fault import RenderError
from umbilical.hardway.artifacts.machine_config import TOPICS as COMMAND_TOPICS
from umbilical.hardway.artifacts.machine_config import read_base, read_bases, render_machine_config, script, steps
from umbilical.hardway.artifacts.manifests.catalogue import render_manifests
from umbilical.hardway.config.cluster import ClusterProfile, NodeRole
from umbilical.hardway.explain.entry import TopicKind
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.host.files import make_directory, write_file
from umbilical.ignition.config import read_config
from umbilical.manifests.tree import AssetTree

NAMES = (
    "image-references",
    "manifests/99_feature-gate.yaml",
    "manifests/cluster-config.yaml",
    "manifests/cluster-dns-02-config.yml",
    "manifests/cluster-infrastructure-02-config.yml",
    "manifests/cluster-network-02-config.yml",
    "manifests/cluster-proxy-01-config.yaml",
    "manifests/openshift-config-secret-pull-secret.yaml",
    "render.sh",
    "tls/kube-apiserver-complete-client-ca-bundle.crt",
    "tls/root-ca.crt",
)
SAME = {
    "99_feature-gate.yaml": "04-feature-gate.yaml",
    "cluster-config.yaml": "06-cluster-config.yaml",
    "cluster-infrastructure-02-config.yml": "05-infrastructure.yaml",
    "openshift-config-secret-pull-secret.yaml": "06-pull-secret.yaml",
}
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
CONFIG: dict[str, Any] = {"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "/etc/a"}]}}
_LEAVES = st.none() | st.booleans() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=9
)


def rendered() -> AssetTree:
    return render_machine_config(hardway.inputs(), AssetTree())


def test_files_have_the_names_that_are_compiled_into_the_commands_and_the_modes_of_what_they_hold() -> None:
    tree = rendered()
    assert sorted(one.path for one in tree) == [f"machine-config/{name}" for name in NAMES]
    assert tree["machine-config/manifests/openshift-config-secret-pull-secret.yaml"].mode == 0o600
    assert tree["machine-config/render.sh"].mode == 0o555


def test_what_the_commands_read_is_what_is_applied() -> None:
    applied = render_manifests(hardway.inputs(), AssetTree())
    tree = rendered()
    for name, other in SAME.items():
        assert tree[f"machine-config/manifests/{name}"].content == applied[f"manifests/{other}"].content


def test_the_client_authorities_are_all_there() -> None:
    bundle = rendered()["machine-config/tls/kube-apiserver-complete-client-ca-bundle.crt"].content
    assert bundle == hardway.inputs().certificates.bundle(Bundle.CLIENT_CA)


def test_the_kubernetes_profile_has_no_machine_config_operator() -> None:
    assert not list(render_machine_config(hardway.inputs(ClusterProfile.KUBERNETES), AssetTree()))


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


def test_without_podman_results_of_an_earlier_run_are_kept(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 0
    script = tmp_path / "machine-config/render.sh"
    command = ["/bin/bash", str(script)]
    done = subprocess.run(command, env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "podman is not installed\n")
    assert len(list((script.parent / "work/mcc-output/machine-configs").iterdir())) == 2


@pytest.mark.parametrize("pools", [("master",), ("worker",), ()])
def test_a_pool_without_a_result_is_a_failure(tmp_path: Path, pools: tuple[str, ...]) -> None:
    done = run(tmp_path, pools)
    assert done.returncode == 1
    assert "no rendered-" in done.stderr


def test_every_flag_of_the_script_is_explained() -> None:
    explained = {topic.name for topic in COMMAND_TOPICS if topic.kind is TopicKind.FLAG}
    used = {f"--{flag.name}" for step in steps(hardway.payload()) for flag in step.flags}
    assert explained == used
    text = script(hardway.payload()).decode()
    assert all(f"    {name}=" in text for name in used)


def machine_config(config: Any, pool: str = "master") -> bytes:
    value = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": f"rendered-{pool}-0123456789abcdef"},
        "spec": {"config": config, "osImageURL": "quay.io/os@sha256:00"},
    }
    return yaml.safe_dump(value).encode()


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        {"raw": CONFIG},
        {"raw": json.dumps(CONFIG)},
        {"raw": base64.b64encode(json.dumps(CONFIG).encode()).decode()},
        json.dumps(CONFIG),
    ],
    ids=["object", "raw object", "raw JSON", "raw base64", "JSON"],
)
def test_the_ignition_config_is_found_in_every_form_that_it_is_written_in(config: Any) -> None:
    base = read_base(machine_config(config))
    assert json.loads(base.config) == CONFIG
    assert base.name == "rendered-master-0123456789abcdef"
    assert json.loads(base.machine_config)["spec"]["osImageURL"] == "quay.io/os@sha256:00"
    assert read_config(base.config).file("/etc/a") is not None


def test_each_pool_has_its_own() -> None:
    files = {
        "machine-configs/rendered-master-0123456789abcdef.yaml": machine_config(CONFIG),
        "machine-configs/rendered-worker-0123456789abcdef.yaml": machine_config(CONFIG, "worker"),
        "machine-configs/00-master.yaml": b"{}",
    }
    found = read_bases(files)
    assert [found[role].name.split("-")[1] for role in (NodeRole.MASTER, NodeRole.WORKER)] == ["master", "worker"]


@pytest.mark.parametrize(
    "content",
    [
        b"[",
        b"kind: Secret",
        machine_config(None),
        machine_config({"raw": "bad"}),
        machine_config({"raw": "{"}),
        machine_config({"raw": {"storage": {}}}),
        machine_config(CONFIG).replace(b"rendered-master", b"00-master"),
        machine_config(CONFIG).replace(b"3.4.0", b"2025-01-01"),
    ],
)
def test_what_is_none_is_refused_with_three_lines(content: bytes) -> None:
    with pytest.raises(RenderError) as caught:
        read_base(content)
    assert caught.value.code == "UMB718"
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    "names", [(), ("rendered-master-1.yaml",), ("rendered-master-1.yaml", "rendered-master-2.yaml")]
)
def test_there_must_be_one_for_each_pool(names: tuple[str, ...]) -> None:
    with pytest.raises(RenderError) as caught:
        read_bases({name: machine_config(CONFIG) for name in names})
    assert "files match rendered-" in caught.value.why


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_bytes_are_a_base_or_a_fault(content: bytes) -> None:
    with suppress(RenderError):
        read_base(content)


@given(VALUES)
def test_any_config_is_a_base_or_a_fault(config: Any) -> None:
    with suppress(RenderError):
        read_base(machine_config(config))
