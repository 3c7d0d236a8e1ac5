"""`umbilical lab down`: also what a crash left, and all at once."""

import os
import signal
from pathlib import Path

import pytest
from tests.support.labs import processes_naming, request, wait_until

from umbilical.cli import main
from umbilical.lab.lab import up
from umbilical.lab.paths import default_directory

pytestmark = pytest.mark.real("unshare", "nsenter", "nft")


@pytest.fixture(autouse=True)
def default_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_a_lab_goes_and_doing_it_twice_is_fine(capfd: pytest.CaptureFixture[str]) -> None:
    place = up(request(default_directory())).directory.path
    assert main.run(["lab", "down"]) == 0
    assert main.run(["lab", "down"]) == 0
    assert capfd.readouterr().out == f"{place} is gone\nthere is no lab in {place}\n"
    assert processes_naming(place) == []


def test_all_labs_go_also_dead_ones(capfd: pytest.CaptureFixture[str]) -> None:
    labs = [up(request(default_directory(name))) for name in ("one", "two")]
    assert labs[0].state.keeper_pid is not None
    os.kill(labs[0].state.keeper_pid, signal.SIGKILL)
    wait_until(lambda: not labs[0].state.is_alive())
    assert main.run(["lab", "down", "--all"]) == 0
    assert main.run(["lab", "down", "--all"]) == 0
    one, two = (lab.directory.path for lab in labs)
    assert capfd.readouterr().out == f"{one} is gone\n{two} is gone\nthere is no lab\n"
    assert not one.exists()
    assert not two.exists()
    for lab in labs:
        lab.down()


def test_a_directory_that_is_not_a_labs_does_not_save_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    default_directory("a").mkdir(parents=True)
    (default_directory("a") / "precious").touch()
    lab = up(request(default_directory("b")))
    assert main.run(["lab", "down", "--all"]) == 4
    said = capfd.readouterr()
    assert said.out == f"{lab.directory.path} is gone\n"
    assert said.err.startswith("UMB813 ")
    assert (default_directory("a") / "precious").exists()


def test_all_and_one_contradict_each_other(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["lab", "down", "--all", "--dir", "x"]) == 2
    assert "give one of them" in capfd.readouterr().err
