"""What a test started and did not end: threads, child processes, named network namespaces of this worker.

Only what this process made is looked at, so tests of other workers do not count. What a fixture of a wider scope
starts belongs to that fixture, and is known from then on.
"""

import os
import re
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

NAMESPACES: Final = Path("/run/netns")
GRACE_SECONDS: Final = 5.0
"""What was told to end may take a moment: a joined server's last connection, a child between its exit and its wait."""


def alive() -> frozenset[str]:
    """Everything of this worker that runs or is there now, each with a name that tells what it is."""
    return frozenset((*_threads(), *_children(), *_namespaces()))


def outlasting(*known: Iterable[str]) -> list[str]:
    """What is there beside the known and does not go away within the grace."""
    deadline = time.monotonic() + GRACE_SECONDS
    while (left := alive().difference(*known)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return sorted(left)


def without_restarted(left: list[str], wider: set[str]) -> list[str]:
    """Leave out what a test restarted: it took the place of something of a wider fixture that is gone."""
    gone = sorted(wider - alive())
    for name in list(left):
        before = next((one for one in gone if _kind(one) == _kind(name)), None)
        if before is not None:
            gone.remove(before)
            left.remove(name)
            wider.remove(before)
            wider.add(name)
    return left


def _kind(name: str) -> str:
    """The name without the number that tells two of a kind apart."""
    return re.sub(r"\b\d+\b", "", name)


def _threads() -> Iterable[str]:
    return (f"thread {thread.name} ({thread.ident})" for thread in threading.enumerate())


def _children() -> list[str]:
    try:
        # Cheap where there is no child at all, which is nearly always.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []
    own = str(os.getpid())
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (child := _child_of(own, entry)) is not None:
            found.append(f"process {entry.name} ({child})")
    return found


def _child_of(parent: str, entry: Path) -> str | None:
    try:
        name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return None
    return name if rest.split()[1] == parent else None


def _namespaces() -> Iterable[str]:
    """Names are the machine's: only those that carry this worker's process id can be told to be its own."""
    own = f"-{os.getpid()}-"
    try:
        return [f"network namespace {name}" for name in os.listdir(NAMESPACES) if own in name]
    except OSError:
        return []
