"""`umbilical stage watch`: a run followed from elsewhere."""

import json
from pathlib import Path

import pytest
from tests.support.made_up_stages import Clock, Lines
from tests.support.stage_commands import Commands

from umbilical.cli import main
from umbilical.cli.stage_watch import follow, tell
from umbilical.hardway.journal import Event, Kind
from umbilical.hardway.ledger import Ledger
from umbilical.hardway.locking import locked


class Told(Lines):
    def line(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(tmp_path, monkeypatch)


def test_the_last_run_is_told_as_it_told_itself(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands("run", "1")
    commands("run", "2")
    capsys.readouterr()
    assert commands("watch", "--once") == 0
    shown = capsys.readouterr().err
    assert "stage 01 skipped: nothing changed, all checks pass" in shown
    assert "02 leave the marks of 2" in shown
    assert "> leave b" in shown
    assert "> leave a" not in shown


def test_a_directory_that_is_no_clusters_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["stage", "watch", "--dir", str(tmp_path / "nowhere")]) == 3
    assert capsys.readouterr().err.startswith("UMB701 ")


def test_it_needs_no_lock(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands("run", "1")
    with locked(commands.folder, "me", "now"):
        assert commands("watch", "--once") == 0


def test_events_as_json_lines(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands("run", "1")
    capsys.readouterr()
    assert commands("watch", "--once", "-o", "json") == 0
    events = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert events[0] == "run-began"
    assert events[-1] == "run-ended"


def test_what_comes_later_is_told_when_it_comes(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, Clock())
    ledger.add(Kind.RUN_BEGAN, first=1, last=1)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        ledger.add(Kind.SAW, stage=1, text=f"fact {len(naps)}")

    events = follow(tmp_path, forever=True, sleep=nap)
    assert next(events).kind == "run-began"
    assert [next(events).values["text"] for _ in range(3)] == ["fact 1", "fact 2", "fact 3"]


def test_waits_tables_failures_and_undoings_are_told() -> None:
    told = Told()
    wait = {"stage": 1, "what": "x", "seen": "y", "elapsed_seconds": 1.0, "timeout_seconds": 2.0, "hints": ["h"]}
    cells = {"stage": 1, "rows": ["n"], "signals": ["s"], "cells": [["n", "s", "ok"]]}
    failure = {"code": "UMB725", "what": "a", "why": "b", "next": "c"}
    for kind, values in (
        (Kind.WAITING, wait),
        (Kind.TABLE, cells),
        (Kind.STAGE_FAILED, {"stage": 1, "failure": failure}),
        (Kind.UNDO_BEGAN, {"stage": 1, "undo": 3, "name": "remove-files"}),
        (Kind.STAGE_UNDONE, {"stage": 1}),
    ):
        tell(Event(1, "t", kind.value, values), told, {1: "title"})
    assert told.waits[0].hints == ("h",)
    assert told.tables == [{("n", "s"): "ok"}]
    assert told.lines == [
        "saw UMB725 a\n  why: b\n  next: c",
        "01 failed",
        "step undo: remove-files: ",
        "01 undone",
    ]


def test_an_event_of_a_later_release_is_passed_over() -> None:
    told = Told()
    tell(Event(1, "t", "stage-admired", {"stage": 1}), told, {})
    assert told.lines == []
