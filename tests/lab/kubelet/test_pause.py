"""The program that only waits."""

import platform
import signal
import subprocess
from pathlib import Path

import pytest
from tests.support.labs import wait_until

from umbilical.lab.errors import LabError
from umbilical.lab.kubelet import pause


def test_it_runs_here_and_sleeps_until_it_is_ended(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(pause.program())
    program.chmod(0o755)
    with subprocess.Popen([program]) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        wait_until(lambda: _state(process.pid) == "S")  # it sleeps, and does not spin
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 62), ("aarch64", 183)])
def test_it_is_an_executable_of_its_machine(machine: str, number: int) -> None:
    content = pause.program(machine)
    assert content.startswith(b"\x7fELF\x02\x01")
    assert int.from_bytes(content[18:20], "little") == number
    entry = int.from_bytes(content[24:32], "little") & 0xFFF
    assert 0 < len(content) - entry <= 64, "the entry point is where the instructions begin"


def test_this_machines_program_is_the_default() -> None:
    assert pause.program() == pause.program(platform.machine())


def test_a_machine_that_nobody_knows_is_refused() -> None:
    with pytest.raises(LabError) as refused:
        pause.program("vax")
    assert refused.value.code == "UMB845"
    assert "x86_64 and aarch64" in refused.value.why
