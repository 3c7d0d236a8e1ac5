"""The simulation itself: it repeats exactly, is as large as promised, and finds faults that are planted.

Runs on the pure form only (INTERPRETED_TESTS in tools/compiled.py).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from tests.simulation import plants
from tests.simulation.plan import FAULTS, MIB, plan_of
from tests.simulation.tunnels import TRANSFERS
from tests.simulation.world import simulate

SEEDS = range(len(FAULTS))


@pytest.mark.parametrize("seed", SEEDS, ids=FAULTS)
def test_two_runs_of_a_seed_have_the_same_record(seed: int) -> None:
    first, second = simulate(seed), simulate(seed)
    assert first.digest == second.digest
    assert first.lines == second.lines
    assert first.faults == second.faults


def test_another_seed_has_another_record() -> None:
    assert simulate(0).digest != simulate(len(FAULTS)).digest


def test_every_seed_has_three_agents_twenty_tunnels_and_a_mebibyte_each_way() -> None:
    for seed in range(500):
        plan = plan_of(seed)
        assert len(plan.agents) >= 3
        assert len(plan.tunnels) >= 20
        whole = [tunnel for tunnel in plan.tunnels if tunnel.ending in TRANSFERS]
        assert sum(tunnel.up_bytes for tunnel in whole) >= MIB
        assert sum(tunnel.down_bytes for tunnel in whole) >= MIB
        assert plan.fault in FAULTS


@pytest.mark.parametrize("seed", range(3 * len(FAULTS)))
def test_a_seed_passes(seed: int) -> None:
    assert simulate(seed).faults == []


@pytest.mark.parametrize(
    ("plant", "fault", "found"),
    [
        (plants.fields_by_identity, "cut", "HPACK: sent"),
        (plants.unguarded_callbacks, "raise", "tunnel"),
        (plants.repeated_again, "flood", "times in one turn"),
        (plants.flush_without_end, "stall", "spins"),
    ],
    ids=["S7", "S12", "S13", "spinning"],
)
def test_a_planted_fault_is_found(plant: Callable[[], AbstractContextManager[None]], fault: str, found: str) -> None:
    first = FAULTS.index(fault)
    texts: list[str] = []
    with plant():
        for seed in range(first, first + 40 * len(FAULTS), len(FAULTS)):
            texts += simulate(seed).faults
            if any(found in text for text in texts):
                return
    pytest.fail(f"not found in 40 seeds; these were: {texts}")
