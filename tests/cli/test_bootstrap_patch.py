import os
import re
import shutil
from pathlib import Path

import pytest
from tests.support.bootkube_script import bootkube_script
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.install_directories import Directory

from umbilical.assets.bootkube.patch import patch, undo
from umbilical.assets.bootkube.profile import Profile, profile_of
from umbilical.assets.spec import Shape, for_shape
from umbilical.cli.errors import CONFIGURATION, USAGE
from umbilical.cli.main import run
from umbilical.ignition.document import Document

SPEC = for_shape(Shape.OPENSHIFT)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "bootstrap.ign"
    path.write_bytes(bootstrap_config("4.18"))
    path.chmod(0o640)
    return path


def test_a_patch_goes_to_a_new_file_with_the_mode_of_the_old(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = config.read_bytes()
    out = config.parent / "patched.ign"
    assert run(["bootstrap", "patch", str(config), "--out", str(out)]) == 0
    assert out.read_bytes() == patch(Document(before), SPEC).document.content
    assert out.stat().st_mode & 0o777 == 0o640
    assert config.read_bytes() == before
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "bootkube.sh of 4.18 recognised" in captured.err
    assert "9 files added, 1 changed" in captured.err
    assert re.search(r"verified  \d+ KiB -> \d+ KiB", captured.err)
    assert f"wrote {out}" in captured.err


def test_a_patch_in_place_replaces_the_file_and_keeps_its_mode(config: Path) -> None:
    before = config.read_bytes()
    assert run(["bootstrap", "patch", str(config), "--in-place"]) == 0
    assert undo(Document(config.read_bytes())).content == before
    assert config.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in config.parent.iterdir()] == ["bootstrap.ign"]


def test_a_second_patch_says_that_nothing_changes_and_leaves_the_file_alone(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bootstrap", "patch", str(config), "--in-place"]) == 0
    inode = config.stat().st_ino
    capsys.readouterr()
    assert run(["bootstrap", "patch", str(config), "--in-place"]) == 0
    assert config.stat().st_ino == inode
    assert f"{config} is as it should be" in capsys.readouterr().err


def test_an_install_directory_is_patched_where_the_installer_reads_it(tmp_path: Path) -> None:
    Directory(tmp_path).metadata()
    path = tmp_path / "bootstrap.ign"
    path.write_bytes(bootstrap_config("4.18"))
    assert run(["bootstrap", "patch", "--dir", str(tmp_path)]) == 0
    assert profile_of(Document(path.read_bytes()).config) is Profile.PATCHED


def test_a_link_stays_a_link_and_what_it_points_to_is_patched(config: Path) -> None:
    link = config.parent / "link.ign"
    link.symlink_to(config)
    assert run(["bootstrap", "patch", str(link), "--in-place"]) == 0
    assert link.is_symlink()
    assert profile_of(Document(config.read_bytes()).config) is Profile.PATCHED


@pytest.mark.parametrize("shape", ["openshift", "seed"])
@pytest.mark.parametrize("mode", ["grpc", "http-connect"])
@pytest.mark.parametrize("address", ["auto", "10.0.0.9"])
def test_every_shape_mode_and_address_passes_its_own_verification(
    config: Path, shape: str, mode: str, address: str
) -> None:
    options = ["--shape", shape, "--mode", mode, "--node-ip", address]
    assert run(["bootstrap", "patch", str(config), "--in-place", *options]) == 0


def test_without_a_target_nothing_happens(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = config.read_bytes()
    assert run(["bootstrap", "patch", str(config)]) == USAGE
    assert "--out NEWFILE, or --in-place" in capsys.readouterr().err
    assert config.read_bytes() == before


def test_an_existing_file_is_not_overwritten(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = config.parent / "other"
    out.write_text("precious")
    assert run(["bootstrap", "patch", str(config), "--out", str(out)]) == CONFIGURATION
    assert capsys.readouterr().err.startswith("UMB801 ")
    assert out.read_text() == "precious"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (bootstrap_config(pointer=True), "UMB122"),
        (bootstrap_config(in_place=True), "UMB123"),
        (bootstrap_config("5.0", native="on"), "UMB124"),
        (bootstrap_config(script=bootkube_script("4.18").replace("kube-apiserver-bootstrap.done ]", "x ]")), "UMB121"),
        (bootstrap_config(version="3.9.0"), "UMB141"),
        (b"not json", "UMB140"),
        (b"", "UMB140"),
    ],
)
def test_what_cannot_be_patched_is_refused_in_three_lines_and_not_touched(
    config: Path, content: bytes, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_bytes(content)
    assert run(["bootstrap", "patch", str(config), "--in-place"]) == CONFIGURATION
    error = capsys.readouterr().err
    assert error.startswith(f"{code} ")
    assert [line[:7] for line in error.splitlines()[1:]] == ["  why: ", "  next:"]
    assert config.read_bytes() == content


def test_a_foreign_authority_is_refused_with_the_reason(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = config.read_bytes()
    assert run(["bootstrap", "patch", str(config), "--in-place", "--from-install-state"]) == CONFIGURATION
    error = capsys.readouterr().err
    assert error.startswith("UMB130 ")
    assert "never reaches the node" in error
    assert "certificate of one day" in error
    assert config.read_bytes() == before


def test_what_failed_before_the_patch_is_warned_of_and_not_blamed_on_it(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = Document(config.read_bytes()).without_files(["/usr/local/bin/bootstrap-service-record.sh"])
    config.write_bytes(document.content)
    assert run(["bootstrap", "patch", str(config), "--in-place"]) == 0
    assert "(before the patch, too)" in capsys.readouterr().err


def test_a_script_that_bash_refuses_once_patched_is_not_written(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bash that takes the installer's script and not ours: what a fault of ours would look like."""
    folder = tmp_path / "bin"
    folder.mkdir()
    picky = folder / "bash"
    picky.write_text("#!/bin/sh\nif grep -q umbilical_setup; then echo 'line 1: no' >&2; exit 2; fi\n")
    picky.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    before = config.read_bytes()
    assert run(["bootstrap", "patch", str(config), "--in-place"]) == CONFIGURATION
    error = capsys.readouterr().err
    assert error.startswith("UMB132 ")
    assert "line 1: no" in error
    assert config.read_bytes() == before


def test_without_bash_the_patch_is_made_and_the_missing_check_told(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert shutil.which("bash") is None
    assert run(["bootstrap", "patch", str(config), "--in-place"]) == 0
    assert "there is no bash here" in capsys.readouterr().err
