"""Measures rendering all artifacts of the hard way for six nodes, as a whole process, with existing keys.

The reference in the same run is jq over the Ignition config of one node. The goal is three seconds; a missed goal is
reported and does not change the exit code.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench_bootstrap import UMBILICAL, TimedCommand, line, measure

ROOT: Final = Path(__file__).resolve().parent.parent
# The example release belongs to the tests.
sys.path.insert(0, str(ROOT))

GOAL_SECONDS: Final = 3.0
NODES: Final[dict[str, Any]] = {"nodes__masters__count": 3, "nodes__workers__count": 2}
"""Six with the bootstrap machine."""
PROFILES: Final = ("openshift", "kubernetes")


def make_cluster(folder: Path, profile: str) -> Path:
    """Write a cluster's directory with its keys and artifacts."""
    from tests.support.hardway_workspace import make_directory

    from umbilical.hardway import rendering

    cluster = make_directory(folder / profile, profile, release=True, **NODES)
    rendered = rendering.render(cluster, datetime.now(UTC))
    rendering.keep(cluster, rendered)
    rendering.write(cluster, rendered)
    return cluster


def rows(cluster: Path, profile: str) -> list[TimedCommand]:
    program = str(UMBILICAL)
    plan = (program, "stage", "plan", "--dir", str(cluster))
    found = [TimedCommand(f"stage plan, {profile}, six nodes", plan, GOAL_SECONDS)]
    jq = shutil.which("jq")
    if jq is not None:
        config = str(cluster / "artifacts" / "ignition" / "master-0.ign")
        found.append(
            TimedCommand("jq, paths of one node (reference)", (jq, "-r", ".storage.files[].path", config), None)
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure rendering of all artifacts for six nodes.")
    parser.add_argument("--rounds", type=int, default=5, help="number of runs of each; the median is reported (5)")
    parser.add_argument("--smoke", action="store_true", help="only check that every row runs")
    options, _ = parser.parse_known_args(arguments)
    rounds = 1 if options.smoke else options.rounds
    with tempfile.TemporaryDirectory(prefix="umbilical-bench-") as folder:
        print(f"\nthe hard way, all artifacts rendered and compared; whole processes, median of {rounds}")
        for profile in PROFILES:
            cluster = make_cluster(Path(folder), profile)
            for row in rows(cluster, profile):
                print(line(measure(row, rounds)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
