"""`umbilical stage show`: one stage in full."""

import json
from pathlib import Path

import pytest
from tests.support.stage_commands import Commands

from umbilical.cli import main


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(tmp_path, monkeypatch)


def test_steps_are_shown_with_their_commands_and_nothing_is_done(
    commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands("show", "2") == 0
    shown = capsys.readouterr().out
    assert "   leave b\n      $ touch b" in shown
    assert "   MARK-c c is there" in shown
    assert "status pending, needs 01" in shown
    assert commands.world.acts == []


def test_the_same_as_json(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands("run", "2")
    capsys.readouterr()
    assert commands("show", "made-up-2", "-o", "json") == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["kind"], value["status"], value["inputs"]) == ("Stage", "done", {"input": "one"})
    assert [step["command"] for step in value["steps"]] == ["touch b", "touch c"]
    assert [one["outcome"] for one in value["found"]] == ["passed", "passed"]


def test_an_explanation_needs_no_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["stage", "show", "05", "--explain", "--dir", str(tmp_path / "nowhere")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("05 make keys and certificates\n")
    for word in ("what", "readers", "without", "by hand", "installer"):
        assert f"\n{word} " in shown
    assert "openssl verify" in shown


def test_a_stage_that_there_is_not_is_wrong_usage(commands: Commands) -> None:
    assert commands("show", "77") == 2
