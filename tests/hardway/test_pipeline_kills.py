"""A kill between any two writes, or in the middle of one: the next run goes on and reaches the same end.

Killed here means that nothing more is done: no handler, no clean-up, no further write.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.made_up_stages import MadeUpStage, World, pipeline, undoing

from umbilical.hardway import journal as journals
from umbilical.hardway import ledger as ledgers
from umbilical.hardway.state import RunState, StageStatus
from umbilical.host.files import write_file

REPOSITORY = Path(__file__).resolve().parents[2]


class Killed(BaseException):
    """Not an Exception: nobody may handle it, as nobody handles SIGKILL."""


class Executioner:
    """Counts moments at which a process may end, and ends it at one of them."""

    def __init__(self, moment: int, torn: int = 0) -> None:
        self.left = moment
        self.torn = torn

    def moment(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed

    @contextmanager
    def on_duty(self) -> Iterator[None]:
        """Moments: before, in the middle of and after each line of the journal, and after each state file."""
        add = journals.Journal._write

        def write(journal: journals.Journal, descriptor: int, line: bytes) -> None:
            self.moment()
            if self.left == 1:
                os.write(descriptor, line[: min(self.torn, len(line) - 1)])
            self.moment()
            add(journal, descriptor, line)
            self.moment()

        def write_state(*arguments: Any, **options: Any) -> Any:
            self.moment()
            written = write_file(*arguments, **options)
            self.moment()
            return written

        with patch.object(journals.Journal, "_write", write), patch.object(ledgers, "write_file", write_state):
            yield


def _stages(world: World, act: Callable[[str], None]) -> list[MadeUpStage]:
    return [
        MadeUpStage(1, world, ("a", "b"), before_act=act),
        MadeUpStage(2, world, ("c",), needs=(1,), before_act=act),
        MadeUpStage(3, world, ("d", "e"), needs=(2,), before_act=act),
    ]


def _run_killed(folder: Path, world: World, executioner: Executioner) -> bool:
    """Return whether it was killed."""
    # An act may end before, or after it has had its effect: the moment before the next write is the latter.
    stages = _stages(world, lambda name: executioner.moment())
    try:
        with executioner.on_duty():
            pipeline(folder, stages)[0].run(1, 3)
    except Killed:
        return True
    return False


def _outcome(state: RunState) -> list[tuple[StageStatus, list[Any]]]:
    records = (state.stage(number) for number in (1, 2, 3))
    return [(record.status, [one.undo for one in record.undos]) for record in records]


def _undisturbed() -> list[tuple[StageStatus, list[Any]]]:
    with tempfile.TemporaryDirectory() as folder:
        running, ledger, _ = pipeline(Path(folder), _stages(World(), lambda name: None))
        running.run(1, 3)
        return _outcome(ledger.state)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 90), st.integers(0, 200)), max_size=5))
def test_whenever_it_is_killed_the_next_run_reaches_the_same_end(kills: list[tuple[int, int]]) -> None:
    world = World()
    with tempfile.TemporaryDirectory() as folder:
        for moment, torn in kills:
            _run_killed(Path(folder), world, Executioner(moment, torn))
        running, ledger, _ = pipeline(Path(folder), _stages(world, lambda name: None))
        running.run(1, 3)
        assert _outcome(ledger.state) == _undisturbed()
        assert set(world.marks) == {"a", "b", "c", "d", "e"}
        assert _outcome(ledgers.read_record(Path(folder))) == _outcome(ledger.state)


def test_a_kill_after_every_single_write_is_survived(tmp_path: Path) -> None:
    """One kill per run, each one moment later than the last, until a run gets through."""
    world, moment = World(), 0
    is_killed = True
    while is_killed:
        moment += 1
        folder = tmp_path / str(moment)
        folder.mkdir()
        world.marks.clear()
        is_killed = _run_killed(folder, world, Executioner(moment, torn=moment))
        running, ledger, _ = pipeline(folder, _stages(world, lambda name: None))
        running.run(1, 3)
        assert _outcome(ledger.state) == _undisturbed(), f"killed at moment {moment}"
    assert moment > 60


@settings(max_examples=15)
@given(st.integers(1, 90), st.integers(1, 60))
def test_what_a_killed_run_left_can_always_be_destroyed(moment: int, second: int) -> None:
    world = World()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run_killed(folder, world, Executioner(moment))
        try:
            with Executioner(second).on_duty():
                undoing(folder, _stages(world, lambda name: None), world)[0].destroy()
        except Killed:
            pass
        back, ledger, _ = undoing(folder, _stages(world, lambda name: None), world)
        back.destroy()
        assert world.marks == {}
        assert all(ledger.state.stage(number).status is StageStatus.PENDING for number in (1, 2, 3))


_PROGRAM = """
import os, signal, sys
from pathlib import Path
from tests.support.made_up_stages import MadeUpStage, World, pipeline
from umbilical.hardway import journal

folder, moment = Path(sys.argv[1]), int(sys.argv[2])
written = journal.Journal._write

def write(self, descriptor, line):
    global moment
    written(self, descriptor, line)
    moment -= 1
    if moment == 0:
        os.kill(os.getpid(), signal.SIGKILL)

journal.Journal._write = write
world = World()
stages = [MadeUpStage(number, world, (f"a{number}", f"b{number}")) for number in (1, 2)]
pipeline(folder, stages)[0].run(1, 2)
"""


@pytest.mark.parametrize("moment", [1, 3, 6, 10])
def test_a_real_kill_is_survived_by_a_real_process(tmp_path: Path, moment: int) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"}
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    killed = subprocess.run([*command, str(moment)], env=environment, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert ledgers.read_record(tmp_path).stage(2).status is not StageStatus.DONE
    subprocess.run([*command, "0"], env=environment, check=True, timeout=60)
    assert [ledgers.read_record(tmp_path).stage(number).status for number in (1, 2)] == [StageStatus.DONE] * 2
