"""`umbilical stage list`: the record, at a glance."""

import json
from pathlib import Path

import pytest
from tests.support.stage_commands import Commands

from umbilical.hardway.errors import HardwayError


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(tmp_path, monkeypatch)


def test_a_directory_without_a_record_has_everything_before_it(
    commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands("list") == 0
    assert capsys.readouterr().out.count("pending") == 3
    assert [path.name for path in commands.folder.iterdir()] == ["cluster.yaml"]


def test_each_stage_says_how_far_it_is_and_why_it_failed(
    commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    def stumble(name: str) -> None:
        raise HardwayError("UMB730", "virsh failed", "no socket", "start it")

    commands.stages[1].before_act = stumble
    commands("run")
    capsys.readouterr()
    assert commands("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "done" in lines[0]
    assert "failed" in lines[1]
    assert lines[2].strip() == "UMB730 virsh failed: no socket"
    assert "pending" in lines[3]


def test_a_run_that_was_killed_is_interrupted_and_one_that_lives_is_running(
    commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.support.made_up_stages import Clock

    from umbilical.hardway.journal import Kind
    from umbilical.hardway.ledger import Ledger
    from umbilical.hardway.locking import locked

    Ledger(commands.folder, Clock()).add(Kind.STAGE_BEGAN, stage=1, inputs={})
    commands("list")
    assert "interrupted" in capsys.readouterr().out
    with locked(commands.folder, "me", "now"):
        commands("list")
    assert "running" in capsys.readouterr().out


def test_the_same_as_json(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands("run", "1")
    capsys.readouterr()
    assert commands("list", "-o", "json") == 0
    value = json.loads(capsys.readouterr().out)
    assert value["kind"] == "StageList"
    first = value["stages"][0]
    assert (first["number"], first["status"], first["undo"]) == (1, "done", ["unmark"])
    assert first["checks"] == [{"id": "MARK-a", "outcome": "passed", "evidence": ""}]
