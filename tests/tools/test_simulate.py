import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.network import Network
from tests.simulation.plan import plan_of
from tests.simulation.world import Outcome
from tests.simulation.world import simulate as simulated

import simulate


def outcome(*faults: str) -> Outcome:
    made = Outcome(plan_of(7), Network(7))
    made.faults.extend(faults)
    return made


def test_a_failed_seed_is_told_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulate, "_run", lambda seed: outcome("tunnel 3 hangs"))
    assert simulate.main(["--seed", "7"]) == 1
    told = capsys.readouterr().out
    assert "tunnel 3 hangs" in told
    assert "next: make simulate SEED=7" in told


def test_a_seed_that_passes_ends_with_status_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "_run", lambda seed: outcome())
    assert simulate.main(["--seed", "7"]) == 0


def test_another_process_repeats_a_seed_exactly(repository: Path) -> None:
    command = [sys.executable, "tools/simulate.py", "--seed", "5"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=60, check=False)
    assert f"record {simulated(5).digest}" in done.stdout
