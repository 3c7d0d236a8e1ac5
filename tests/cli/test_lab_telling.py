"""What every story on the command line has in common: a place for its report, and words for a lab that stays."""

from pathlib import Path

import pytest

from umbilical.cli.lab_telling import check_report, play, tell_kept
from umbilical.lab import rehearsal
from umbilical.lab.errors import LabError
from umbilical.lab.rehearsal import Rehearsal
from umbilical.lab.runner import RunnerKind
from umbilical.lab.scenarios import registry
from umbilical.lab.story import Story


def _wanted(directory: Path | None = None) -> Rehearsal:
    return Rehearsal(registry.find("webhook-through-tunnel"), RunnerKind.PROCESS, directory=directory)


def test_a_report_may_lie_in_a_directory_that_is_yet_to_be_made(tmp_path: Path) -> None:
    assert check_report(tmp_path / "a/b/report.html") == tmp_path / "a/b/report.html"
    assert not (tmp_path / "a").exists()


def test_a_directory_is_no_place_for_a_report(tmp_path: Path) -> None:
    with pytest.raises(LabError) as caught:
        check_report(tmp_path)
    assert caught.value.code == "UMB870"


def test_only_a_lab_with_a_tunnel_is_offered_for_breaking(capsys: pytest.CaptureFixture[str]) -> None:
    tell_kept("--name one", has_tunnel=False)
    assert "lab break" not in capsys.readouterr().out
    tell_kept("--dir two", has_tunnel=True)
    shown = capsys.readouterr().out
    assert "lab break --dir two agent-kill" in shown
    assert "lab down --dir two" in shown


def test_a_scratch_directory_goes_with_the_story_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []

    def fail(wanted: Rehearsal, story: Story) -> None:
        assert wanted.directory is not None
        seen.append(wanted.directory)
        raise LabError("UMB850", "waited in vain", "for this test", "none")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(rehearsal, "rehearse", fail)
    with pytest.raises(LabError):
        play(_wanted(), Story("a test"))
    assert seen[0].is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_was_named_is_the_rehearsals_to_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(wanted: Rehearsal, story: Story) -> None:
        raise KeyboardInterrupt

    (tmp_path / "thesis.txt").write_text("years of work")
    monkeypatch.setattr(rehearsal, "rehearse", interrupt)
    with pytest.raises(KeyboardInterrupt):
        play(_wanted(tmp_path), Story("a test"))
    assert (tmp_path / "thesis.txt").exists()
