"""`umbilical stage rollback`."""

from pathlib import Path

import pytest
from tests.support.stage_commands import Commands


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(tmp_path, monkeypatch)


def test_a_stage_and_the_later_ones_are_undone(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands("run")
    capsys.readouterr()
    assert commands("rollback", "2", "--yes") == 0
    assert capsys.readouterr().out == "03 undone\n02 undone\n"
    assert set(commands.world.marks) == {"a"}


def test_nobody_is_there_to_be_asked(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands("run")
    assert commands("rollback", "2") == 2
    assert "--yes" in capsys.readouterr().err
    assert set(commands.world.marks) == {"a", "b", "c", "d"}


def test_over_a_point_of_no_return_it_is_unsafe(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands.stages[2].never = "d"
    commands("run")
    assert commands("rollback", "1", "--yes") == 7
    assert "UMB727" in capsys.readouterr().err
    assert set(commands.world.marks) == {"a", "b", "c", "d"}


def test_where_nothing_was_done_nothing_is_undone(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands("run", "1")
    capsys.readouterr()
    assert commands("rollback", "3", "--yes") == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "nothing to undo" in shown.err
