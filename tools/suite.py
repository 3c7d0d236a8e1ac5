"""Runs tests on all cores, then in a second call without workers the tests that must run alone.

    suite.py MARKS [pytest's arguments]

MARKS is an expression for pytest's `-m`. The second call only collects files with such tests. A call that selects
no test passes if the other call selects some.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

NOTHING_SELECTED: Final = 5
LONELY: Final = "mark.alone"
IGNORE: Final = "--ignore="


def workers(marks: str) -> int:
    """One per available core, and one more for real programs, because their tests wait a lot."""
    return len(os.sched_getaffinity(0)) + marks.startswith("real")


def commands(marks: str, arguments: Sequence[str], tree: Path) -> list[list[str]]:
    pytest = [sys.executable, "-m", "pytest"]
    # The tests of a file run on one worker: they share fixtures, and some depend on order. conftest orders the files.
    spread = ["-n", str(workers(marks)), "--dist", "loadfile", "--no-loadscope-reorder"]
    beside = [*spread, "-m", f"({marks}) and not alone"]
    alone = ["-m", f"({marks}) and alone"]
    if any((tree / argument.partition("::")[0]).exists() for argument in arguments):
        return [[*pytest, *beside, *arguments], [*pytest, *alone, *arguments]]
    files = [str(path) for path in _files_with_lonely_tests(tree, arguments)]
    return [[*pytest, *beside, *arguments], *([[*pytest, *alone, *arguments, *files]] if files else [])]


def _files_with_lonely_tests(tree: Path, arguments: Sequence[str]) -> list[Path]:
    """Collecting the whole suite for a few tests would take longer than most of them."""
    # pytest does not ignore files that are given by name.
    ignored = [tree / argument.removeprefix(IGNORE) for argument in arguments if argument.startswith(IGNORE)]
    found = (path for path in sorted(tree.glob("tests/**/test_*.py")) if LONELY in path.read_text())
    return [path for path in found if not any(path.is_relative_to(place) for place in ignored)]


def exit_status(statuses: Sequence[int]) -> int:
    """Return the first failure; it is also a failure if no call selects a test."""
    failed = [status for status in statuses if status not in (0, NOTHING_SELECTED)]
    if failed:
        return failed[0]
    return NOTHING_SELECTED if all(status == NOTHING_SELECTED for status in statuses) else 0


def run(marks: str, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> int:
    """Run both calls, the second also after a failure, to report all failures in one run."""
    calls = commands(marks, arguments, cwd)
    return exit_status([subprocess.run(call, cwd=cwd, env=environment, check=False).returncode for call in calls])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:], Path.cwd(), os.environ))
