"""`umbilical stage run`, `retry`, `rollback` and `destroy`: ranges, exit statuses, the lock, what is undone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.commands import Run
from tests.support.fixture_types import Captured, Patch
from tests.support.hardway_workspace import make_directory
from tests.support.made_up_stages import MadeUpStage, World, make_site
from tests.support.stage_commands import Commands, raising

from umbilical.cli.stage import cluster
from umbilical.cli.stage.cluster import StageRange, StepPrompt, bounds, confirm, find_stage, going_back, working
from umbilical.fault import HardwayError, StageTimeout, Unsafe
from umbilical.hardway.artifacts.inputs import ClusterIdentity
from umbilical.hardway.ledger import holder
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Step
from umbilical.hardway.waiting import Reporter
from umbilical.hardway.workspace import keep_identity


@pytest.fixture
def commands(tmp_path: Path, umbilical: Run, monkeypatch: Patch) -> Commands:
    return Commands(tmp_path, umbilical, monkeypatch)


def test_all_stages_are_run_and_skipped_the_second_time(commands: Commands) -> None:
    assert commands("run").out == "3 stages: 3 done\n"
    assert commands.world.acts == ["a", "b", "c", "d"]
    assert commands("run").out == "3 stages: 3 skipped\n"


@pytest.mark.parametrize(
    ("arguments", "acts"),
    [(("2",), "abc"), (("..2",), "abc"), (("1..1",), "a"), (("1", "--only"), "a"), (("1..",), "abcd")],
)
def test_a_range_says_which(commands: Commands, arguments: tuple[str, ...], acts: str) -> None:
    commands("run", *arguments)
    assert commands.world.acts == list(acts)


def test_wrong_words_are_wrong_usage(commands: Commands) -> None:
    for arguments in (("3..1",), ("9",), ("x",), ("1..2", "--only"), ("--only",), ("--step",)):
        commands("run", *arguments, status=2)
        assert commands.world.acts == []


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (StageTimeout("UMB725", "timed out", "saw nothing", "wait"), 9),
        (Unsafe("UMB745", "the pivot was not started", "P4 does not hold", "fix it"), 7),
        (HardwayError("UMB700", "the file is invalid", "why", "next"), 3),
        (HardwayError("UMB730", "virsh failed", "no socket", "start it"), 4),
        (KeyboardInterrupt(), 8),
        (ZeroDivisionError(), 10),
    ],
)
def test_the_exit_status_tells_what_kind_of_failure_it_was(commands: Commands, fault: Exception, status: int) -> None:
    commands.stages[1].before_act = raising(fault)
    shown = commands("run", status=status)
    assert "interrupted" in shown.out if status == 8 else "1 failed" in shown.out


def test_a_check_that_fails_is_told_in_three_lines_with_status_1(commands: Commands) -> None:
    commands.stages[1].before_act = lambda name: commands.world.marks.clear()
    told = commands("run", status=1)
    assert told.err.splitlines()[-3:] == [
        "UMB723 stage 02 made-up-2: check MARK-b failed: b is there",
        "  why: b is missing",
        "  next: touch b",
    ]


def test_a_stage_before_its_turn_is_wrong_usage(commands: Commands) -> None:
    assert "next: umbilical stage run 2..3" in commands("run", "3", "--only", status=2).err


def test_the_report_as_json(commands: Commands) -> None:
    commands.stages[2].before_act = raising(StageTimeout("UMB725", "what", "why", "next"))
    shown = commands("run", "-o", "json", status=9)
    assert "01 leave the marks of 1" in shown.err, "progress goes to stderr alone"
    report = json.loads(shown.out)
    assert report["kind"] == "StageRun"
    endings = [(stage["number"], stage["ending"]) for stage in report["stages"]]
    assert endings == [(1, "done"), (2, "done"), (3, "failed")]
    assert report["stages"][0]["checks"] == [{"id": "MARK-a", "outcome": "passed", "evidence": ""}]
    assert report["stages"][2]["failure"]["code"] == "UMB725"


def test_the_report_as_junit_on_stdout_and_in_a_file(commands: Commands) -> None:
    commands.stages[1].before_act = lambda name: commands.world.marks.clear()
    file = commands.folder / "report.xml"
    shown = commands("run", "-o", "junit", "--junit", file, status=1).out
    assert file.read_text() == shown
    suite = ElementTree.fromstring(shown)
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")


def test_who_may_have_a_certificate_again_is_told_to_the_site(commands: Commands) -> None:
    seen: list[frozenset[str]] = []

    class Looking(MadeUpStage):
        def steps(self, site: Site) -> Sequence[Step]:
            seen.append(site.reissue)
            return []

    commands.stages = [Looking(1, commands.world)]
    commands("run", "1", "--allow-reissue", "master-0.example.com")
    assert seen == [frozenset({"master-0.example.com"})]


def test_machines_that_are_installed_are_not_run_over_by_the_way(commands: Commands) -> None:
    commands.stages = [*commands.stages, MadeUpStage(9, commands.world, ("boot",), needs=(3,))]
    commands("run")
    commands.stages[1].input = "two"
    commands.world.acts.clear()
    shown = commands("run", status=7).err
    assert "UMB726 stage 09 would run again on installed machines\n  why: stage 03 is stale" in shown
    assert commands.world.acts == []
    commands("run", "3")
    commands("run", "--yes")
    assert commands.world.acts == ["b", "c", "d", "boot"]


def test_the_real_stages_write_their_artifacts(tmp_path: Path, umbilical: Run) -> None:
    """Those that need no machine: 03, 04, 05 and 06 of the kubernetes profile."""
    folder = make_directory(tmp_path / "c")
    assert umbilical("stage", "run", "3..6", "--dir", folder).out == "4 stages: 4 done\n"
    assert (folder / "artifacts" / "auth" / "admin.kubeconfig").is_file()
    assert umbilical("stage", "run", "3..6", "--dir", folder).out == "4 stages: 4 skipped\n"
    text = "".join(path.read_text() for path in (folder / ".umbilical").iterdir() if path.suffix in (".json", ".jsonl"))
    assert "PRIVATE KEY" not in text
    umbilical("stage", "rollback", "5", "--yes", "--dir", folder)
    assert not (folder / "artifacts" / "tls").exists()


def test_a_real_process_that_is_asked_to_end_leaves_a_record_to_go_on_from(tmp_path: Path, umbilical: Run) -> None:
    folder = make_directory(tmp_path / "c")
    command = [sys.executable, "-m", "umbilical", "stage", "run", "3..6", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    process.stderr.readline()
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=120)
    # It may have got through before the signal came, or be on its way out.
    assert process.returncode in (8, 0, -signal.SIGTERM)
    umbilical("stage", "run", "3..6", "--dir", folder)


STAGES = [MadeUpStage(number, World()) for number in range(1, 18)]


def test_what_is_open_is_filled_in() -> None:
    ranges = {"5..8": (5, 8), "05..08": (5, 8), "5..": (5, 17), "..8": (1, 8), "8": (1, 8), "1..1": (1, 1)}
    assert {text: bounds(StageRange().convert(text, None, None), STAGES) for text in ranges} == ranges
    assert bounds(None, STAGES) == (1, 17)


def test_stages_are_found_by_number_and_by_name_or_refused() -> None:
    for text in ("8..5", "0..3", "18", "5..99"):
        with pytest.raises(click.UsageError):
            bounds(StageRange().convert(text, None, None), STAGES)
    assert find_stage("05", STAGES).number == find_stage("5", STAGES).number == find_stage("made-up-5", STAGES).number
    with pytest.raises(click.UsageError, match="there is no stage 99"):
        find_stage("99", STAGES)


@given(st.text(max_size=8))
def test_whatever_is_written_is_a_range_or_wrong_usage(text: str) -> None:
    try:
        first, last = StageRange().convert(text, None, None)
    except click.UsageError:
        return
    assert first is not None or last is not None


def test_the_stage_that_failed_is_done_again_and_no_other(commands: Commands) -> None:
    commands.stages[1].before_act = raising(HardwayError("UMB730", "what", "why", "next"))
    commands("run", status=4)
    commands.stages[1].before_act = lambda name: None
    commands.world.acts.clear()
    commands("retry")
    assert commands.world.acts == ["b", "c"]


def test_a_stage_that_is_done_is_done_again_when_it_is_named_only(commands: Commands) -> None:
    commands("run", "1")
    assert "no stage failed" in commands("retry", status=2).err
    commands("run")
    commands.world.acts.clear()
    commands("retry", "2")
    assert commands.world.acts == ["b", "c"]


def test_a_stage_and_the_later_ones_are_undone(commands: Commands) -> None:
    commands("run")
    assert commands("rollback", "2", "--yes").out == "03 undone\n02 undone\n"
    assert set(commands.world.marks) == {"a"}


def test_nobody_is_there_to_be_asked(commands: Commands) -> None:
    commands("run")
    for arguments in (("rollback", "2"), ("destroy",)):
        assert "--yes" in commands(*arguments, status=2).err
    assert set(commands.world.marks) == {"a", "b", "c", "d"}


def test_where_nothing_was_done_nothing_is_undone(commands: Commands) -> None:
    commands("run", "1")
    shown = commands("rollback", "3", "--yes")
    assert shown.out == ""
    assert "nothing to undo" in shown.err


def test_over_a_point_of_no_return_a_rollback_is_unsafe_and_destroying_is_not_nor_doing_so_twice(
    commands: Commands,
) -> None:
    commands.stages[2].never = "d"
    commands("run")
    assert "UMB727" in commands("rollback", "1", "--yes", status=7).err
    assert set(commands.world.marks) == {"a", "b", "c", "d"}
    assert commands("destroy", "--yes").out == "03 undone\n02 undone\n01 undone\n"
    assert set(commands.world.marks) == {"d"}
    acts = list(commands.world.acts)
    assert "nothing to destroy" in commands("destroy", "--yes").err
    assert commands.world.acts == acts


def test_what_destroying_keeps_is_told(commands: Commands, monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = tmp_path / "cache" / "umbilical" / "images"
    store.mkdir(parents=True)
    commands("run", "1")
    kept = [line for line in commands("destroy", "--yes").err.splitlines() if line.startswith("kept ")]
    record = commands.folder / ".umbilical" / "events.jsonl"
    assert [line[5:].partition(": ")[0] for line in kept] == [
        str(path) for path in (commands.folder / "cluster.yaml", record, store)
    ]


def test_no_password_outlives_the_cluster(commands: Commands) -> None:
    commands("run")
    for _ in range(2):
        kept = keep_identity(commands.folder, ClusterIdentity("an-id", "lab-x5x5x", "a-password", "a-hash"))
        commands("destroy", "--yes")
        assert not kept.exists()


def test_the_lock_is_held_as_long_as_the_work_lasts_and_whoever_goes_back_loads_before_it_so_that_no_keys_are_made(
    commands: Commands, monkeypatch: Patch
) -> None:
    seen: list[bool] = []

    def load(folder: Path, reporter: Reporter) -> Site:
        seen.append(holder(folder) is not None)
        return make_site(folder, reporter=reporter)

    monkeypatch.setattr(cluster, "load_site", load)
    with going_back(commands.folder):
        assert holder(commands.folder) is not None
    with working(commands.folder):
        assert holder(commands.folder) is not None
    assert holder(commands.folder) is None
    assert seen == [False, True]


def test_a_second_one_is_refused(commands: Commands) -> None:
    with working(commands.folder), pytest.raises(HardwayError, match="UMB720"), going_back(commands.folder):
        pass
    with working(commands.folder):
        told = commands("run", status=4)
    assert "UMB720" in told.err
    assert commands.world.acts == []


def test_a_directory_with_a_wrong_config_gets_no_record(tmp_path: Path, umbilical: Run) -> None:
    (tmp_path / "cluster.yaml").write_text("nmae: x\n")
    umbilical("stage", "run", "--dir", tmp_path, status=3)
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.yaml"]


def test_yes_is_an_answer_no_ends_it_and_no_terminal_is_none(monkeypatch: Patch) -> None:
    confirm("sure?", yes=True)
    with pytest.raises(click.UsageError):
        confirm("sure?", yes=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: "n")
    with pytest.raises(click.Abort):
        confirm("sure?", yes=False)


def test_each_stage_is_explained_once_with_what_should_be_so_after_it_and_each_step_asked_for(
    commands: Commands, monkeypatch: Patch, capfd: Captured
) -> None:
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: "y")
    site = make_site(commands.folder)
    ask = StepPrompt(site)
    assert ask(commands.stages[0], Step("leave a", "touch a", lambda: None))
    shown = capfd.readouterr().err
    assert "01 leave the marks of 1\nwhat       What it is.\n" in shown
    claim = commands.stages[0].checks(site)[0].title
    assert f"expected   after this stage:\n           - {claim}\n" in shown
    assert "  leave a\n    $ touch a\n" in shown
    assert ask(commands.stages[0], Step("leave b", "touch b", lambda: None))
    assert "What it is." not in capfd.readouterr().err
