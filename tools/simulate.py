"""Runs seeds of the simulation (docs/simulation.md) on all cores, for a given time or one seed alone.

    simulate.py [--seconds 60] [--seed N] [--first N]

Prints what was run; for a failed seed what differed and the command that repeats it. The exit status is 1 then.
"""

import argparse
import itertools
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.simulation.world import Outcome, simulate  # noqa: E402 - the tests' package is found by the line above

SHOWN_FAILURES: Final = 10
SHOWN_LINES: Final = 40
FAULTS_SHOWN: Final = 5
_IGNORED: Final = (signal.SIGINT, signal.SIG_IGN)


def _run(seed: int) -> Outcome:
    return simulate(seed)


def _seeds(first: int, until: float) -> Iterator[int]:
    """Seeds for as long as the time lasts; the pool takes them one by one."""
    for seed in itertools.count(first):
        if time.monotonic() >= until:
            return
        yield seed


def _tell_failure(outcome: Outcome) -> None:
    plan = outcome.plan
    frontend = "grpc" if plan.grpc else "http-connect"
    print(f"seed {plan.seed} failed: {plan.form}, {frontend}, fault {plan.fault}")
    for fault in outcome.faults[:FAULTS_SHOWN]:
        print(f"  {fault}")
    print(f"  next: make simulate SEED={plan.seed}", flush=True)


def run_one(seed: int) -> int:
    outcome = _run(seed)
    print("\n".join(outcome.lines[-SHOWN_LINES:]))
    print(f"seed {seed}: record {outcome.digest}, {outcome.tunnels} tunnels, {outcome.bytes_moved} bytes")
    if outcome.faults:
        _tell_failure(outcome)
    return 1 if outcome.faults else 0


def run_many(first: int, seconds: float) -> int:
    start = time.monotonic()
    kinds: Counter[str] = Counter()
    moved = failed = 0
    cores = len(os.sched_getaffinity(0))
    # Ctrl-C ends the run early, with its summary: it is for this process, not for the workers.
    with suppress(KeyboardInterrupt), multiprocessing.Pool(cores, signal.signal, _IGNORED) as pool:
        # A bounded number at a time: `imap` alone would take all seeds from the generator at once.
        seeds = _seeds(first, start + seconds)
        while batch := list(itertools.islice(seeds, cores * 8)):
            for outcome in pool.imap_unordered(_run, batch):
                kinds[outcome.plan.fault] += 1
                moved += outcome.bytes_moved
                if outcome.faults:
                    failed += 1
                    if failed <= SHOWN_FAILURES:
                        _tell_failure(outcome)
    count, took = kinds.total(), time.monotonic() - start
    told = ", ".join(f"{name} {number}" for name, number in sorted(kinds.items()))
    print(f"seeds {first} to {first + count - 1}: {count} in {took:.0f} s, {count / took:.1f}/s, {moved >> 20} MiB")
    print(f"faults: {told}")
    print(f"failed: {failed}")
    return 1 if failed or not count else 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return run_one(options.seed)
    return run_many(options.first, options.seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
