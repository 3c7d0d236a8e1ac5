"""The keeper from outside: what it loads, what it holds, how it ends. More is in test_lab.py and test_removal.py."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.labs import UP_PROGRAM, processes_naming, request, running, wait_until

from umbilical.lab import removal
from umbilical.lab.lab import Lab, up

pytestmark = pytest.mark.real("unshare", "nsenter", "nft", "ps")
HEAVY = ("cryptography", "yaml", "lightkube", "click", "rich", "httpx")


def test_a_keeper_loads_nothing_that_it_does_not_need() -> None:
    program = f"import sys, umbilical.lab.keeper; print([name for name in {HEAVY} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60) == "[]\n"


def test_programs_hold_neither_the_lock_nor_any_pipe_of_the_keepers(tmp_path: Path) -> None:
    with running(tmp_path / "lab") as lab:
        lab.start("master-0", "looker", ["sh", "-c", "ls -l /proc/self/fd"])
        wait_until(lambda: lab.processes()[0].exit_code is not None)
        listed = [line.split()[-3:] for line in lab.log("master-0", "looker").splitlines()[1:]]
        assert {number for number, *_ in listed} == {"0", "1", "2", "3"}
        assert next(target for number, _, target in listed if number == "0") == "/dev/null"
        anchor = lab.exec("master-0", ["ls", "-l", f"/proc/{lab.anchor('master-0')}/fd"]).check().text
        assert "pipe:" not in anchor
        assert "lock" not in anchor


def test_programs_are_not_born_with_the_callers_umask_or_signals(tmp_path: Path) -> None:
    script = 'umask 077; trap "" HUP QUIT; exec "$@"'
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    command = ["sh", "-c", script, "sh", sys.executable, "-c", UP_PROGRAM, str(tmp_path / "lab"), "alone"]
    subprocess.run(command, env=environment, timeout=60, check=True, stdout=subprocess.DEVNULL)
    lab = Lab.open(tmp_path / "lab")
    try:
        assert lab.exec("master-0", ["sh", "-c", "umask"]).text == "0022\n"
        status = lab.exec("master-0", ["cat", "/proc/self/status"]).text
        facts = dict(line.split(":\t", 1) for line in status.splitlines() if line.startswith("Sig"))
        # The C library keeps two signals for its threads and lets nobody set them; make hands one on as ignored.
        reserved = 1 << 31 | 1 << 32
        assert {int(facts[name], 16) & ~reserved for name in ("SigBlk", "SigIgn")} == {0}
    finally:
        lab.down()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_a_keeper_in_order(tmp_path: Path, number: signal.Signals) -> None:
    lab = up(request(tmp_path / "lab"))
    try:
        program = "trap 'echo asked; exit' TERM; echo ready; while :; do sleep 0.02; done"
        lab.start("master-0", "patient", ["sh", "-c", program])
        wait_until(lambda: lab.log("master-0", "patient") == "ready\n")
        assert lab.state.keeper_pid is not None
        os.kill(lab.state.keeper_pid, number)
        wait_until(lambda: not removal.is_held(lab.directory))
        assert lab.log("master-0", "patient") == "ready\nasked\n"
        assert lab.directory.keeper_log.read_text() == ""
    finally:
        lab.down()


def test_a_keeper_that_is_ordered_to_end_does_not_wait_for_a_running_question(tmp_path: Path) -> None:
    lab = up(request(tmp_path / "lab"))
    arguments = [sys.executable, "-c", _ASK, str(lab.directory.path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as asking:
        wait_until(lambda: "sleep 9876" in lab.exec("bootstrap", ["ps", "-A", "-o", "args="]).text)
        removal.end_keeper(lab.directory, orderly=True)
        said, _ = asking.communicate(timeout=30)
    lab.down()
    assert said == "UMB819\n"


def test_when_either_half_of_a_keeper_is_killed_everything_ends(tmp_path: Path) -> None:
    for half in (-1, -2):
        lab = up(request(tmp_path / "lab"))
        lab.start("master-0", "sleeper", ["setsid", "sleep", "8765"])
        os.kill(sorted(removal.keepers(lab.directory))[half], signal.SIGKILL)
        wait_until(lambda: processes_naming(tmp_path / "lab") == [])
        assert not removal.is_held(lab.directory)
        lab.down()


_ASK = """
import sys; from pathlib import Path
from umbilical.lab.errors import LabError
from umbilical.lab.lab import Lab
try: Lab.open(Path(sys.argv[1])).exec("master-0", ["sleep", "9876"], timeout_seconds=600)
except LabError as fault: print(fault.code)
"""
