"""Long chaos runs (`tests/chaos`), each with a random seed.

UMBILICAL_SOAK_SECONDS is the length of each run (120), UMBILICAL_SOAK_SEED repeats a run.
"""

import json
import os
import random
from pathlib import Path
from typing import Final

import pytest
from tests.chaos.chaos_run import run_chaos

SECONDS: Final = float(os.environ.get("UMBILICAL_SOAK_SECONDS", "120"))
pytestmark = [
    pytest.mark.soak,
    pytest.mark.real("unshare", "nsenter", "nft", "curl"),
    # The last faults are always completed, and the checks afterwards take time too.
    pytest.mark.timeout(2 * SECONDS + 600),
]

GIVEN_SEED: Final = os.environ.get("UMBILICAL_SOAK_SEED")
RUNS: Final = 1 if GIVEN_SEED else 3


@pytest.mark.parametrize("number", range(RUNS))
def test_long_chaos_runs_lose_nothing_and_leave_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    seed = int(GIVEN_SEED) if GIVEN_SEED else random.SystemRandom().randrange(2**32)
    figures = run_chaos(tmp_path, seed, SECONDS)
    with capsys.disabled():
        print(f"\nchaos {number}: {json.dumps(figures)}")
    assert figures["whole"]
    assert figures["affected_tunnels"]
