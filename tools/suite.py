"""Run tests on all cores, then those that must be alone in a second call without workers.

    suite.py MARKS [pytest's arguments]

MARKS is an expression for pytest's `-m`. The second call reads only the files that have such tests. A call that selects
nothing passes as long as the other selects something.
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
    """One for each core that this process may use; for real programs, which make tests wait, one more."""
    return len(os.sched_getaffinity(0)) + marks.startswith("real")


def commands(marks: str, arguments: Sequence[str], tree: Path) -> list[list[str]]:
    pytest = [sys.executable, "-m", "pytest"]
    # A file stays on one worker: its tests share fixtures, and some tell one story. Files begin in conftest's order.
    spread = ["-n", str(workers(marks)), "--dist", "loadfile", "--no-loadscope-reorder"]
    beside = [*spread, "-m", f"({marks}) and not alone"]
    alone = ["-m", f"({marks}) and alone"]
    if any((tree / argument.partition("::")[0]).exists() for argument in arguments):
        return [[*pytest, *beside, *arguments], [*pytest, *alone, *arguments]]
    files = [str(path) for path in _files_with_lonely_tests(tree, arguments)]
    return [[*pytest, *beside, *arguments], *([[*pytest, *alone, *arguments, *files]] if files else [])]


def _files_with_lonely_tests(tree: Path, arguments: Sequence[str]) -> list[Path]:
    """To collect the whole suite for a handful of tests takes longer than most of them."""
    # pytest itself ignores no file that it is given by name.
    ignored = [tree / argument.removeprefix(IGNORE) for argument in arguments if argument.startswith(IGNORE)]
    found = (path for path in sorted(tree.glob("tests/**/test_*.py")) if LONELY in path.read_text())
    return [path for path in found if not any(path.is_relative_to(place) for place in ignored)]


def verdict(statuses: Sequence[int]) -> int:
    """The first failure counts; nothing selected by either call is a failure too."""
    failed = [status for status in statuses if status not in (0, NOTHING_SELECTED)]
    if failed:
        return failed[0]
    return NOTHING_SELECTED if all(status == NOTHING_SELECTED for status in statuses) else 0


def run(marks: str, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> int:
    """Run both calls, the second also where the first failed: one run names everything that is broken."""
    calls = commands(marks, arguments, cwd)
    return verdict([subprocess.run(call, cwd=cwd, env=environment, check=False).returncode for call in calls])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:], Path.cwd(), os.environ))
