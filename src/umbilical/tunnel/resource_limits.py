"""How much of the machine this process may use: memory and cores, or less where a cgroup limits them."""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
CGROUPS: Final = Path("/sys/fs/cgroup")
MOST_WORKERS: Final = 256
"""More cores than a server has use for; each pair of workers has two connections."""


def parse_workers(text: str) -> int:
    """Read `--workers`. Raises ValueError."""
    if text == "auto":
        return min(usable_cores(), MOST_WORKERS)
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 5 and 1 <= int(text) <= MOST_WORKERS):
        raise ValueError(f"must be auto or a number from 1 to {MOST_WORKERS}, not {text!r}")
    return int(text)


def usable_cores(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """The cores that the scheduler may give to this process, but no more than the quota of its cgroup pays for."""
    cores = len(os.sched_getaffinity(0))
    return int(max(1, min([cores, *map(_quota, _limit_files(proc, cgroups, "cpu.max"))])))


def memory_limit(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Return bytes; 0 if nothing tells."""
    files = _limit_files(proc, cgroups, "memory.max", ("memory", "memory.limit_in_bytes"))
    limits = [_machine_memory(proc), *map(_limit, files)]
    return min((limit for limit in limits if limit > 0), default=0)


def _machine_memory(proc: Path) -> int:
    for line in _read(proc / "meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _limit_files(proc: Path, cgroups: Path, name: str, old: tuple[str, str] | None = None) -> Iterator[Path]:
    """Files of our own cgroup and of all above it, which limit it too. In a container it may be shown as the root.

    `old`: the controller of cgroup version 1, and the name of its file.
    """
    for line in _read(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, file = cgroups, name
        elif old is not None and old[0] in controllers.split(","):
            root, file = cgroups / old[0], old[1]
        else:
            continue
        place = root / path.lstrip("/")
        yield from (folder / file for folder in (place, *place.parents) if folder.is_relative_to(root))


def _limit(file: Path) -> int:
    """`max`, and the huge number of cgroup v1, are no limit."""
    text = _read(file).strip()
    return int(text) if text.isdigit() else 0


def _quota(file: Path) -> float:
    """Cores that a quota pays for, rounded up; infinite without one ("max", or no file)."""
    try:
        quota, period = _read(file).split()
        return math.ceil(int(quota) / int(period))
    except (ValueError, ZeroDivisionError):
        return math.inf


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
