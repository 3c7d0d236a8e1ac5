"""One writer at a time, across processes, also killed ones."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from umbilical.hardway.errors import HardwayError
from umbilical.hardway.locking import holder, locked

_HOLDING = """
import sys, time
from pathlib import Path
from umbilical.hardway.locking import locked
with locked(Path(sys.argv[1]), "umbilical stage run", "08:00"):
    print("held", flush=True)
    time.sleep(300)
"""


def _start(folder: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-c", _HOLDING, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_who_comes_second_is_told_who_was_first(tmp_path: Path) -> None:
    with _start(tmp_path) as process:
        try:
            with pytest.raises(HardwayError) as told, locked(tmp_path, "me", "09:00"):
                pass
            assert told.value.code == "UMB720"
            assert f"`umbilical stage run` (pid {process.pid})" in told.value.why
            found = holder(tmp_path)
            assert found is not None
            assert found.pid == process.pid
        finally:
            process.kill()


def test_a_directory_that_cannot_be_written_is_told_and_no_fault_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", Path("/proc/self")):
        with pytest.raises(HardwayError) as told, locked(folder, "me", "09:00"):
            pass
        assert told.value.code == "UMB721"
        assert told.value.what == f"cannot write {folder}/.umbilical/lock"


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    with _start(tmp_path) as process:
        os.kill(process.pid, signal.SIGKILL)
    assert holder(tmp_path) is None
    with locked(tmp_path, "me", "09:00"):
        pass


def test_it_can_be_taken_again_after_it_was_given_back(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path, "me", "09:00"):
            found = holder(tmp_path)
            assert found is not None
            assert found.command == "me"
    assert holder(tmp_path) is None


def test_a_directory_that_nobody_worked_on_has_no_holder(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    assert not (tmp_path / ".umbilical").exists()


def test_a_program_that_outlives_the_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    with locked(tmp_path, "me", "09:00"):
        child = subprocess.Popen(["sleep", "300"], close_fds=False)
    try:
        assert holder(tmp_path) is None
    finally:
        child.kill()
        child.wait()
