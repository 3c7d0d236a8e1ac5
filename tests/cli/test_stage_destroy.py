"""`umbilical stage destroy`."""

from pathlib import Path

import pytest
from tests.support.stage_commands import Commands

from umbilical.assets.hardway.inputs import Identity
from umbilical.hardway.identity import keep_identity


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(tmp_path, monkeypatch)


def test_everything_is_undone_also_after_a_point_of_no_return(
    commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.stages[2].never = "d"
    commands("run")
    capsys.readouterr()
    assert commands("destroy", "--yes") == 0
    assert capsys.readouterr().out == "03 undone\n02 undone\n01 undone\n"
    assert set(commands.world.marks) == {"d"}


def test_no_password_outlives_the_cluster(commands: Commands) -> None:
    commands("run")
    for _ in range(2):
        kept = keep_identity(commands.folder, Identity("an-id", "lab-x5x5x", "a-password", "a-hash"))
        assert commands("destroy", "--yes") == 0
        assert not kept.exists()


def test_twice_is_fine(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    commands("run")
    assert commands("destroy", "--yes") == 0
    acts = list(commands.world.acts)
    assert commands("destroy", "--yes") == 0
    assert commands.world.acts == acts
    assert "nothing to destroy" in capsys.readouterr().err


def test_it_is_not_done_by_the_way(commands: Commands) -> None:
    commands("run")
    assert commands("destroy") == 2
    assert commands.world.marks
