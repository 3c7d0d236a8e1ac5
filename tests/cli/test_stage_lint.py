"""`umbilical stage lint` as a user runs it."""

import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.hardway_workspace import contents, make_directory

from umbilical.assets.hardway.lint.catalogue import RULES
from umbilical.cli import main
from umbilical.cli.stage_options import utc_now
from umbilical.hardway import rendering


def lint(folder: Path, *arguments: str) -> int:
    return main.run(["stage", "lint", "--dir", str(folder), *arguments])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_directory(tmp_path_factory.mktemp("lint") / "c")
    rendering.write(folder, rendering.render(folder, utc_now()))
    return folder


@pytest.fixture(scope="module")
def openshift(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_directory(tmp_path_factory.mktemp("lint") / "o", "openshift")


def test_what_is_rendered_is_clean_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_directory(tmp_path / "c")
    before = contents(folder)
    assert lint(folder, "--no-judges") == 0
    printed = capsys.readouterr()
    assert "PKI-01 etcd's certificates are a server's and a client's\n" in printed.out
    assert ", 0 failed, 0 warned, " in printed.out.splitlines()[-1]
    assert "are not written yet, and judged as they would be" in printed.err
    assert contents(folder) == before


def test_rules_of_the_other_profile_are_not_told(openshift: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint(openshift, "--no-judges", "-o", "json", "--only", "CVO,KN") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["kind"] == "LintReport"
    assert report["profile"] == "openshift"
    assert [one["id"] for one in report["findings"]][:5] == [f"CVO-0{number}" for number in range(1, 6)]


def test_what_lies_there_is_judged_as_it_lies_there(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written / "artifacts" / "infrastructure" / "haproxy.final.cfg"
    good = path.read_bytes()
    path.write_bytes(good.replace(b" check-ssl", b""))
    try:
        assert lint(written, "--no-judges", "--only", "HA") == 1
    finally:
        path.write_bytes(good)
    printed = capsys.readouterr()
    assert "HA-01" in printed.out
    assert "which speaks TLS" in printed.out
    assert "haproxy.final.cfg differ from what the config renders" in printed.err


def test_a_warning_fails_only_when_asked_to(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written / "artifacts" / "infrastructure" / "haproxy.final.cfg"
    good = path.read_bytes()
    path.write_bytes(good.replace(b"timeout client 1h", b"timeout client 1m"))
    try:
        assert lint(written, "--no-judges", "--only", "HA-05") == 0
        assert lint(written, "--no-judges", "--only", "HA-05", "--fail-on", "warn") == 1
    finally:
        path.write_bytes(good)
    assert "timeout client is 60 s" in capsys.readouterr().out


def test_before_the_release_is_extracted_only_what_needs_none_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_directory(tmp_path / "c", "openshift", release=False)
    assert lint(folder, "--no-judges", "-o", "json") == 0
    outcomes = {one["id"]: one["outcome"] for one in json.loads(capsys.readouterr().out)["findings"]}
    assert outcomes["HO-01"] == outcomes["CFG-05"] == outcomes["IGN-06"] == "skipped"
    assert outcomes["CFG-02"] == outcomes["HA-01"] == outcomes["LV-01"] == "passed"


def test_a_config_that_makes_no_sense_fails_also_without_a_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_directory(tmp_path / "c", "openshift", release=False, networks__apiVip="192.168.126.100")
    assert lint(folder, "--no-judges") == 1
    assert "have the same address 192.168.126.100" in capsys.readouterr().out


def test_secrets_that_git_would_take_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_directory(tmp_path / "c")
    subprocess.run(["git", "-C", tmp_path, "init", "-q"], check=True, timeout=60)
    assert lint(folder, "--no-judges", "--only", "CFG-07") == 1
    assert "is in a git work tree and not ignored" in capsys.readouterr().out
    (folder / ".gitignore").write_text("artifacts\n.umbilical\n")
    assert lint(folder, "--no-judges", "--only", "CFG-07") == 0


def test_judges_are_asked_and_can_be_left_out(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint(written, "-o", "junit", "--only", "EXT-03,CFG") == 0
    names = [case.attrib["name"] for case in ElementTree.fromstring(capsys.readouterr().out).iter("testcase")]
    assert [name.split()[0] for name in names] == ["CFG-01", "CFG-02", "CFG-03", "CFG-06", "CFG-07", "EXT-03"]


def test_a_filter_that_leaves_nothing_is_a_mistake(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint(written, "--only", "XYZ") == 2
    assert "no check is left" in capsys.readouterr().err


def test_rules_can_be_listed_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint(tmp_path, "--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["The config", "CFG-01  names are such that DNS, Linux and Kubernetes take them"]
    assert sum(line[:1].isupper() and "-" in line[:7] for line in lines) == len(RULES) + 7
