"""A chaos run: traffic with injected faults, then traffic without faults, and checks of everything afterwards."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.chaos.fault_injection import FaultInjector
from tests.chaos.testbed import WHOLE_SECONDS, ChaosTestbed, Figures, chaos_testbed
from tests.chaos.verify import Participants, RunReport, check_run
from tests.support.labs import wait_until

WORKERS: Final = 6
"""Clients beside each server."""
AFTERWARDS: Final = 4
"""Tunnels of each client after the last fault."""
# The allocator keeps the arenas of its peak; leaked tunnel buffers would be larger than this.
GROWTH_KIB: Final = 48 * 1024


def run_chaos(folder: Path, seed: int, seconds: float) -> dict[str, object]:
    """Inject faults for at least `seconds`, always all kinds; return the figures of the run.

    Raises AssertionError: bytes were lost, repeated or crossed, or something failed without a fault, or leaked.
    """
    print(f"chaos: seed {seed}", flush=True)
    with chaos_testbed(folder, seed) as testbed:
        before = _figures(testbed)
        injector, began = FaultInjector(testbed, seed), time.monotonic()
        with testbed.traffic(WORKERS):
            injector.inject_all()
            while time.monotonic() - began < seconds:
                injector.inject_all()
        elapsed = time.monotonic() - began
        _expect_nothing_left(testbed, before)
        ended = len(testbed.client_records())
        testbed.pass_tunnels(WORKERS, AFTERWARDS)
        report = check_run(
            _participants(testbed), testbed.client_records(), testbed.endpoint_records(), injector.faults
        )
        figures = {"seed": seed, "seconds": round(elapsed, 1), **report.figures}
        _expect_no_problems(report, figures)
        assert len(testbed.client_records()) == ended + AFTERWARDS * WORKERS * len(testbed.servers)
        _expect_nothing_left(testbed, before)
        figures["growth_kib"] = max(_growth(testbed, before).values())
    return figures


def _participants(testbed: ChaosTestbed) -> Participants:
    parts = (*testbed.servers, *testbed.agents, *testbed.endpoints)
    return Participants(parts, testbed.callers())


def _figures(testbed: ChaosTestbed) -> dict[str, Figures]:
    return {part.name: testbed.figures(part) for part in (*testbed.servers, *testbed.agents)}


def _expect_no_problems(report: RunReport, figures: dict[str, object]) -> None:
    shown = "\n".join(report.problems[:20])
    assert not report.problems, f"{len(report.problems)} problems:\n{shown}\n{json.dumps(figures)}"


def _expect_nothing_left(testbed: ChaosTestbed, before: Mapping[str, Figures]) -> None:
    wait_until(testbed.is_whole, WHOLE_SECONDS)
    wait_until(testbed.is_empty, WHOLE_SECONDS)
    wait_until(lambda: _has_settled(testbed, before), WHOLE_SECONDS)
    growth = _growth(testbed, before)
    assert max(growth.values()) <= GROWTH_KIB, f"KiB more than before: {growth}"


def _has_settled(testbed: ChaosTestbed, before: Mapping[str, Figures]) -> bool:
    return all(now.open_files <= before[name].open_files for name, now in _figures(testbed).items())


def _growth(testbed: ChaosTestbed, before: Mapping[str, Figures]) -> dict[str, int]:
    return {name: now.resident_kib - before[name].resident_kib for name, now in _figures(testbed).items()}
