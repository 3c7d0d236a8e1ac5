"""Stages 01, 02 and 04: prerequisites, machines, and the release with its machine configs."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import hardway, release_directory
from tests.support.fixture_types import Patch
from tests.support.hardway_sites import load_site, make_site, recording_machines, with_program
from tests.support.hardway_workspace import make_directory
from tests.support.made_up_stages import Clock, Lines
from tests.support.recording_machines import RecordingMachines

from umbilical.checks.check import Finding, Outcome
from umbilical.fault import HardwayError, HostError
from umbilical.hardway import stage
from umbilical.hardway.config.cluster import ClusterAccess, ClusterProfile
from umbilical.hardway.ledger import Ledger
from umbilical.hardway.machines.interface import InfraProbe, Survey
from umbilical.hardway.pipeline import Pipeline
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Rerendering, Undo
from umbilical.hardway.stages import catalogue
from umbilical.hardway.stages.s01_prerequisites import STAGE, _openssl, is_public_key
from umbilical.hardway.stages.s02_infrastructure import STAGE as INFRASTRUCTURE
from umbilical.hardway.stages.s04_release import STAGE as RELEASE
from umbilical.hardway.stages.s04_release import UNDOERS, extracting_steps, images, render_command
from umbilical.hardway.state import StageStatus
from umbilical.manifests.tree import Asset

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ core@example"  # a public key
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
  config:
    ignition: {version: 3.4.0}
    storage: {files: [{path: /usr/local/bin/configure-ovs.sh, mode: 493, contents: {source: "data:,$pool"}}]}
    systemd: {units: [{name: nodeip-configuration.service}, {name: ovs-configuration.service}]}
END
done
"""
OC = """#!/bin/bash
case "$*" in
    *" info "*) cat "$MADE_UP_RELEASE/release.json" ;;
    *) for one; do case $one in --to=*) cp -R "$MADE_UP_RELEASE"/. "${one#--to=}";; esac; done ;;
esac
"""


@pytest.fixture(scope="module")
def openshift(tmp_path_factory: pytest.TempPathFactory) -> Site:
    site = make_site(tmp_path_factory.mktemp("openshift"), "openshift")
    (site.folder / site.cluster.access.pull_secret_file).write_bytes(hardway.PULL_SECRET)
    site.cluster = replace(site.cluster, access=replace(site.cluster.access, ssh_keys=(KEY,)))
    return site


def _machines(site: Site) -> RecordingMachines:
    assert isinstance(site.machines, RecordingMachines)
    return site.machines


def _found(site: Site, survey: Survey | None = None, **changes: object) -> dict[str, Finding]:
    machines = RecordingMachines("libvirt")
    machines.machine_survey = survey or _machines(site).machine_survey
    # Fields of a cluster by name, each of its own type.
    asked = replace(site, machines=machines, cluster=replace(site.cluster, **changes))  # type: ignore[arg-type]
    return {one.id: one for one in stage.findings(STAGE, asked)}


def test_a_host_that_has_everything_passes_and_nothing_is_done(openshift: Site) -> None:
    found = _found(openshift)
    assert {one.id for one in found.values() if one.outcome is Outcome.FAILED} == set()
    assert "CFG-01" in found
    assert STAGE.steps(openshift) == []


def test_missing_programs_are_named(openshift: Site) -> None:
    survey = with_program(with_program(_machines(openshift).machine_survey, "virsh", ""), "socat", "")
    finding = _found(openshift, survey)["PRE-01"]
    assert (finding.outcome, finding.evidence) == (Outcome.FAILED, "missing: virsh, socat")


def test_a_program_that_nobody_looked_for_is_missing(openshift: Site) -> None:
    assert "oc" in _found(openshift, Survey(16, 65536, 500, {}))["PRE-01"].evidence


@pytest.mark.parametrize(
    ("survey", "outcome", "said"),
    [
        (Survey(4, 65536, 500, {}), Outcome.FAILED, "4 cores instead of 8"),
        (Survey(16, 16000, 500, {}), Outcome.FAILED, "16000 MiB of memory instead of 32000"),
        (Survey(16, 65536, 10, {}), Outcome.FAILED, "10 GiB free on disk instead of 50"),
        (Survey(8, 65536, 500, {}), Outcome.WARNED, "8 cores instead of 16"),
        (Survey(16, 65536, 500, {}), Outcome.PASSED, ""),
    ],
)
def test_too_little_room_fails_and_little_warns(openshift: Site, survey: Survey, outcome: Outcome, said: str) -> None:
    finding = _found(openshift, survey)["PRE-02"]
    assert (finding.outcome, finding.evidence) == (outcome, said)


@pytest.mark.parametrize(
    ("content", "outcome", "said"),
    [
        (None, Outcome.FAILED, "other.json: No such file or directory"),
        (b"{", Outcome.FAILED, "other.json: not JSON"),
        (b"[]", Outcome.FAILED, "other.json: not a JSON object"),
        (b'{"auths": {}}', Outcome.FAILED, "other.json has no entry in .auths"),
        (b'{"auths": {"quay.io": {}}}', Outcome.WARNED, "other.json has no entry for registry.redhat.io"),
        (hardway.PULL_SECRET, Outcome.PASSED, ""),
    ],
)
def test_a_pull_secret_is_judged_without_a_word_of_it(
    openshift: Site, content: bytes | None, outcome: Outcome, said: str
) -> None:
    path = openshift.folder / "other.json"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    finding = _found(openshift, access=ClusterAccess((KEY,), "other.json"))["PRE-03"]
    assert (finding.outcome, finding.evidence) == (outcome, said)


def test_ssh_keys_are_needed_and_must_be_public_keys(openshift: Site) -> None:
    access = openshift.cluster.access
    assert _found(openshift, access=replace(access, ssh_keys=()))["PRE-04"].outcome is Outcome.FAILED
    finding = _found(openshift, access=replace(access, ssh_keys=(KEY, "ssh-rsa AAAA")))["PRE-04"]
    assert finding.evidence == "not a public key: entry 2"


def test_a_lab_needs_neither_pull_secret_nor_ssh_key(tmp_path: Path) -> None:
    found = {one.id: one for one in stage.findings(STAGE, make_site(tmp_path))}
    assert (found["PRE-03"].outcome, found["PRE-04"].outcome) == (Outcome.SKIPPED, Outcome.SKIPPED)


def test_notes_of_the_survey_warn(openshift: Site) -> None:
    survey = replace(_machines(openshift).machine_survey, notes=("libvirt does not answer",))
    assert _found(openshift, survey)["PRE-06"].outcome is Outcome.WARNED


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("OpenSSL 3.0.19 27 Jan 2026\n", Outcome.PASSED),
        ("OpenSSL 1.1.1w  11 Sep 2023\n", Outcome.PASSED),
        ("OpenSSL 1.0.2k-fips  26 Jan 2017\n", Outcome.FAILED),
        ("BoringSSL\n", Outcome.WARNED),
    ],
)
def test_openssl_must_not_be_too_old(said: str, outcome: Outcome) -> None:
    survey = Survey(1, 1, 1, {"openssl": "/usr/bin/openssl"})
    assert _openssl(survey, lambda command, seconds: said).outcome is outcome


def test_an_openssl_that_does_not_run_or_is_not_there_is_told() -> None:
    def broken(command: object, seconds: float) -> str:
        raise HostError("UMB804", "openssl failed", "no libssl", "ldd")

    assert _openssl(Survey(1, 1, 1, {"openssl": "/x"}), broken).outcome is Outcome.FAILED
    assert _openssl(Survey(1, 1, 1, {"openssl": ""})).outcome is Outcome.SKIPPED


def test_only_what_the_survey_depends_on_makes_it_stale(openshift: Site) -> None:
    other = replace(openshift, cluster=replace(openshift.cluster, name="other"))
    assert STAGE.inputs(other) == STAGE.inputs(openshift)
    other = replace(openshift, cluster=replace(openshift.cluster, access=ClusterAccess()))
    assert STAGE.inputs(other) != STAGE.inputs(openshift)


def test_a_public_key_is_one_whose_inside_says_the_same_as_its_outside() -> None:
    assert is_public_key(KEY)
    assert not is_public_key(KEY.replace("ssh-ed25519 ", "ssh-rsa "))


@given(st.text(max_size=80) | st.from_regex(r"ssh-[a-z0-9]{1,9} [A-Za-z0-9+/]{0,80}={0,2}", fullmatch=True))
def test_whatever_is_written_there_is_a_key_or_not(line: str) -> None:
    assert is_public_key(line) in (True, False)


def test_keys_and_files_are_written_before_machines_are_built(tmp_path: Path) -> None:
    site = make_site(tmp_path, "openshift")
    steps = INFRASTRUCTURE.steps(site)
    assert steps[0].title.endswith("to artifacts/tls, for the load balancer's checks")
    assert steps[-1].undo == Undo("destroy-machines")
    for step in steps:
        step.act()
    (built,) = _machines(site).calls
    assert built.startswith("build infrastructure/")
    assert "infrastructure/haproxy.bootstrap.cfg" in built
    assert "tls/" not in built


def test_probes_become_checks(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    for step in INFRASTRUCTURE.steps(site):
        step.act()
    _machines(site).probes = [
        InfraProbe("network", True, "up"),
        InfraProbe("vip", False, "no .10", "ip address replace"),
    ]
    found = {one.id: one for one in stage.findings(INFRASTRUCTURE, site)}
    assert found["INFRA-network"].outcome is Outcome.PASSED
    assert found["INFRA-vip"].outcome is Outcome.FAILED
    assert (found["INFRA-vip"].evidence, found["INFRA-vip"].fix) == ("no .10", "ip address replace")
    assert found["ART-02"].outcome is Outcome.PASSED
    assert "HA-01" in found


def test_machines_that_cannot_be_looked_at_are_a_finding(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    _machines(site).failing["inspect"] = HardwayError("UMB730", "virsh failed", "no socket", "systemctl start libvirtd")
    found = {one.id: one for one in stage.findings(INFRASTRUCTURE, site)}
    assert found["INFRA-inspection"].outcome is Outcome.FAILED
    assert found["INFRA-inspection"].fix == "systemctl start libvirtd"


def test_other_machines_or_artifacts_make_it_stale(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    before = INFRASTRUCTURE.inputs(site)
    site.machines = RecordingMachines("libvirt")
    assert INFRASTRUCTURE.inputs(site) != before
    site.hashes = {**site.hashes, "infrastructure": "other"}
    assert INFRASTRUCTURE.inputs(site)["infrastructure"] == "other"


def _program(folder: Path, name: str, text: str, monkeypatch: Patch) -> str:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    return str(path)


def _with_podman(path: str) -> RecordingMachines:
    machines = recording_machines(ClusterProfile.OPENSHIFT)
    machines.machine_survey = with_program(machines.machine_survey, "podman", path)
    return machines


def _run(folder: Path, site: Site) -> Ledger:
    ledger = Ledger(folder, Clock())
    Pipeline([RELEASE], site, ledger, Lines()).run(4, 4)
    return ledger


def _outcomes(site: Site) -> dict[str, Outcome]:
    return {one.id: one.outcome for one in stage.findings(RELEASE, site)}


def test_machine_configs_are_rendered_and_become_the_base_of_nodes(tmp_path: Path, monkeypatch: Patch) -> None:
    podman = _program(tmp_path, "podman", PODMAN, monkeypatch)
    folder = make_directory(tmp_path / "c", "openshift")
    before = load_site(folder)
    ledger = _run(folder, load_site(folder, _with_podman(podman)))
    assert ledger.state.stage(4).status is StageStatus.DONE
    calls = (folder / "artifacts" / "machine-config" / "podman.log").read_text().splitlines()
    assert len(calls) == 3
    assert all(f"--payload-version={hardway.VERSION}" in call for call in calls)
    after = load_site(folder, _with_podman(podman))
    assert after.hashes["ignition"] != before.hashes["ignition"]
    assert after.hashes["pki"] == before.hashes["pki"]
    assert _outcomes(after)["REL-02"] is Outcome.PASSED
    assert any(name.startswith("rendered-master-") for name in ledger.state.stage(4).outputs)


def test_a_render_command_that_leaves_nothing_fails_the_stage(tmp_path: Path, monkeypatch: Patch) -> None:
    podman = _program(tmp_path, "podman", PODMAN.replace("mcc-output", "elsewhere"), monkeypatch)
    folder = make_directory(tmp_path / "c", "openshift")
    with pytest.raises(HostError, match="UMB804"):
        _run(folder, load_site(folder, _with_podman(podman)))


def test_without_podman_the_step_that_needs_it_is_listed_and_fails(tmp_path: Path) -> None:
    site = make_site(tmp_path, "openshift")
    site.machines = _with_podman("")
    *writing, rendering = RELEASE.steps(site)
    for step in writing:
        step.act()
    assert rendering.title == "render machine configs with the release's programs"
    with pytest.raises(HostError, match="UMB803") as caught:
        rendering.act()
    assert "podman is not installed" in caught.value.why
    assert {name for name, one in _outcomes(site).items() if one is Outcome.FAILED} == {"REL-02", "MCO-03"}


def test_machine_configs_that_another_host_rendered_are_used(tmp_path: Path, monkeypatch: Patch) -> None:
    podman = _program(tmp_path, "podman", PODMAN, monkeypatch)
    folder = make_directory(tmp_path / "c", "openshift")
    _run(folder, load_site(folder, _with_podman(podman)))
    rendering = RELEASE.steps(load_site(folder, _with_podman("")))[-1]
    (tmp_path / "bin" / "podman").unlink()
    rendering.act()
    assert _outcomes(load_site(folder, _with_podman("")))["REL-02"] is Outcome.PASSED


def test_the_render_step_is_shown_before_the_release_is_extracted(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c", "openshift", release=False, release__directory=None)
    shown = stage.shown_steps(RELEASE, load_site(folder))
    assert [step.title for step in shown][-1] == "render machine configs with the release's programs"
    assert stage.shown_steps(RELEASE, make_site(tmp_path)) == []


def test_every_stage_is_shown_before_the_release_is_extracted(tmp_path: Path) -> None:
    site = load_site(make_directory(tmp_path / "c", "openshift", release=False, release__directory=None))
    for one in catalogue.stages():
        assert one.inputs(site) is not None
        assert len(stage.shown_steps(one, site)) + len(one.checks(site)) > 0, one.name


def test_a_release_that_is_only_named_is_extracted_first(tmp_path: Path, monkeypatch: Patch) -> None:
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
    assert ledger.state.stage(4).status is StageStatus.DONE
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
    assert RELEASE.steps(site) == []
    found = {one.id: one for one in stage.findings(RELEASE, site)}
    assert found["REL-01"].outcome is Outcome.FAILED
    assert found["REL-01"].evidence == "no static pod is rendered yet: release/ does not contain an extracted release"


def test_upstream_has_nothing_to_render(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    assert RELEASE.steps(site) == []
    assert isinstance(RELEASE, Rerendering)
    assert not RELEASE.rerenders(site)
    assert _outcomes(site)["REL-02"] is Outcome.SKIPPED


@pytest.mark.parametrize("profile", ["kubernetes", "openshift"])
def test_an_image_of_elsewhere_is_seen(tmp_path: Path, profile: str) -> None:
    site = make_site(tmp_path, profile)
    assert _outcomes(site)["REL-01"] is Outcome.PASSED
    path, image = next(images(site))
    content = site.content(path).replace(image.encode(), b"docker.io/library/etcd:latest")
    site.assets = {**site.assets, path: Asset(path, content, 0o644)}
    assert _outcomes(site)["REL-01"] is Outcome.FAILED
