"""`umbilical stage status`: what is so now."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.stage_commands import Commands

from umbilical.hardway.errors import HardwayError


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(tmp_path, monkeypatch)


def _record(commands: Commands) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (commands.folder / ".umbilical").iterdir()}


def test_what_holds_is_told_and_the_record_stays_as_it_is(
    commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    commands("run", "2")
    before = _record(commands)
    capsys.readouterr()
    assert commands("status") == 0
    shown = capsys.readouterr().out
    assert all(f"MARK-{mark}" in shown for mark in "abc")
    assert "MARK-d" not in shown
    assert _record(commands) == before


def test_what_no_longer_holds_is_status_1(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands("run")
    commands.world.marks.pop("c")
    assert commands("status") == 1
    assert "c is missing" in capsys.readouterr().out
    assert commands("status", "1") == 0


def test_a_stage_that_is_stale_is_said_to_be(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands("run")
    commands.stages[0].input = "two"
    commands("status")
    shown = capsys.readouterr().err
    assert "note: stage 01 is stale: changed since: input" in shown
    assert "note: stage 02 is stale: stage 01 is stale" in shown


def test_the_same_as_json_and_junit(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands("run")
    capsys.readouterr()
    file = commands.folder / "status.xml"
    assert commands("status", "-o", "json", "--junit", str(file)) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["kind"], value["summary"]["passed"]) == ("StageStatus", 4)
    assert ElementTree.fromstring(file.read_text()).get("tests") == "4"


def test_a_stage_whose_checks_cannot_be_asked_fails(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(site: object) -> list[object]:
        raise HardwayError("UMB736", "the lab does not run", "no keeper", "umbilical stage run 02")

    commands("run", "1")
    # The one stage of this test that cannot even be asked: a class of its own would say no more.
    commands.stages[0].checks = refuse  # type: ignore[assignment, method-assign]
    assert commands("status") == 1
    assert "UMB736 the lab does not run: no keeper" in capsys.readouterr().out


def test_where_nothing_is_done_there_is_nothing_to_ask(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands("status") == 0
    assert "no stage is done yet" in capsys.readouterr().err
