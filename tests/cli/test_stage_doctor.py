"""`umbilical stage doctor` as a user runs it."""

import json
from pathlib import Path

import pytest
from tests.support.hardway_workspace import contents, make_directory

from umbilical.cli import main
from umbilical.cli.stage_options import utc_now
from umbilical.hardway import rendering


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_directory(tmp_path_factory.mktemp("doctor") / "c")
    rendering.write(made, rendering.render(made, utc_now()))
    return made


def doctor(folder: Path, *arguments: str) -> int:
    return main.run(["stage", "doctor", "--dir", str(folder), *arguments])


def test_a_sound_directory_has_status_0_and_nothing_on_stdout(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(folder)
    assert doctor(folder) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "nothing is wrong" in printed.err
    assert contents(folder) == before


def test_a_finding_is_three_lines_or_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = folder / "artifacts" / "tls" / "etcd-signer.key"
    key.chmod(0o644)
    try:
        assert doctor(folder) == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("PKI-08 artifacts of stage 05: not so: ")
        assert lines[1].startswith("  why: tls/etcd-signer.key has mode 0644")
        assert lines[2].startswith("  next: ")
        assert len(lines) == 3
        assert doctor(folder, "-o", "json") == 1
        value = json.loads(capsys.readouterr().out)
        assert [one["id"] for one in value["diagnoses"]] == ["PKI-08"]
    finally:
        key.chmod(0o600)


def test_a_directory_without_a_cluster_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(tmp_path) == 3
    assert capsys.readouterr().err.startswith("UMB701")
