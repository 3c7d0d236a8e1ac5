"""`umbilical lab run`."""

from pathlib import Path

import pytest

from umbilical.cli import main
from umbilical.cli.errors import USAGE
from umbilical.lab.lab import down

NAME = "webhook-through-tunnel"


def test_an_unknown_scenario_is_refused_in_three_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main.run(["lab", "run", "webhook-trough-tunnel", "--dir", str(tmp_path / "lab")]) != 0
    said = capsys.readouterr().err
    assert said.startswith("UMB852 ")
    assert "did you mean webhook-through-tunnel?" in said
    assert not (tmp_path / "lab").exists()


def test_a_missing_binary_names_the_remedy_and_changes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert main.run(["lab", "run", NAME, "--dir", str(tmp_path / "lab")]) != 0
    said = capsys.readouterr().err
    assert said.startswith("UMB824 ")
    assert "make peers GROUP=kubernetes" in said
    assert not (tmp_path / "lab").exists()


@pytest.mark.parametrize("command", [["run", NAME], ["demo"], ["up"]])
def test_a_directory_of_programs_that_is_not_there_is_refused(
    command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert main.run(["lab", *command, "--bin-dir", str(tmp_path / "absent")]) == USAGE
    said = capsys.readouterr().err
    assert said.startswith("UMB001 ")
    assert "absent" in said
    assert not (tmp_path / "state").exists()


@pytest.mark.real("unshare", "nsenter", "nft", "ss")
@pytest.mark.timeout(300)
def test_a_story_is_told_kept_and_reported_and_the_lab_is_then_taken(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place, report = tmp_path / "lab", tmp_path / "report.html"
    command = ["lab", "run", NAME, "--stand-in", "--keep", "--dir", str(place)]
    try:
        assert main.run([*command, "--report", str(report)]) == 0
        said = capfd.readouterr().out
        assert "the webhook in the cluster says no" in said
        assert f"lab break --dir {place} agent-kill" in said
        assert f"lab down --dir {place}" in said
        assert "the cut" not in said
        assert "<svg" in report.read_text()
        assert main.run(command) != 0
        assert capfd.readouterr().err.startswith("UMB854 ")
    finally:
        down(place)
