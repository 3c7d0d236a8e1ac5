"""Threads, child processes and named network namespaces that a test leaves behind.

Only those of this process count, not those of other workers. What a fixture of a wider scope starts belongs to that
fixture.
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
"""Time to end for what was already stopped: the last connection of a server, a child before its wait."""


def alive() -> frozenset[str]:
    """Return all threads, children and namespaces of this worker, each by a descriptive name."""
    return frozenset((*_threads(), *_children(), *_namespaces()))


def network() -> str:
    """Return the network namespace of this thread."""
    return os.readlink("/proc/thread-self/ns/net")


def outlasting(before: Iterable[str], wider: set[str]) -> list[str]:
    """Return what remains after the grace time and was neither there before nor started by a wider fixture.

    A test may restart something of a wider fixture: the new one then replaces the old one.
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
    """Map each new name to a name of the same kind that is gone."""
    found = {}
    for name in sorted(new):
        before = next((one for one in gone if _kind(one) == _kind(name)), None)
        if before is not None:
            gone.remove(before)
            found[name] = before
    return found


def _kind(name: str) -> str:
    """The name without numbers."""
    return re.sub(r"\b\d+\b", "", name)


def _threads() -> Iterable[str]:
    return (f"thread {thread.name} ({thread.ident})" for thread in threading.enumerate())


def _children() -> list[str]:
    try:
        # Fast if there is no child, which is the usual case.
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
    """Names are global on the machine: those of this worker contain its process id."""
    own = f"-{os.getpid()}-"
    try:
        return [f"network namespace {name}" for name in os.listdir(NAMESPACES) if own in name]
    except OSError:
        return []
