"""Stage 04: the release is extracted, machine configs are rendered by its programs, and both become inputs."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import hardway, release_directory
from tests.support.hardway_sites import load_site, make_site, recording_machines, with_program
from tests.support.hardway_workspace import make_directory
from tests.support.made_up_stages import Clock, Lines
from tests.support.recording_machines import RecordingMachines

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.tree import Asset
from umbilical.checks.check import Outcome
from umbilical.hardway import judging
from umbilical.hardway.ledger import Ledger
from umbilical.hardway.pipeline import Pipeline
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Rerendering
from umbilical.hardway.stages.s04_release import STAGE, UNDOERS, extracting_steps, images, render_command
from umbilical.hardway.state import Status
from umbilical.host.errors import HostError

PODMAN = """#!/bin/bash
# Stands in for three containers: leaves what the last of them would.
work=$(for one; do case $one in *:/assets:z) echo "${one%%:*}";; esac; done)
printf '%s\\n' "$*" >>"$work/../podman.log"
test -n "$REGISTRY_AUTH_FILE" || exit 1
mkdir -p "$work/mco-bootstrap/bootstrap/manifests" "$work/mcc-output/machine-configs"
echo x >"$work/mco-bootstrap/bootstrap/manifests/machineconfigcontroller-pull-secret"
for pool in master worker; do
    cat >"$work/mcc-output/machine-configs/rendered-$pool-0123456789abcdef.yaml" <<END
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: rendered-$pool-0123456789abcdef}
spec:
  config: {ignition: {version: 3.4.0}, storage: {files: [{path: /etc/base, contents: {source: "data:,$pool"}}]}}
END
done
"""
OC = """#!/bin/bash
case "$*" in
    *" info "*) cat "$MADE_UP_RELEASE/release.json" ;;
    *) for one; do case $one in --to=*) cp -R "$MADE_UP_RELEASE"/. "${one#--to=}";; esac; done ;;
esac
"""


def _program(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    return str(path)


def _with_podman(path: str) -> RecordingMachines:
    machines = recording_machines(Profile.OPENSHIFT)
    machines.machine_survey = with_program(machines.machine_survey, "podman", path)
    return machines


def _run(folder: Path, site: Site) -> Ledger:
    ledger = Ledger(folder, Clock())
    Pipeline([STAGE], site, ledger, Lines()).run(4, 4)
    return ledger


def _outcomes(site: Site) -> dict[str, Outcome]:
    return {one.id: one.outcome for one in judging.findings(STAGE, site)}


def test_machine_configs_are_rendered_and_become_the_base_of_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    podman = _program(tmp_path, "podman", PODMAN, monkeypatch)
    folder = make_directory(tmp_path / "c", "openshift")
    before = load_site(folder)
    ledger = _run(folder, load_site(folder, _with_podman(podman)))
    assert ledger.state.stage(4).status is Status.DONE
    calls = (folder / "artifacts" / "machine-config" / "podman.log").read_text().splitlines()
    assert len(calls) == 3
    assert all(f"--payload-version={hardway.VERSION}" in call for call in calls)
    after = load_site(folder, _with_podman(podman))
    assert after.hashes["ignition"] != before.hashes["ignition"]
    assert after.hashes["pki"] == before.hashes["pki"]
    assert _outcomes(after)["REL-02"] is Outcome.PASSED
    assert any(name.startswith("rendered-master-") for name in ledger.state.stage(4).outputs)


def test_a_render_command_that_leaves_nothing_fails_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    podman = _program(tmp_path, "podman", PODMAN.replace("mcc-output", "elsewhere"), monkeypatch)
    folder = make_directory(tmp_path / "c", "openshift")
    with pytest.raises(HostError, match="UMB804"):
        _run(folder, load_site(folder, _with_podman(podman)))


def test_without_podman_nodes_have_our_own_base_and_a_warning(tmp_path: Path) -> None:
    site = make_site(tmp_path, "openshift")
    machines = site.machines
    assert isinstance(machines, RecordingMachines)
    machines.machine_survey = with_program(machines.machine_survey, "podman", "")
    for step in STAGE.steps(site):
        step.act()
    assert _outcomes(site)["REL-02"] is Outcome.WARNED
    assert "FAILED" not in {outcome.name for outcome in _outcomes(site).values()}


def test_a_release_that_is_only_named_is_extracted_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = tmp_path / "made-up"
    for name, content in release_directory.release_files().items():
        (release / name).parent.mkdir(parents=True, exist_ok=True)
        (release / name).write_bytes(content)
    monkeypatch.setenv("MADE_UP_RELEASE", str(release))
    _program(tmp_path, "oc", OC, monkeypatch)
    podman = _program(tmp_path, "podman", PODMAN, monkeypatch)
    folder = make_directory(tmp_path / "c", "openshift", release=False, release__directory=None)
    site = load_site(folder, _with_podman(podman))
    assert "ignition/bootstrap.ign" not in site.assets
    ledger = _run(folder, site)
    assert ledger.state.stage(4).status is Status.DONE
    assert (folder / "release" / "image-references").is_file()
    assert "ignition/bootstrap.ign" in load_site(folder).assets
    UNDOERS["remove-release"](site, {})
    UNDOERS["remove-release"](site, {})
    assert not (folder / "release").exists()


def test_the_lines_that_extract_a_release_name_the_pull_secret_and_do_not_hold_it(tmp_path: Path) -> None:
    site = make_site(tmp_path, "openshift")
    assert extracting_steps(site) == []
    named = replace(site.cluster, release=replace(site.cluster.release, directory="", image="quay.io/release:4.18"))
    lines = [step.command for step in extracting_steps(replace(site, cluster=named))]
    assert lines[0].startswith("oc adm release info ")
    assert lines[1].endswith(f"--to={tmp_path}/release")
    assert all("auths" not in line for line in lines)
    assert render_command(site)[:2] == ("env", f"REGISTRY_AUTH_FILE={tmp_path}/pull-secret.json")


def test_a_directory_that_its_owner_has_not_filled_is_told(tmp_path: Path) -> None:
    site = load_site(make_directory(tmp_path / "c", "openshift", release=False))
    assert STAGE.steps(site) == []
    found = {one.id: one for one in judging.findings(STAGE, site)}
    assert found["REL-01"].outcome is Outcome.FAILED
    assert found["REL-01"].evidence == "no static pod is rendered yet: release/ holds no extracted release"


def test_upstream_has_nothing_to_render(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    assert STAGE.steps(site) == []
    assert isinstance(STAGE, Rerendering)
    assert not STAGE.rerenders(site)
    assert _outcomes(site)["REL-02"] is Outcome.SKIPPED


@pytest.mark.parametrize("profile", ["kubernetes", "openshift"])
def test_an_image_of_elsewhere_is_seen(tmp_path: Path, profile: str) -> None:
    site = make_site(tmp_path, profile)
    assert _outcomes(site)["REL-01"] is Outcome.PASSED
    path, image = next(images(site))
    content = site.content(path).replace(image.encode(), b"docker.io/library/etcd:latest")
    site.assets = {**site.assets, path: Asset(path, content, 0o644)}
    assert _outcomes(site)["REL-01"] is Outcome.FAILED
