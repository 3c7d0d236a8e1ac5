"""Minutes of the storm of `tests/chaos`, by another seed each time.

UMBILICAL_SOAK_SECONDS sets how long each one lasts (120), UMBILICAL_SOAK_SEED plays one again.
"""

import json
import os
import random
from pathlib import Path
from typing import Final

import pytest
from tests.chaos.storm import weather

SECONDS: Final = float(os.environ.get("UMBILICAL_SOAK_SECONDS", "120"))
pytestmark = [
    pytest.mark.soak,
    pytest.mark.real("unshare", "nsenter", "nft", "curl"),
    # A deck that has begun is played to its end, and what comes after the storm takes a while too.
    pytest.mark.timeout(2 * SECONDS + 600),
]

GIVEN_SEED: Final = os.environ.get("UMBILICAL_SOAK_SEED")
STORMS: Final = 1 if GIVEN_SEED else 3


@pytest.mark.parametrize("number", range(STORMS))
def test_minutes_of_storm_lose_nothing_and_leave_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    seed = int(GIVEN_SEED) if GIVEN_SEED else random.SystemRandom().randrange(2**32)
    told = weather(tmp_path, seed, SECONDS)
    with capsys.disabled():
        print(f"\nchaos {number}: {json.dumps(told)}")
    assert told["whole"]
    assert told["struck_tunnels"]
