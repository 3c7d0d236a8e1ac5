"""`umbilical stage list`, `show`, `status` and `watch`: the record of a cluster, and progress of a run."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.commands import Run
from tests.support.fixture_types import Captured, Patch
from tests.support.made_up_stages import Clock, Lines, MadeUpStage, World
from tests.support.stage_commands import Commands, raising

from umbilical.checks.check import Finding, Outcome
from umbilical.cli.stage import report
from umbilical.cli.stage import view as stage_view
from umbilical.cli.stage.view import StageLines, StageLiveView, choose_view, duration
from umbilical.cli.stage.watch import follow, show_event
from umbilical.fault import HardwayError, StageTimeout
from umbilical.hardway.journal import EventKind, JournalEvent
from umbilical.hardway.ledger import Ledger, locked
from umbilical.hardway.pipeline import StageEnding, StageResult
from umbilical.hardway.state import RunState, StageRecord, StageStatus
from umbilical.hardway.waiting import WaitProgress


@pytest.fixture
def commands(tmp_path: Path, umbilical: Run, monkeypatch: Patch) -> Commands:
    return Commands(tmp_path, umbilical, monkeypatch)


def test_a_directory_without_a_record_has_everything_before_it(commands: Commands) -> None:
    assert commands("list").out.count("pending") == 3
    assert [path.name for path in commands.folder.iterdir()] == ["cluster.yaml"]


def test_each_stage_says_how_far_it_is_and_why_it_failed(commands: Commands) -> None:
    commands.stages[1].before_act = raising(HardwayError("UMB730", "virsh failed", "no socket", "start it"))
    commands("run", status=4)
    lines = commands("list").lines
    assert "done" in lines[0]
    assert "failed" in lines[1]
    assert lines[2].strip() == "UMB730 virsh failed: no socket"
    assert "pending" in lines[3]


def test_a_run_that_was_killed_is_interrupted_and_one_that_lives_is_running(commands: Commands) -> None:
    Ledger(commands.folder, Clock()).add(EventKind.STAGE_BEGAN, stage=1, inputs={})
    assert "interrupted" in commands("list").out
    with locked(commands.folder, "me", "now"):
        assert "running" in commands("list").out


def test_the_same_as_json(commands: Commands) -> None:
    commands("run", "1")
    value = commands("list", "-o", "json").json()
    assert value["kind"] == "StageList"
    first = value["stages"][0]
    assert (first["number"], first["status"], first["undo"]) == (1, "done", ["unmark"])
    assert first["checks"] == [{"id": "MARK-a", "outcome": "passed", "evidence": ""}]


def test_steps_are_shown_with_their_commands_and_nothing_is_done(commands: Commands) -> None:
    shown = commands("show", "2").out
    assert "   leave b\n      $ touch b" in shown
    assert "   MARK-c c is there" in shown
    assert "status pending, needs 01" in shown
    assert commands.world.acts == []


def test_a_stage_is_shown_as_json_and_one_that_there_is_not_is_wrong_usage(commands: Commands) -> None:
    commands("run", "2")
    value = commands("show", "made-up-2", "-o", "json").json()
    assert (value["kind"], value["status"], value["inputs"]) == ("Stage", "done", {"input": "one"})
    assert [step["command"] for step in value["steps"]] == ["touch b", "touch c"]
    assert [one["outcome"] for one in value["found"]] == ["passed", "passed"]
    commands("show", "77", status=2)


def test_an_explanation_needs_no_cluster(tmp_path: Path, umbilical: Run) -> None:
    shown = umbilical("stage", "show", "05", "--explain", "--dir", tmp_path / "nowhere").out
    assert shown.startswith("05 make keys and certificates\n")
    for word in ("what", "readers", "without", "by hand", "installer"):
        assert f"\n{word} " in shown
    assert "openssl verify" in shown


def _record(commands: Commands) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (commands.folder / ".umbilical").iterdir()}


def test_what_no_longer_holds_is_status_1_and_what_is_stale_is_said_to_be(commands: Commands) -> None:
    commands("run")
    commands.world.marks.pop("c")
    assert "c is missing" in commands("status", status=1).out
    commands("status", "1")
    commands.stages[0].input = "two"
    shown = commands("status", status=1).err
    assert "note: stage 01 is stale: changed since: input" in shown
    assert "note: stage 02 is stale: stage 01 is stale" in shown


def test_the_same_as_json_and_junit(commands: Commands) -> None:
    commands("run")
    file = commands.folder / "status.xml"
    value = commands("status", "-o", "json", "--junit", file).json()
    assert (value["kind"], value["summary"]["passed"]) == ("StageStatus", 4)
    assert ElementTree.fromstring(file.read_text()).get("tests") == "4"


def test_a_stage_whose_checks_cannot_be_asked_fails(commands: Commands) -> None:
    def refuse(site: object) -> list[object]:
        raise HardwayError("UMB736", "the lab does not run", "no keeper", "umbilical stage run 02")

    commands("run", "1")
    # The one stage of this test that cannot even be asked: a class of its own would say no more.
    commands.stages[0].checks = refuse  # type: ignore[assignment, method-assign]
    assert "UMB736 the lab does not run: no keeper" in commands("status", status=1).out


def test_what_holds_is_told_and_the_record_stays_as_it_is(commands: Commands) -> None:
    assert "no stage is done yet" in commands("status").err
    commands("run", "2")
    before = _record(commands)
    shown = commands("status").out
    assert all(f"MARK-{mark}" in shown for mark in "abc")
    assert "MARK-d" not in shown
    assert _record(commands) == before


class Told(Lines):
    def line(self, text: str) -> None:
        self.lines.append(text)


def test_the_last_run_is_told_as_it_told_itself(commands: Commands) -> None:
    commands("run", "1")
    commands("run", "2")
    shown = commands("watch", "--once").err
    assert "stage 01 skipped: nothing changed, all checks pass" in shown
    assert "02 leave the marks of 2" in shown
    assert "> leave b" in shown
    assert "> leave a" not in shown


def test_events_are_json_lines_and_need_no_lock(commands: Commands) -> None:
    commands("run", "1")
    with locked(commands.folder, "me", "now"):
        told = commands("watch", "--once", "-o", "json")
    events = [json.loads(line)["event"] for line in told.out.splitlines()]
    assert events[0] == "run-began"
    assert events[-1] == "run-ended"


def test_what_comes_later_is_told_when_it_comes(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, Clock())
    ledger.add(EventKind.RUN_BEGAN, first=1, last=1)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        ledger.add(EventKind.SAW, stage=1, text=f"fact {len(naps)}")

    events = follow(tmp_path, forever=True, sleep=nap)
    assert next(events).kind == "run-began"
    assert [next(events).values["text"] for _ in range(3)] == ["fact 1", "fact 2", "fact 3"]


def test_waits_tables_failures_and_undoings_are_told() -> None:
    told = Told()
    wait = {"stage": 1, "what": "x", "seen": "y", "elapsed_seconds": 1.0, "timeout_seconds": 2.0, "hints": ["h"]}
    cells = {"stage": 1, "rows": ["n"], "signals": ["s"], "cells": [["n", "s", "ok"]]}
    failure = {"code": "UMB725", "what": "a", "why": "b", "next": "c"}
    for kind, values in (
        (EventKind.WAITING, wait),
        (EventKind.TABLE, cells),
        (EventKind.STAGE_FAILED, {"stage": 1, "failure": failure}),
        (EventKind.UNDO_BEGAN, {"stage": 1, "undo": 3, "name": "remove-files"}),
        (EventKind.STAGE_UNDONE, {"stage": 1}),
    ):
        show_event(JournalEvent(1, "t", kind.value, values), told, {1: "title"})
    show_event(JournalEvent(1, "t", "an-event-of-a-later-release", {"stage": 1}), told, {})
    assert told.waits[0].hints == ("h",)
    assert told.tables == [{("n", "s"): "ok"}]
    assert told.lines == ["saw UMB725 a\n  why: b\n  next: c", "01 failed", "step undo: remove-files: ", "01 undone"]


STAGE = MadeUpStage(5, World(), needs=(4,))
FAILED = Finding("PKI-01", "claim", "why", "fix", Outcome.FAILED, "saw")


def test_a_fault_that_is_no_check_is_a_finding_and_a_failed_check_is_not_told_twice() -> None:
    fault = StageTimeout("UMB725", "timed out", "saw nothing", "wait")
    (found,) = report.result_findings(StageResult(STAGE, StageEnding.FAILED, 1.0, (), fault))
    assert (found.id, found.outcome) == ("UMB725", Outcome.FAILED)
    assert (found.evidence, found.fix) == ("timed out: saw nothing", "wait")
    fault = StageTimeout("UMB723", "what", "why", "next")
    assert report.result_findings(StageResult(STAGE, StageEnding.FAILED, 1.0, (FAILED,), fault)) == [FAILED]


def test_every_check_that_failed_or_warned_is_told_and_no_other() -> None:
    warned = replace(FAILED, id="REL-02", outcome=Outcome.WARNED, evidence="saw\x1b less")
    passed = replace(FAILED, id="ART-05", outcome=Outcome.PASSED)
    results = [
        StageResult(STAGE, StageEnding.DONE, 1.0, (passed, warned)),
        StageResult(STAGE, StageEnding.FAILED, 1.0, (FAILED, FAILED)),
    ]
    assert report.run_table(results).splitlines() == [
        "05 warned REL-02 claim: saw\\x1b less",
        "05 failed PKI-01 claim: saw",
        "05 failed PKI-01 claim: saw",
        "2 stages: 1 done, 1 failed",
    ]


def test_stale_stages_say_why() -> None:
    state = RunState(stages={5: StageRecord(StageStatus.STALE, because="changed since: pki", seconds=61.0)})
    table = report.list_table([STAGE], state, is_locked=False)
    assert "stale" in table
    assert "1 min 01 s" in table
    assert "changed since: pki" in table
    assert json.loads(report.list_json([STAGE], state, is_locked=False))["stages"][0]["needs"] == [4]


def test_a_report_replaces_an_older_one(tmp_path: Path) -> None:
    for text in ("one", "two"):
        report.write_junit(tmp_path / "report.xml", text)
    assert (tmp_path / "report.xml").read_text() == "two"


class _Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _plain(earlier: dict[int, float] | None = None) -> tuple[StageLines, io.StringIO, _Time]:
    stream, time = io.StringIO(), _Time()
    return StageLines(earlier or {}, stream, time), stream, time


def test_times_are_told_as_people_do() -> None:
    times = {0.04: "0.0 s", 9.94: "9.9 s", 42: "42 s", 61: "1 min 01 s", 3600: "1 h 00 min", 7384: "2 h 03 min"}
    assert {seconds: duration(seconds) for seconds in times} == times


def test_a_stage_says_how_long_it_took_before() -> None:
    view, stream, time = _plain({10: 95.0, 5: 0.2})
    time.now = 12.3
    view.stage(10, "bring up etcd")
    view.stage(5, "make keys")
    assert stream.getvalue().splitlines() == [
        "  12.3 s  10 bring up etcd (took 1 min 35 s before)",
        "  12.3 s  05 make keys",
    ]


def test_a_wait_is_a_line_when_it_changes_and_now_and_then() -> None:
    view, stream, time = _plain()
    for seen in ("refused", "refused", "503"):
        view.waiting(WaitProgress("the API", seen, 3.0, 600.0))
    time.now += stage_view.HEARTBEAT_SECONDS
    view.waiting(WaitProgress("the API", "503", 33.0, 600.0, ("the certificate lacks localhost",)))
    lines = [line.strip() for line in stream.getvalue().splitlines()]
    assert lines == [
        "not yet (3 of 600 s): the API: refused",
        "not yet (3 of 600 s): the API: 503",
        "not yet (33 of 600 s): the API: 503",
        "hint: the certificate lacks localhost",
    ]


def test_of_the_nodes_only_what_changed_is_told() -> None:
    view, stream, _ = _plain()
    for ready in ("no", "no", "yes"):
        view.table(["m0", "m1"], ["csr", "ready"], {("m0", "csr"): "1", ("m0", "ready"): ready, ("m1", "ready"): "no"})
    lines = [line.strip() for line in stream.getvalue().splitlines()]
    assert lines == ["m0: csr 1, ready no", "m1: ready no", "m0: ready yes"]


def test_what_others_say_cannot_move_the_cursor() -> None:
    view, stream, _ = _plain()
    view.saw("evil \x1b[2J text")
    view.waiting(WaitProgress("x", "\x1b]0;title\x07", 1.0, 2.0))
    assert "\x1b" not in stream.getvalue()


def test_endings_are_told() -> None:
    view, stream, _ = _plain()
    view.step("leave a", "touch a")
    view.ended(1, "done", 61.0)
    view.ended(2, "skipped", 0.1)
    view.ended(3, "undone", 0.0)
    lines = [line.strip() for line in stream.getvalue().splitlines()]
    assert lines == ["> leave a", "done after 1 min 01 s", "skipped", "undone"]


def test_where_there_is_no_terminal_lines_are_plain(capsys: Captured) -> None:
    with choose_view() as view:
        assert isinstance(view, StageLines)
        view.line("about the run")
    assert capsys.readouterr().err == "about the run\n"


@pytest.fixture
def live(monkeypatch: Patch) -> tuple[StageLiveView, io.StringIO, _Time]:
    from rich.console import Console

    stream, time = io.StringIO(), _Time()
    console = Console(file=stream, force_terminal=True, width=100, height=30, no_color=True)
    monkeypatch.setattr(stage_view, "live_console", lambda stderr: console)
    return StageLiveView({10: 95.0}, time), stream, time


def _drawn(view: StageLiveView) -> str:
    with view._console.capture() as captured:
        view._console.print(view._frame())
    return re.sub(r"\x1b\[[0-9;]*m", "", captured.get())


def test_the_live_view_shows_the_wait_with_its_deadline_and_the_nodes(
    live: tuple[StageLiveView, io.StringIO, _Time],
) -> None:
    view, _, time = live
    view.stage(10, "bring up etcd")
    time.now = 12.0
    view.step("start etcd", "systemctl start")
    view.saw("a fact")
    view.waiting(WaitProgress("etcd", "connection refused", 7.0, 180.0, ("its certificate has one usage only",)))
    view.table(["bootstrap"], ["etcd", "API"], {("bootstrap", "etcd"): "up", ("bootstrap", "API"): "down"})
    drawn = _drawn(view)
    assert "10 bring up etcd  12 s (took 1 min 35 s before)" in drawn
    assert "start etcd" in drawn
    assert "a fact" in drawn
    assert "not yet (7 of 180 s): etcd: connection refused" in drawn
    assert "hint: its certificate has one usage only" in drawn
    assert re.search(r"node\s+etcd\s+API", drawn)
    assert re.search(r"bootstrap\s+up\s+down", drawn)


def test_a_stage_that_ended_stays_on_the_screen_above(live: tuple[StageLiveView, io.StringIO, _Time]) -> None:
    view, stream, _ = live
    with view:
        view.stage(10, "bring up etcd")
        view.saw("a fact")
        view.ended(10, "done", 12.0)
        view.line("about the run")
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert "10 bring up etcd  done after 12 s" in shown
    assert "a fact" in shown
    assert "about the run" in shown
    assert _drawn(view).strip() == ""


def test_a_step_is_asked_for(monkeypatch: Patch, capsys: Captured) -> None:
    answers = iter(["n\n", "q\n"])
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: next(answers).strip())
    assert not stage_view.ask_step("join etcd on master-0", "etcdctl member add")
    assert "$ etcdctl member add" in capsys.readouterr().err
