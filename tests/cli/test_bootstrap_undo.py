import json
from pathlib import Path

import pytest
from tests.support.bootstrap_corpus import bootstrap_config

from umbilical.cli.errors import CONFIGURATION, USAGE
from umbilical.cli.main import run


@pytest.fixture
def patched(tmp_path: Path) -> Path:
    path = tmp_path / "bootstrap.ign"
    path.write_bytes(bootstrap_config("4.18"))
    path.chmod(0o640)
    assert run(["bootstrap", "patch", str(path), "--in-place"]) == 0
    return path


def test_undo_restores_the_file_and_its_mode_and_says_so(patched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bootstrap", "undo", str(patched), "--in-place"]) == 0
    assert patched.read_bytes() == bootstrap_config("4.18")
    assert patched.stat().st_mode & 0o777 == 0o640
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "byte for byte as it was before the patch" in captured.err


def test_undo_of_an_install_directory_needs_no_target(patched: Path) -> None:
    assert run(["bootstrap", "undo", "--dir", str(patched.parent)]) == 0
    assert patched.read_bytes() == bootstrap_config("4.18")


def test_undo_to_another_file_leaves_the_patched_one(patched: Path) -> None:
    before = patched.read_bytes()
    out = patched.parent / "original.ign"
    assert run(["bootstrap", "undo", str(patched), "--out", str(out)]) == 0
    assert out.read_bytes() == bootstrap_config("4.18")
    assert patched.read_bytes() == before


def test_undo_of_a_file_that_was_marshalled_anew_says_that_the_rest_is_as_found(
    patched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    patched.write_text(json.dumps(json.loads(patched.read_bytes()), indent=1))
    assert run(["bootstrap", "undo", str(patched), "--in-place"]) == 0
    assert "the rest is as found" in capsys.readouterr().err
    assert json.loads(patched.read_bytes()) == json.loads(bootstrap_config("4.18"))


def test_undo_of_a_file_that_is_not_patched_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bootstrap.ign"
    path.write_bytes(bootstrap_config("4.18"))
    assert run(["bootstrap", "undo", str(path), "--in-place"]) == CONFIGURATION
    assert capsys.readouterr().err.startswith("UMB128 this config is not patched\n")


def test_undo_without_a_target_changes_nothing(patched: Path) -> None:
    before = patched.read_bytes()
    assert run(["bootstrap", "undo", str(patched)]) == USAGE
    assert patched.read_bytes() == before
