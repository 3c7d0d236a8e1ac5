"""`umbilical stage retry`."""

from pathlib import Path

import pytest
from tests.support.stage_commands import Commands

from umbilical.hardway.errors import HardwayError


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(tmp_path, monkeypatch)


def test_the_stage_that_failed_is_done_again_and_no_other(commands: Commands) -> None:
    def stumble(name: str) -> None:
        raise HardwayError("UMB730", "what", "why", "next")

    commands.stages[1].before_act = stumble
    commands("run")
    commands.stages[1].before_act = lambda name: None
    commands.world.acts.clear()
    assert commands("retry") == 0
    assert commands.world.acts == ["b", "c"]


def test_a_stage_that_is_done_is_done_again_when_it_is_named(commands: Commands) -> None:
    commands("run")
    commands.world.acts.clear()
    assert commands("retry", "2") == 0
    assert commands.world.acts == ["b", "c"]


def test_where_nothing_failed_a_stage_must_be_named(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands("run", "1")
    assert commands("retry") == 2
    assert "no stage failed" in capsys.readouterr().err
