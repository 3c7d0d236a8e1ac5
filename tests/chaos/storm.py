"""A storm from beginning to end: calm, faults under traffic, calm again, and everything that must be true after it."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.chaos.field import WHOLE_SECONDS, Field, Figures, field
from tests.chaos.monkey import Monkey
from tests.chaos.verify import Scene, Verdict, judge
from tests.support.labs import wait_until

WORKERS: Final = 6
"""Clients beside each server."""
AFTERWARDS: Final = 4
"""Tunnels of each of them when the storm is over."""
# The allocator keeps arenas of the busiest moment; a tunnel's buffers alone would be more if they stayed.
GROWTH_KIB: Final = 48 * 1024


def weather(folder: Path, seed: int, seconds: float) -> dict[str, object]:
    """Let the storm pass for so long, in whole decks; return its figures.

    Raises:
        AssertionError: something was lost, doubled or crossed, failed for no reason, stayed broken or leaked.
    """
    print(f"storm: seed {seed}", flush=True)
    with field(folder, seed) as whole_field:
        before = _figures(whole_field)
        monkey, began = Monkey(whole_field, seed), time.monotonic()
        with whole_field.traffic(WORKERS):
            monkey.play_deck()
            while time.monotonic() - began < seconds:
                monkey.play_deck()
        storm_seconds = time.monotonic() - began
        _expect_nothing_left(whole_field, before)
        ended = len(whole_field.passages())
        whole_field.pass_tunnels(WORKERS, AFTERWARDS)
        verdict = judge(_scene(whole_field), whole_field.passages(), whole_field.visits(), monkey.blows)
        told = {"seed": seed, "seconds": round(storm_seconds, 1), **verdict.figures}
        _expect_well(verdict, told)
        assert len(whole_field.passages()) == ended + AFTERWARDS * WORKERS * len(whole_field.servers)
        _expect_nothing_left(whole_field, before)
        told["growth_kib"] = max(_growth(whole_field, before).values())
    return told


def _scene(whole_field: Field) -> Scene:
    parts = (*whole_field.servers, *whole_field.agents, *whole_field.endpoints)
    return Scene(parts, whole_field.callers())


def _figures(whole_field: Field) -> dict[str, Figures]:
    return {part.name: whole_field.figures(part) for part in (*whole_field.servers, *whole_field.agents)}


def _expect_well(verdict: Verdict, told: dict[str, object]) -> None:
    shown = "\n".join(verdict.problems[:20])
    assert not verdict.problems, f"{len(verdict.problems)} problems:\n{shown}\n{json.dumps(told)}"


def _expect_nothing_left(whole_field: Field, before: Mapping[str, Figures]) -> None:
    wait_until(whole_field.is_whole, WHOLE_SECONDS)
    wait_until(whole_field.is_empty, WHOLE_SECONDS)
    wait_until(lambda: _has_settled(whole_field, before), WHOLE_SECONDS)
    growth = _growth(whole_field, before)
    assert max(growth.values()) <= GROWTH_KIB, f"KiB more than before: {growth}"


def _has_settled(whole_field: Field, before: Mapping[str, Figures]) -> bool:
    return all(now.open_files <= before[name].open_files for name, now in _figures(whole_field).items())


def _growth(whole_field: Field, before: Mapping[str, Figures]) -> dict[str, int]:
    return {name: now.resident_kib - before[name].resident_kib for name, now in _figures(whole_field).items()}
