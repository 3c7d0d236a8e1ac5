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


def network() -> str:
    """Name the network namespace that this thread is in."""
    return os.readlink("/proc/thread-self/ns/net")


def outlasting(before: Iterable[str], wider: set[str]) -> list[str]:
    """What is there beside what was before and what wider fixtures started, and does not go away within the grace.

    A test may restart what a wider fixture started: the new one takes the place of the old among the fixture's.
    """
    deadline = time.monotonic() + GRACE_SECONDS
    while True:
        now = alive()
        replaced = _replaced(now.difference(before, wider), sorted(wider - now))
        left = now.difference(before, wider, replaced)
        if not left or time.monotonic() > deadline:
            wider.difference_update(replaced.values())
            wider.update(replaced)
            return sorted(left)
        time.sleep(0.02)


def _replaced(new: Iterable[str], gone: list[str]) -> dict[str, str]:
    """The new ones that are each of the kind of one that is gone, with that one."""
    found = {}
    for name in sorted(new):
        before = next((one for one in gone if _kind(one) == _kind(name)), None)
        if before is not None:
            gone.remove(before)
            found[name] = before
    return found


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
