"""`umbilical stage init`, `plan`, `lint`, `doctor`, `break` and `rotate`: a directory and what is rendered in it."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support import hardway
from tests.support.fixture_types import Captured, Patch
from tests.support.hardway import cluster
from tests.support.hardway_workspace import contents, make_directory

from umbilical.cli import main
from umbilical.cli.stage.cluster import load_site, machines_for, trial_for, utc_now
from umbilical.hardway import rendering
from umbilical.hardway.config.cluster import MachinesKind, Profile
from umbilical.hardway.ledger import locked
from umbilical.hardway.lint.catalogue import RULES
from umbilical.hardway.waiting import Waiting
from umbilical.hardway.workspace import read_artifacts, read_config
from umbilical.host.machine_records import Power


def init(folder: Path, *arguments: str | Path) -> int:
    return main.run(["stage", "init", "--dir", str(folder), *map(str, arguments)])


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
    tmp_path: Path, arguments: list[str], meant: tuple[str, str, int, int], capsys: Captured
) -> None:
    folder = tmp_path / "new"
    assert init(folder, *arguments) == 0
    cluster = read_config(folder).cluster
    assert (cluster.profile.value, cluster.machines.value, len(cluster.masters), len(cluster.workers)) == meant
    printed = capsys.readouterr()
    assert printed.out == f"{folder}/cluster.yaml\n"
    assert f"umbilical stage plan --dir {folder}" in printed.err
    assert (folder / "cluster.yaml").stat().st_mode & 0o777 == 0o644


def test_a_file_that_is_there_stays(tmp_path: Path, capsys: Captured) -> None:
    assert init(tmp_path, "--name", "one") == 0
    assert init(tmp_path, "--name", "two") == 3
    assert "UMB801" in capsys.readouterr().err
    assert read_config(tmp_path).cluster.name == "one"
    assert init(tmp_path, "--name", "two", "--overwrite") == 0
    assert read_config(tmp_path).cluster.name == "two"


def test_public_keys_are_taken_up_and_private_ones_refused(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "id.pub").write_text(f"# mine\n{hardway.SSH_KEY}\n")
    (tmp_path / "id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nsupersecret\n")
    assert init(tmp_path / "c", "--ssh-key", tmp_path / "id.pub") == 0
    assert read_config(tmp_path / "c").cluster.access.ssh_keys == (hardway.SSH_KEY,)
    assert init(tmp_path / "d", "--ssh-key", tmp_path / "id") == 2
    assert "supersecret" not in capsys.readouterr().err


def test_a_key_file_that_is_no_text_is_refused(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "id.pub").write_bytes(b"\xff\xfe")
    assert init(tmp_path / "c", "--ssh-key", tmp_path / "id.pub") == 3
    assert "UMB002" in capsys.readouterr().err


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    assert init(tmp_path / "c", "--profile", "openshift", "--machines", "lab") == 3
    assert init(tmp_path / "c", "--name", "Not A Label") == 3
    assert not (tmp_path / "c").exists()


def test_everything_is_created_at_first_and_nothing_is_written(tmp_path: Path, capsys: Captured) -> None:
    folder = make_directory(tmp_path / "c")
    before = contents(folder)
    assert stage(folder, "plan") == 0
    printed = capsys.readouterr()
    assert "+ ignition/bootstrap.ign\n" in printed.out
    assert "+ tls/etcd-signer.crt: CN=etcd-signer, until " in printed.out
    assert printed.err.endswith(" created, 0 changed, 0 removed\n")
    assert contents(folder) == before


def test_nothing_to_do_is_told_and_has_status_0(folder: Path, capsys: Captured) -> None:
    assert stage(folder, "plan", "--exit-code") == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "0 created, 0 changed, 0 removed\n")


def test_a_change_is_told_by_what_it_says(folder: Path, capsys: Captured) -> None:
    make_directory(folder, networks__apiVip="192.168.126.20")
    assert stage(folder, "plan", "--exit-code") == 1
    printed = capsys.readouterr()
    assert (
        "~ tls/kube-apiserver-lb-server.crt\n    ~ names\n        -192.168.126.10\n        +192.168.126.20\n"
        in printed.out
    )
    assert "~ ignition/bootstrap.ign\n    ~ file /etc/kubernetes/" in printed.out
    assert "    ~ key: key differs\n" in printed.out
    assert "PRIVATE KEY" not in printed.out
    assert "note: kube-apiserver-lb-server would be made anew: its names changed" in printed.err
    assert stage(folder, "plan") == 0


def test_only_names_of_files_can_be_asked_for(folder: Path, capsys: Captured) -> None:
    make_directory(folder, networks__apiVip="192.168.126.20")
    stage(folder, "plan", "--stat")
    assert all(line.startswith("~ ") for line in capsys.readouterr().out.splitlines())


def test_json_has_the_same_for_programs(folder: Path, capsys: Captured) -> None:
    make_directory(folder, networks__apiVip="192.168.126.20")
    assert stage(folder, "plan", "-o", "json") == 0
    printed = capsys.readouterr()
    value = json.loads(printed.out)
    assert printed.err == ""
    assert (value["kind"], value["releaseIsRead"]) == ("Plan", True)
    assert value["summary"]["changed"] == len(value["files"]) > 3
    assert {one["id"] for one in value["renewed"]} >= {"kube-apiserver-lb-server"}


def test_a_release_that_is_not_there_is_said(tmp_path: Path, capsys: Captured) -> None:
    folder = make_directory(tmp_path / "c", "openshift", release=False)
    assert stage(folder, "plan", "--stat") == 0
    printed = capsys.readouterr()
    assert f"note: the release is not extracted to {folder}/release" in printed.err
    assert "ignition/" not in printed.out


@pytest.fixture(scope="module")
def openshift(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_directory(tmp_path_factory.mktemp("lint") / "o", "openshift")


def test_what_is_rendered_is_clean_and_nothing_is_written(tmp_path: Path, capsys: Captured) -> None:
    folder = make_directory(tmp_path / "c")
    before = contents(folder)
    assert stage(folder, "lint", "--no-judges") == 0
    printed = capsys.readouterr()
    assert "PKI-01 etcd's certificates are a server's and a client's\n" in printed.out
    assert ", 0 failed, 0 warned, " in printed.out.splitlines()[-1]
    assert "are not written yet, and judged as they would be" in printed.err
    assert contents(folder) == before


def test_rules_of_the_other_profile_are_not_told(openshift: Path, capsys: Captured) -> None:
    assert stage(openshift, "lint", "--no-judges", "-o", "json", "--only", "CVO,KN") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["kind"] == "LintReport"
    assert report["profile"] == "openshift"
    assert [one["id"] for one in report["findings"]][:5] == [f"CVO-0{number}" for number in range(1, 6)]


def test_what_lies_there_is_judged_as_it_lies_there(folder: Path, capsys: Captured) -> None:
    path = folder / "artifacts" / "infrastructure" / "haproxy.final.cfg"
    good = path.read_bytes()
    path.write_bytes(good.replace(b" check-ssl", b""))
    try:
        assert stage(folder, "lint", "--no-judges", "--only", "HA") == 1
    finally:
        path.write_bytes(good)
    printed = capsys.readouterr()
    assert "HA-01" in printed.out
    assert "which speaks TLS" in printed.out
    assert "haproxy.final.cfg differ from what the config renders" in printed.err


def test_a_warning_fails_only_when_asked_to(folder: Path, capsys: Captured) -> None:
    path = folder / "artifacts" / "infrastructure" / "haproxy.final.cfg"
    good = path.read_bytes()
    path.write_bytes(good.replace(b"timeout client 1h", b"timeout client 1m"))
    try:
        assert stage(folder, "lint", "--no-judges", "--only", "HA-05") == 0
        assert stage(folder, "lint", "--no-judges", "--only", "HA-05", "--fail-on", "warn") == 1
    finally:
        path.write_bytes(good)
    assert "timeout client is 60 s" in capsys.readouterr().out


def test_before_the_release_is_extracted_only_what_needs_none_is_judged(tmp_path: Path, capsys: Captured) -> None:
    folder = make_directory(tmp_path / "c", "openshift", release=False)
    assert stage(folder, "lint", "--no-judges", "-o", "json") == 0
    outcomes = {one["id"]: one["outcome"] for one in json.loads(capsys.readouterr().out)["findings"]}
    assert outcomes["HO-01"] == outcomes["CFG-05"] == outcomes["IGN-06"] == "skipped"
    assert outcomes["CFG-02"] == outcomes["HA-01"] == outcomes["LV-01"] == "passed"


def test_a_config_that_makes_no_sense_fails_also_without_a_release(tmp_path: Path, capsys: Captured) -> None:
    folder = make_directory(tmp_path / "c", "openshift", release=False, networks__apiVip="192.168.126.100")
    assert stage(folder, "lint", "--no-judges") == 1
    assert "have the same address 192.168.126.100" in capsys.readouterr().out


@pytest.mark.real("git")
def test_secrets_that_git_would_take_fail(tmp_path: Path, capsys: Captured) -> None:
    folder = make_directory(tmp_path / "c")
    subprocess.run(["git", "-C", tmp_path, "init", "-q"], check=True, timeout=60)
    assert stage(folder, "lint", "--no-judges", "--only", "CFG-07") == 1
    assert "is in a git work tree and not ignored" in capsys.readouterr().out
    (folder / ".gitignore").write_text("artifacts\n.umbilical\n")
    assert stage(folder, "lint", "--no-judges", "--only", "CFG-07") == 0


def test_judges_are_asked_and_can_be_left_out(folder: Path, capsys: Captured) -> None:
    assert stage(folder, "lint", "-o", "junit", "--only", "EXT-03,CFG") == 0
    names = [case.attrib["name"] for case in ElementTree.fromstring(capsys.readouterr().out).iter("testcase")]
    assert [name.split()[0] for name in names] == ["CFG-01", "CFG-02", "CFG-03", "CFG-06", "CFG-07", "EXT-03"]


def test_a_filter_that_leaves_nothing_is_a_mistake(folder: Path, capsys: Captured) -> None:
    assert stage(folder, "lint", "--only", "XYZ") == 2
    assert "no check is left" in capsys.readouterr().err


def test_rules_can_be_listed_without_a_cluster(tmp_path: Path, capsys: Captured) -> None:
    assert stage(tmp_path, "lint", "--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["The config", "CFG-01  names are such that DNS, Linux and Kubernetes take them"]
    assert sum(line[:1].isupper() and "-" in line[:7] for line in lines) == len(RULES) + 7


def test_a_sound_directory_has_status_0_and_nothing_on_stdout(folder: Path, capsys: Captured) -> None:
    before = contents(folder)
    assert stage(folder, "doctor") == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "nothing is wrong" in printed.err
    assert contents(folder) == before


def test_a_finding_is_three_lines_or_json(folder: Path, capsys: Captured) -> None:
    key = folder / "artifacts" / "tls" / "etcd-signer.key"
    key.chmod(0o644)
    try:
        assert stage(folder, "doctor") == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("PKI-08 artifacts of stage 05: not so: ")
        assert lines[1].startswith("  why: tls/etcd-signer.key has mode 0644")
        assert lines[2].startswith("  next: ")
        assert len(lines) == 3
        assert stage(folder, "doctor", "-o", "json") == 1
        value = json.loads(capsys.readouterr().out)
        assert [one["id"] for one in value["diagnoses"]] == ["PKI-08"]
    finally:
        key.chmod(0o600)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_directory(tmp_path_factory.mktemp("break") / "c")
    rendering.write(folder, rendering.render(folder, utc_now()))
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "c")


def stage(folder: Path, command: str, *arguments: str) -> int:
    return main.run(["stage", command, "--dir", str(folder), *arguments])


def artifacts(folder: Path) -> dict[str, tuple[bytes, int]]:
    return contents(folder / "artifacts")


def test_a_lesson_is_broken_seen_in_the_plan_found_by_the_doctor_and_mended(folder: Path, capsys: Captured) -> None:
    before = artifacts(folder)
    assert stage(folder, "break", "etcd-serving") == 0
    told = capsys.readouterr().out
    assert "calls it unhealthy" in " ".join(told.split())
    assert "clientAuth" not in told
    assert stage(folder, "plan", "--exit-code") == 1
    assert "tls/etcd-serving-bootstrap.crt" in capsys.readouterr().out
    assert stage(folder, "doctor") == 1
    assert "(known as etcd-serving: umbilical explain etcd-serving)" in capsys.readouterr().out
    assert stage(folder, "break", "--mend") == 0
    assert "it was: etcd-serving-bootstrap has serverAuth and no clientAuth" in capsys.readouterr().out
    assert artifacts(folder) == before
    assert stage(folder, "doctor") == 0


def test_lessons_are_listed_by_what_one_sees(folder: Path, capsys: Captured) -> None:
    assert stage(folder, "break", "--list") == 0
    out = capsys.readouterr().out
    assert "httpchk  (kubernetes, openshift, --live)" in out
    assert "check-ssl" not in out


def test_what_cannot_be_done_is_three_lines(folder: Path, capsys: Captured) -> None:
    for arguments, status, code in (
        ([], 2, "UMB001"),
        (["httpcheck"], 2, "UMB751"),
        (["--mend"], 3, "UMB752"),
        (["feature-gate"], 3, "UMB753"),
    ):
        before = artifacts(folder)
        assert stage(folder, "break", *arguments) == status
        assert capsys.readouterr().err.startswith(code)
        assert artifacts(folder) == before


def test_another_lesson_than_the_one_under_way_is_not_mended(folder: Path, capsys: Captured) -> None:
    assert stage(folder, "break", "httpchk") == 0
    assert stage(folder, "break", "kubelet-ca", "--mend") == 3
    assert "the lesson under way is httpchk" in capsys.readouterr().err


@pytest.fixture
def unrendered(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "c")


def test_only_what_is_named_and_what_hangs_on_it_changes(unrendered: Path, capsys: Captured) -> None:
    rendering.write(unrendered, rendering.render(unrendered, utc_now()))
    before = contents(unrendered)
    assert stage(unrendered, "rotate", "kube-control-plane-signer") == 0
    after = contents(unrendered)
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == "kube-control-plane-signer: it was asked for"
    assert "kube-proxy: its signer changed" in printed.out
    changed = {name for name in before if before[name] != after[name]}
    assert "artifacts/tls/kube-control-plane-signer.key" in changed
    assert "artifacts/tls/bundles/kube-apiserver-complete-client-ca-bundle.crt" in changed
    assert all(name.startswith("artifacts/tls/") for name in changed - {".umbilical/lock"})
    assert "next: umbilical stage run" in printed.err


def test_what_is_due_is_asked_for_as_such(unrendered: Path, capsys: Captured) -> None:
    rendering.keep(unrendered, rendering.render(unrendered, utc_now() - timedelta(days=3)))
    assert stage(unrendered, "rotate", "--due") == 0
    printed = capsys.readouterr()
    assert "kubelet-signer: it expired at" in printed.out
    assert "etcd-signer" not in printed.out
    assert stage(unrendered, "rotate", "--due") == 0
    assert "nothing was due" in capsys.readouterr().err


def test_what_is_not_named_or_not_known_is_refused(unrendered: Path) -> None:
    for arguments, status in (([], 2), (["nonsense"], 2)):
        assert stage(unrendered, "rotate", *arguments) == status
        assert not (unrendered / "artifacts").exists()


def test_nobody_rotates_under_a_running_pipeline(unrendered: Path, capsys: Captured) -> None:
    with locked(unrendered, "somebody", utc_now().isoformat()):
        assert stage(unrendered, "rotate", "--due") != 0
    assert "UMB720" in capsys.readouterr().err


def test_a_directory_of_no_cluster_is_told_and_stays_as_it_is(tmp_path: Path, capsys: Captured) -> None:
    for arguments in (("rotate", "--due"), ("plan",), ("doctor",)):
        assert stage(tmp_path, *arguments) == 3
        assert capsys.readouterr().err.startswith("UMB701")
    assert list(tmp_path.iterdir()) == []


class Silent:
    """Nobody is told."""

    def stage(self, number: int, title: str) -> None: ...

    def step(self, title: str, command: str) -> None: ...

    def saw(self, text: str) -> None: ...

    def waiting(self, moment: Waiting) -> None: ...

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
    of = cluster(Profile.KUBERNETES)
    machines = machines_for(of, tmp_path)
    assert machines.kind == "lab"
    assert machines.power("master-0") is Power.ABSENT
    assert trial_for(of) is not None
    assert os.listdir(tmp_path) == []
    virtual = cluster(Profile.OPENSHIFT)
    assert machines_for(virtual, tmp_path).kind == "libvirt"
    assert trial_for(virtual) is None
    assert machines_for(replace(virtual, machines=MachinesKind.LAB), tmp_path).kind == "lab"
