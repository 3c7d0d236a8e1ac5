"""`umbilical stage run`: ranges, reports, exit statuses, and the real stages that need no machine."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.hardway_workspace import make_directory
from tests.support.made_up_stages import MadeUpStage
from tests.support.stage_commands import Commands

from umbilical.cli import main
from umbilical.hardway.errors import HardwayError, StageTimeout, Unsafe
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Step


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(tmp_path, monkeypatch)


def test_all_stages_are_run_and_skipped_the_second_time(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands("run") == 0
    assert commands.world.acts == ["a", "b", "c", "d"]
    assert capsys.readouterr().out == "3 stages: 3 done\n"
    assert commands("run") == 0
    assert capsys.readouterr().out == "3 stages: 3 skipped\n"


@pytest.mark.parametrize(
    ("arguments", "acts"),
    [(("2",), "abc"), (("..2",), "abc"), (("1..1",), "a"), (("1", "--only"), "a"), (("1..",), "abcd")],
)
def test_a_range_says_which(commands: Commands, arguments: tuple[str, ...], acts: str) -> None:
    assert commands("run", *arguments) == 0
    assert commands.world.acts == list(acts)


@pytest.mark.parametrize("arguments", [("3..1",), ("9",), ("x",), ("1..2", "--only"), ("--only",), ("--step",)])
def test_wrong_words_are_wrong_usage(commands: Commands, arguments: tuple[str, ...]) -> None:
    assert commands("run", *arguments) == 2
    assert commands.world.acts == []


def _raising(fault: Exception) -> Callable[[str], None]:
    def act(name: str) -> None:
        raise fault

    return act


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (StageTimeout("UMB725", "waited in vain", "saw nothing", "wait"), 9),
        (Unsafe("UMB745", "the pivot is not safe", "P4 does not hold", "mend it"), 7),
        (HardwayError("UMB700", "the file cannot be used", "why", "next"), 3),
        (HardwayError("UMB730", "virsh failed", "no socket", "start it"), 4),
        (KeyboardInterrupt(), 8),
        (ZeroDivisionError(), 10),
    ],
)
def test_the_exit_status_tells_what_kind_of_failure_it_was(
    commands: Commands, fault: Exception, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.stages[1].before_act = _raising(fault)
    assert commands("run") == status
    shown = capsys.readouterr()
    assert "interrupted" in shown.out if status == 8 else "1 failed" in shown.out


def test_a_check_that_fails_is_told_in_three_lines_with_status_1(
    commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.stages[1].before_act = lambda name: commands.world.marks.clear()
    assert commands("run") == 1
    assert capsys.readouterr().err.splitlines()[-3:] == [
        "UMB723 stage 02 made-up-2: MARK-b does not hold: b is there",
        "  why: b is missing",
        "  next: touch b",
    ]


def test_a_stage_before_its_turn_is_wrong_usage(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands("run", "3", "--only") == 2
    assert "next: umbilical stage run 2..3" in capsys.readouterr().err


def test_the_report_as_json(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands.stages[2].before_act = _raising(StageTimeout("UMB725", "what", "why", "next"))
    assert commands("run", "-o", "json") == 9
    report = json.loads(capsys.readouterr().out)
    assert report["kind"] == "StageRun"
    assert [(stage["number"], stage["ending"]) for stage in report["stages"]] == [
        (1, "done"),
        (2, "done"),
        (3, "failed"),
    ]
    assert report["stages"][0]["checks"] == [{"id": "MARK-a", "outcome": "passed", "evidence": ""}]
    assert report["stages"][2]["failure"]["code"] == "UMB725"


def test_the_report_as_junit_on_stdout_and_in_a_file(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands.stages[1].before_act = lambda name: commands.world.marks.clear()
    file = commands.folder / "report.xml"
    assert commands("run", "-o", "junit", "--junit", str(file)) == 1
    shown = capsys.readouterr().out
    assert file.read_text() == shown
    suite = ElementTree.fromstring(shown)
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")


def test_progress_goes_to_stderr_alone(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands("run", "1", "-o", "json")
    shown = capsys.readouterr()
    json.loads(shown.out)
    assert "01 leave the marks of 1" in shown.err


def test_two_runs_at_once_are_one_too_many(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    from umbilical.hardway.locking import locked

    with locked(commands.folder, "umbilical stage run", "08:00"):
        assert commands("run") == 4
    assert "UMB720" in capsys.readouterr().err
    assert commands.world.acts == []


def test_who_may_have_a_certificate_again_is_told_to_the_site(commands: Commands) -> None:
    seen: list[frozenset[str]] = []

    class Looking(MadeUpStage):
        def steps(self, site: Site) -> Sequence[Step]:
            seen.append(site.reissue)
            return []

    commands.stages = [Looking(1, commands.world)]
    assert commands("run", "1", "--allow-reissue", "master-0.example.com") == 0
    assert seen == [frozenset({"master-0.example.com"})]


def test_machines_that_are_installed_are_not_run_over_by_the_way(
    commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.stages = [*commands.stages, MadeUpStage(9, commands.world, ("boot",), needs=(3,))]
    assert commands("run") == 0
    commands.stages[1].input = "two"
    commands.world.acts.clear()
    assert commands("run") == 7
    shown = capsys.readouterr().err
    assert "UMB726 stage 09 would run again on machines that are installed\n  why: stage 03 is stale" in shown
    assert commands.world.acts == []
    assert commands("run", "3") == 0
    assert commands("run", "--yes") == 0
    assert commands.world.acts == ["b", "c", "d", "boot"]


def test_the_real_stages_write_their_artifacts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that need no machine: 03, 04, 05 and 06 of the kubernetes profile."""
    folder = make_directory(tmp_path / "c")
    command = ["stage", "run", "3..6", "--dir", str(folder)]
    assert main.run(command) == 0
    assert capsys.readouterr().out == "4 stages: 4 done\n"
    assert (folder / "artifacts" / "auth" / "admin.kubeconfig").is_file()
    assert main.run(command) == 0
    assert capsys.readouterr().out == "4 stages: 4 skipped\n"
    text = "".join(path.read_text() for path in (folder / ".umbilical").iterdir() if path.suffix in (".json", ".jsonl"))
    assert "PRIVATE KEY" not in text
    assert main.run(["stage", "rollback", "5", "--yes", "--dir", str(folder)]) == 0
    assert not (folder / "artifacts" / "tls").exists()


def test_a_real_process_that_is_asked_to_end_leaves_a_record_to_go_on_from(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "c")
    command = [sys.executable, "-m", "umbilical", "stage", "run", "3..6", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    process.stderr.readline()
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=120)
    # It may have got through before the signal came, or be on its way out.
    assert process.returncode in (8, 0, -signal.SIGTERM)
    assert main.run(["stage", "run", "3..6", "--dir", str(folder)]) == 0
