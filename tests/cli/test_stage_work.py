"""Working on a record: the lock is held, the record is open, and nobody is asked twice."""

from pathlib import Path

import click
import pytest
from tests.support.made_up_stages import make_site
from tests.support.stage_commands import Commands

from umbilical.cli import main, stage_work
from umbilical.cli.stage_work import Asking, confirm, going_back, working
from umbilical.hardway.errors import HardwayError
from umbilical.hardway.locking import holder
from umbilical.hardway.reporting import Reporter
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Step


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(tmp_path, monkeypatch)


def test_the_lock_is_held_as_long_as_the_work_lasts(commands: Commands) -> None:
    with working(commands.folder):
        assert holder(commands.folder) is not None
    assert holder(commands.folder) is None


def test_whoever_goes_back_loads_before_the_lock_so_that_no_keys_are_made(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def load(folder: Path, reporter: Reporter) -> Site:
        seen.append(holder(folder) is not None)
        return make_site(folder, reporter=reporter)

    monkeypatch.setattr(stage_work, "load_site", load)
    with going_back(commands.folder):
        assert holder(commands.folder) is not None
    with working(commands.folder):
        pass
    assert seen == [False, True]


def test_a_second_one_is_refused(commands: Commands) -> None:
    with working(commands.folder), pytest.raises(HardwayError, match="UMB720"), going_back(commands.folder):
        pass


@pytest.mark.parametrize("content", [None, b"nmae: x\n"])
def test_a_directory_that_is_no_clusters_gets_no_record(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "cluster.yaml").write_bytes(content)
    before = sorted(tmp_path.iterdir())
    assert main.run(["stage", "run", "--dir", str(tmp_path)]) == 3
    assert sorted(tmp_path.iterdir()) == before


def test_yes_is_an_answer_and_no_terminal_is_none() -> None:
    confirm("sure?", yes=True)
    with pytest.raises(click.UsageError):
        confirm("sure?", yes=False)


def test_a_no_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: "n")
    with pytest.raises(click.Abort):
        confirm("sure?", yes=False)


def test_each_stage_is_explained_once_and_each_step_asked_for(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: "y")
    ask = Asking()
    assert ask(commands.stages[0], Step("leave a", "touch a", lambda: None))
    shown = capsys.readouterr().err
    assert "01 leave the marks of 1\nwhat       What it is.\n" in shown
    assert "  leave a\n    $ touch a\n" in shown
    assert ask(commands.stages[0], Step("leave b", "touch b", lambda: None))
    assert "What it is." not in capsys.readouterr().err


def test_what_should_be_so_after_a_stage_is_told_before_its_steps(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda text: "y")
    site = make_site(commands.folder)
    stage = commands.stages[0]
    assert Asking(site)(stage, Step("leave a", "touch a", lambda: None))
    claims = [check.title for check in stage.checks(site)]
    assert claims
    assert f"then       this should be so:\n           - {claims[0]}\n" in capsys.readouterr().err
