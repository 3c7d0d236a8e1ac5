"""`umbilical stage init`, `plan`, `lint`, `doctor`, `break` and `rotate`: a directory and its artifacts."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support import hardway
from tests.support.commands import Run, Told
from tests.support.fixture_types import Patch
from tests.support.hardway import cluster
from tests.support.hardway_workspace import contents, make_directory

from umbilical.cli.stage.cluster import load_site, machines_for, smoke_test_for, utc_now
from umbilical.hardway import rendering
from umbilical.hardway.config.cluster import ClusterProfile, MachinesKind
from umbilical.hardway.ledger import locked
from umbilical.hardway.lint.catalogue import RULES
from umbilical.hardway.waiting import WaitProgress
from umbilical.hardway.workspace import read_artifacts, read_config
from umbilical.host.machine_records import Power
from umbilical.lab.binaries import VERSIONED


@pytest.fixture
def init(umbilical: Run) -> Run:
    return partial(umbilical, "stage", "init", "--dir")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ([], ("kubernetes", "lab", 3, 2)),
        (["--masters", "1", "--workers", "0"], ("kubernetes", "lab", 1, 0)),
        (["--profile", "openshift"], ("openshift", "libvirt", 3, 2)),
        (["--profile", "kubernetes", "--machines", "libvirt"], ("kubernetes", "libvirt", 3, 2)),
    ],
)
def test_a_file_is_written_that_can_be_read(
    tmp_path: Path, arguments: list[str], meant: tuple[str, str, int, int], init: Run
) -> None:
    folder = tmp_path / "new"
    printed = init(folder, *arguments)
    cluster = read_config(folder).cluster
    assert (cluster.profile.value, cluster.machines.value, len(cluster.masters), len(cluster.workers)) == meant
    assert printed.out == f"{folder}/cluster.yaml\n"
    assert f"umbilical stage plan --dir {folder}" in printed.err
    assert (folder / "cluster.yaml").stat().st_mode & 0o777 == 0o644


def test_a_version_of_kubernetes_is_written_in_full_and_must_be_built(
    tmp_path: Path, init: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    refused = init(tmp_path / "a", "--kubernetes-version", "1.36.3", status=4).err
    assert refused.startswith("UMB824 a needed program of Kubernetes v1.36.3 is missing: ")
    assert "`make peers GROUP=kubernetes-1.36`" in refused
    assert not (tmp_path / "a").exists()
    for name in VERSIONED:
        path = tmp_path / "cache/umbilical/peers/kubernetes-1.36-v1.36.3" / f"{name}-v1.36.3"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    init(tmp_path / "a", "--kubernetes-version", "1.36")
    assert read_config(tmp_path / "a").cluster.release.version == "v1.36.3"
    # Virtual machines run images of a registry.
    init(tmp_path / "b", "--machines", "libvirt", "--kubernetes-version", "v1.35.4")
    assert read_config(tmp_path / "b").cluster.release.version == "v1.35.4"
    init(tmp_path / "c", "--profile", "openshift", "--kubernetes-version", "1.36", status=2)
    init(tmp_path / "c", "--kubernetes-version", "newest", status=2)


def test_a_file_that_is_there_stays(tmp_path: Path, init: Run) -> None:
    init(tmp_path, "--name", "one")
    assert "UMB801" in init(tmp_path, "--name", "two", status=3).err
    assert read_config(tmp_path).cluster.name == "one"
    init(tmp_path, "--name", "two", "--overwrite")
    assert read_config(tmp_path).cluster.name == "two"


def test_public_keys_are_taken_up_and_private_ones_refused(tmp_path: Path, init: Run) -> None:
    (tmp_path / "id.pub").write_text(f"# mine\n{hardway.SSH_KEY}\n")
    (tmp_path / "id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nsupersecret\n")
    init(tmp_path / "c", "--ssh-key", tmp_path / "id.pub")
    assert read_config(tmp_path / "c").cluster.access.ssh_keys == (hardway.SSH_KEY,)
    assert "supersecret" not in init(tmp_path / "d", "--ssh-key", tmp_path / "id", status=2).err


def test_an_image_s_archive_is_named_by_its_whole_path(tmp_path: Path, init: Run, monkeypatch: Patch) -> None:
    (tmp_path / "ours.tar").touch()
    monkeypatch.chdir(tmp_path)
    init("c", "--image", "ours.tar")
    assert read_config(tmp_path / "c").cluster.release.tunnel_archive == str(tmp_path / "ours.tar")
    assert "UMB001" in init("d", "--image", "missing.tar", status=2).err


def test_a_key_file_that_is_no_text_is_refused(tmp_path: Path, init: Run) -> None:
    (tmp_path / "id.pub").write_bytes(b"\xff\xfe")
    assert "UMB002" in init(tmp_path / "c", "--ssh-key", tmp_path / "id.pub", status=3).err


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path, init: Run) -> None:
    init(tmp_path / "c", "--profile", "openshift", "--machines", "lab", status=3)
    init(tmp_path / "c", "--name", "Not A Label", status=3)
    assert not (tmp_path / "c").exists()


def test_a_plan_and_a_judgement_of_what_is_not_rendered_yet_write_nothing(tmp_path: Path, stage: Run) -> None:
    folder = make_directory(tmp_path / "c")
    before = contents(folder)
    printed = stage(folder, "plan")
    assert "+ ignition/bootstrap.ign\n" in printed.out
    assert "+ tls/etcd-signer.crt: CN=etcd-signer, until " in printed.out
    assert printed.err.endswith(" created, 0 changed, 0 removed\n")
    printed = stage(folder, "lint", "--no-judges")
    assert "PKI-01 etcd's certificates have the usages serverAuth and clientAuth\n" in printed.out
    assert ", 0 failed, 0 warned, " in printed.lines[-1]
    assert "do not exist yet; their rendering was checked" in printed.err
    assert contents(folder) == before


def test_nothing_to_do_is_told_and_has_status_0(folder: Path, stage: Run) -> None:
    assert stage(folder, "plan", "--exit-code") == ("", "0 created, 0 changed, 0 removed\n")


def test_a_change_is_told_by_what_it_says_or_by_names_of_files_alone(folder: Path, stage: Run) -> None:
    make_directory(folder, networks__apiVip="192.168.126.20")
    printed = stage(folder, "plan", "--exit-code", status=1)
    names = "    ~ names\n        -192.168.126.10\n        +192.168.126.20\n"
    assert f"~ tls/kube-apiserver-lb-server.crt\n{names}" in printed.out
    assert "~ ignition/bootstrap.ign\n    ~ file /etc/kubernetes/" in printed.out
    assert "    ~ key: key differs\n" in printed.out
    assert "PRIVATE KEY" not in printed.out
    assert "note: kube-apiserver-lb-server would be renewed: its names changed" in printed.err
    assert all(line.startswith("~ ") for line in stage(folder, "plan", "--stat").lines)


def test_json_has_the_same_for_programs(folder: Path, stage: Run) -> None:
    make_directory(folder, networks__apiVip="192.168.126.20")
    printed = stage(folder, "plan", "-o", "json")
    value = json.loads(printed.out)
    assert printed.err == ""
    assert (value["kind"], value["releaseIsRead"]) == ("Plan", True)
    assert value["summary"]["changed"] == len(value["files"]) > 3
    assert {one["id"] for one in value["renewed"]} >= {"kube-apiserver-lb-server"}


def test_before_the_release_is_extracted_only_what_needs_none_is_planned_and_judged(tmp_path: Path, stage: Run) -> None:
    folder = make_directory(tmp_path / "c", "openshift", release=False)
    printed = stage(folder, "plan", "--stat")
    assert f"note: the release is not extracted to {folder}/release" in printed.err
    assert "ignition/" not in printed.out
    findings = stage(folder, "lint", "--no-judges", "-o", "json").json()["findings"]
    outcomes = {one["id"]: one["outcome"] for one in findings}
    assert outcomes["HO-01"] == outcomes["CFG-05"] == outcomes["IGN-06"] == "skipped"
    assert outcomes["CFG-02"] == outcomes["HA-01"] == outcomes["LV-01"] == "passed"
    make_directory(folder, "openshift", release=False, networks__apiVip="192.168.126.100")
    assert "have the same address 192.168.126.100" in stage(folder, "lint", "--no-judges", status=1).out


def test_a_plan_says_that_nodes_have_no_rendered_machine_configs(openshift: Path, stage: Run) -> None:
    told = stage(openshift, "plan", "--stat").err
    assert "note: no machine configs are rendered" in told
    assert f"umbilical stage run 4 --dir {openshift}" in told
    assert stage(openshift, "plan", "-o", "json").json()["machineConfigsAreMissing"] is True
    failed = stage(openshift, "lint", "--no-judges", "--only", "MCO", status=1).out
    assert "ignition/master-0.ign lacks /usr/local/bin/configure-ovs.sh" in failed


@pytest.fixture(scope="module")
def openshift(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_directory(tmp_path_factory.mktemp("lint") / "o", "openshift")


def test_rules_of_the_other_profile_are_not_told(openshift: Path, stage: Run) -> None:
    report = stage(openshift, "lint", "--no-judges", "-o", "json", "--only", "CVO,KN").json()
    assert report["kind"] == "LintReport"
    assert report["profile"] == "openshift"
    assert [one["id"] for one in report["findings"]][:5] == [f"CVO-0{number}" for number in range(1, 6)]


def test_what_lies_there_is_judged_as_it_lies_there(folder: Path, stage: Run) -> None:
    path = folder / "artifacts" / "infrastructure" / "haproxy.final.cfg"
    path.write_bytes(path.read_bytes().replace(b" check-ssl", b""))
    printed = stage(folder, "lint", "--no-judges", "--only", "HA", status=1)
    assert "HA-01" in printed.out
    assert "which uses TLS" in printed.out
    assert "haproxy.final.cfg differ from what the config renders" in printed.err


def test_a_warning_fails_only_when_asked_to(folder: Path, stage: Run) -> None:
    path = folder / "artifacts" / "infrastructure" / "haproxy.final.cfg"
    path.write_bytes(path.read_bytes().replace(b"timeout client 1h", b"timeout client 1m"))
    stage(folder, "lint", "--no-judges", "--only", "HA-05")
    told = stage(folder, "lint", "--no-judges", "--only", "HA-05", "--fail-on", "warn", status=1)
    assert "timeout client is 60 s" in told.out


@pytest.mark.real("git")
def test_secrets_that_git_would_take_fail(tmp_path: Path, stage: Run) -> None:
    folder = make_directory(tmp_path / "c")
    subprocess.run(["git", "-C", tmp_path, "init", "-q"], check=True, timeout=60)
    told = stage(folder, "lint", "--no-judges", "--only", "CFG-07", status=1)
    assert "is in a git work tree and not ignored" in told.out
    (folder / ".gitignore").write_text("artifacts\n.umbilical\n")
    stage(folder, "lint", "--no-judges", "--only", "CFG-07")


def test_judges_are_asked_and_can_be_left_out(folder: Path, stage: Run) -> None:
    report = ElementTree.fromstring(stage(folder, "lint", "-o", "junit", "--only", "EXT-03,CFG").out)
    assert [case.attrib["name"].split()[0] for case in report.iter("testcase")] == [
        *("CFG-01", "CFG-02", "CFG-03", "CFG-06", "CFG-07", "EXT-03"),
    ]


def test_a_filter_that_leaves_nothing_is_a_mistake(folder: Path, stage: Run) -> None:
    assert "leave no check" in stage(folder, "lint", "--only", "XYZ", status=2).err


def test_rules_can_be_listed_without_a_cluster(tmp_path: Path, stage: Run) -> None:
    lines = stage(tmp_path, "lint", "--list").lines
    assert lines[:2] == ["cluster.yaml", "CFG-01  names are valid for DNS, Linux and Kubernetes"]
    assert sum(line[:1].isupper() and "-" in line[:7] for line in lines) == len(RULES) + 7


def test_a_sound_directory_has_status_0_and_nothing_on_stdout(folder: Path, stage: Run) -> None:
    before = contents(folder)
    printed = stage(folder, "doctor")
    assert printed.out == ""
    assert "no problem found" in printed.err
    assert contents(folder) == before


def test_a_finding_is_three_lines_or_json(folder: Path, stage: Run) -> None:
    (folder / "artifacts" / "tls" / "etcd-signer.key").chmod(0o644)
    what, why, remedy = stage(folder, "doctor", status=1).lines
    assert what.startswith("PKI-08 artifacts of stage 05: check failed: ")
    assert why.startswith("  why: tls/etcd-signer.key has mode 0644")
    assert remedy.startswith("  next: ")
    value = stage(folder, "doctor", "-o", "json", status=1).json()
    assert [one["id"] for one in value["diagnoses"]] == ["PKI-08"]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_directory(tmp_path_factory.mktemp("break") / "c")
    rendering.write(folder, rendering.render(folder, utc_now()))
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "c")


@pytest.fixture
def stage(umbilical: Run) -> Run:
    def run(folder: Path, command: str, *arguments: str, status: int = 0) -> Told:
        return umbilical("stage", command, "--dir", folder, *arguments, status=status)

    return run


def artifacts(folder: Path) -> dict[str, tuple[bytes, int]]:
    return contents(folder / "artifacts")


def test_a_lesson_is_broken_seen_in_the_plan_found_by_the_doctor_and_mended(folder: Path, stage: Run) -> None:
    before = artifacts(folder)
    told = stage(folder, "break", "etcd-serving").out
    assert "reports it as unhealthy" in " ".join(told.split())
    assert "clientAuth" not in told
    assert "tls/etcd-serving-bootstrap.crt" in stage(folder, "plan", "--exit-code", status=1).out
    assert (
        "(same symptom as lesson etcd-serving: umbilical explain etcd-serving)" in stage(folder, "doctor", status=1).out
    )
    assert "it was: etcd-serving-bootstrap has serverAuth without clientAuth" in stage(folder, "break", "--mend").out
    assert artifacts(folder) == before
    stage(folder, "doctor")


def test_lessons_are_listed_by_what_one_sees(folder: Path, stage: Run) -> None:
    out = stage(folder, "break", "--list").out
    assert "httpchk  (kubernetes, openshift, --live)" in out
    assert "check-ssl" not in out


def test_what_cannot_be_done_is_three_lines(folder: Path, stage: Run) -> None:
    for arguments, status, code in (
        ([], 2, "UMB001"),
        (["httpcheck"], 2, "UMB751"),
        (["--mend"], 3, "UMB752"),
        (["feature-gate"], 3, "UMB753"),
    ):
        before = artifacts(folder)
        assert stage(folder, "break", *arguments, status=status).err.startswith(code)
        assert artifacts(folder) == before


def test_another_lesson_than_the_one_under_way_is_not_mended(folder: Path, stage: Run) -> None:
    stage(folder, "break", "httpchk")
    assert "the active lesson is httpchk" in stage(folder, "break", "kubelet-ca", "--mend", status=3).err


@pytest.fixture
def unrendered(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "c")


def test_only_what_is_named_and_what_hangs_on_it_changes(unrendered: Path, stage: Run) -> None:
    rendering.write(unrendered, rendering.render(unrendered, utc_now()))
    before = contents(unrendered)
    printed = stage(unrendered, "rotate", "kube-control-plane-signer")
    after = contents(unrendered)
    assert printed.out.splitlines()[0] == "kube-control-plane-signer: rotation was requested"
    assert "kube-proxy: its signer changed" in printed.out
    changed = {name for name in before if before[name] != after[name]}
    assert "artifacts/tls/kube-control-plane-signer.key" in changed
    assert "artifacts/tls/bundles/kube-apiserver-complete-client-ca-bundle.crt" in changed
    assert all(name.startswith("artifacts/tls/") for name in changed - {".umbilical/lock"})
    assert "next: umbilical stage run" in printed.err


def test_what_is_due_is_asked_for_as_such(unrendered: Path, stage: Run) -> None:
    rendering.keep(unrendered, rendering.render(unrendered, utc_now() - timedelta(days=3)))
    printed = stage(unrendered, "rotate", "--due")
    assert "kubelet-signer: it expired at" in printed.out
    assert "etcd-signer" not in printed.out
    assert "no certificate expires soon" in stage(unrendered, "rotate", "--due").err


def test_what_is_not_named_or_not_known_is_refused(unrendered: Path, stage: Run) -> None:
    stage(unrendered, "rotate", status=2)
    stage(unrendered, "rotate", "nonsense", status=2)
    assert not (unrendered / "artifacts").exists()


def test_nobody_rotates_under_a_running_pipeline(unrendered: Path, stage: Run) -> None:
    with locked(unrendered, "somebody", utc_now().isoformat()):
        assert "UMB720" in stage(unrendered, "rotate", "--due", status=4).err


def test_a_directory_of_no_cluster_is_told_and_stays_as_it_is(tmp_path: Path, stage: Run) -> None:
    for arguments in (("rotate", "--due"), ("plan",), ("doctor",), ("run",), ("watch",)):
        assert stage(tmp_path, *arguments, status=3).err.startswith("UMB701")
    assert list(tmp_path.iterdir()) == []


class Silent:
    """Nobody is told."""

    def stage(self, number: int, title: str) -> None: ...

    def step(self, title: str, command: str) -> None: ...

    def saw(self, text: str) -> None: ...

    def waiting(self, moment: WaitProgress) -> None: ...

    def table(self, *_: object) -> None: ...


def test_a_site_has_what_is_rendered(tmp_path: Path, monkeypatch: Patch) -> None:
    make_directory(tmp_path / "c")
    monkeypatch.chdir(tmp_path)
    site = load_site(Path("c"), Silent())
    assert site.folder == tmp_path / "c"
    assert site.machines.kind == "lab"
    assert "ignition/bootstrap.ign" in site.assets
    assert sorted(path for paths in site.files.values() for path in paths) == sorted(site.assets)
    assert site.hashes.keys() >= {"pki", "ignition", "infrastructure"}
    assert site.has_tunnel


def test_who_holds_the_lock_keeps_what_is_drawn(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c")
    with locked(folder, "test", utc_now().isoformat()):
        site = load_site(folder, Silent())
    assert site.reload is not None
    again = site.reload()
    assert again.hashes == site.hashes
    assert {path.partition("/")[0] for path in read_artifacts(folder)} == {"tls"}


def test_the_api_is_reached_by_address(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c")
    before = contents(folder)
    site = load_site(folder, Silent())
    assert contents(folder) == before, "who only looks writes nothing"
    assert site.api().kubeconfig == folder / ".umbilical/192.168.126.10.kubeconfig"
    assert site.api(site.cluster.masters[0].address).kubeconfig.name == "192.168.126.101.kubeconfig"


def test_a_site_of_openshift_knows_which_operators_must_settle(tmp_path: Path) -> None:
    site = load_site(make_directory(tmp_path / "c", "openshift"), Silent())
    assert {"etcd", "network", "machine-config"} <= set(site.operators)
    assert load_site(make_directory(tmp_path / "k"), Silent()).operators == ()


def test_a_lab_or_virtual_machines_are_what_the_config_says(tmp_path: Path) -> None:
    of = cluster(ClusterProfile.KUBERNETES)
    machines = machines_for(of, tmp_path)
    assert machines.kind == "lab"
    assert machines.power("master-0") is Power.ABSENT
    assert smoke_test_for(of) is not None
    assert os.listdir(tmp_path) == []
    virtual = cluster(ClusterProfile.OPENSHIFT)
    assert machines_for(virtual, tmp_path).kind == "libvirt"
    assert smoke_test_for(virtual) is None
    assert machines_for(replace(virtual, machines=MachinesKind.LAB), tmp_path).kind == "lab"
