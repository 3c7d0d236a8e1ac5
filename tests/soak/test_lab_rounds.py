"""Ten rounds of a lab, five of them killed at a random moment: afterwards the machine is as it was before."""

import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from tests.support.labs import control_groups_of, machine_picture, processes_naming, wait_until

from umbilical.lab import lab as labs
from umbilical.lab.state import LabDirectory, read_state

pytestmark = [pytest.mark.soak, pytest.mark.real("nft", "unshare", "nsenter"), pytest.mark.root]

ROUNDS: Final = 10
UP_SECONDS: Final = 60
COMMAND: Final = (sys.executable, "-m", "umbilical", "lab", "up", "--dir")


def _namespaces() -> set[str]:
    """All network, mount and PID namespaces that some process is in."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        for kind in ("net", "mnt", "pid"):
            try:
                found.add(str((process / "ns" / kind).readlink()))
            except OSError:
                continue
    return found


def _is_forgotten(folder: Path) -> bool:
    return not processes_naming(folder) and not control_groups_of(folder)


def _killed_round(folder: Path, chance: random.Random) -> None:
    """Kill whoever makes the lab, or its keeper, at some moment of the first second and a half."""
    with subprocess.Popen([*COMMAND, str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        time.sleep(chance.uniform(0.05, 1.5))
        state = read_state(LabDirectory(folder)) if folder.is_dir() else None
        if chance.random() < 0.5 and state is not None and state.is_alive() and state.keeper_pid is not None:
            subprocess.run(["kill", "-KILL", str(state.keeper_pid)], timeout=10, check=False)
        child.send_signal(signal.SIGKILL)
        child.wait(UP_SECONDS)
    labs.down(folder)


def _whole_round(folder: Path) -> None:
    subprocess.run([*COMMAND, str(folder)], timeout=UP_SECONDS, check=True, stdout=subprocess.DEVNULL)
    lab = labs.Lab.open(folder)
    assert lab.exec("bootstrap", ["ip", "route"]).check().text
    lab.down()


@pytest.mark.parametrize("seed", [1, 2])
def test_ten_rounds_leave_the_machine_as_it_was(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    machine, namespaces = machine_picture(), _namespaces()
    for number in range(ROUNDS):
        folder = tmp_path / f"round-{number}"
        if number % 2:
            _killed_round(folder, chance)
        else:
            _whole_round(folder)
        wait_until(partial(_is_forgotten, folder))
        assert not folder.exists() or not any(folder.iterdir())
    wait_until(lambda: _namespaces() <= namespaces)
    assert machine_picture() == machine
