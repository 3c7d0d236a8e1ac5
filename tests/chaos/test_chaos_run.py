"""Half a minute of traffic while servers and agents are killed and paused, links cut and packets dropped.

The long form is `tests/soak/test_chaos.py`.
"""

import json
from pathlib import Path
from typing import Final

import pytest
from tests.chaos.chaos_run import run_chaos

pytestmark = [pytest.mark.alone, pytest.mark.real("unshare", "nsenter", "nft", "curl"), pytest.mark.timeout(300)]

# The same in every run, so that a failure can be repeated.
SEED: Final = 20


def test_no_byte_is_lost_repeated_or_crossed_and_no_tunnel_fails_without_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_chaos(tmp_path, SEED, seconds=20)
    with capsys.disabled():
        print(f"\nchaos: {json.dumps(figures)}")
    assert figures["whole"], "no tunnel was completed"
    assert figures["affected_tunnels"], "no fault affected a tunnel"
