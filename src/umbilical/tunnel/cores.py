"""How many worker processes a server may have: a number, or one for each core that this process may use."""

import math
import os
from pathlib import Path
from typing import Final

MOST_WORKERS: Final = 256
"""More cores than a server has use for; each pair of workers has two connections."""
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")


def parse_workers(text: str) -> int:
    """Read `--workers`. Raises ValueError."""
    if text == "auto":
        return min(usable_cores(), MOST_WORKERS)
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 5 and 1 <= int(text) <= MOST_WORKERS):
        raise ValueError(f"must be auto or a number from 1 to {MOST_WORKERS}, not {text!r}")
    return int(text)


def usable_cores(quota_file: Path = _QUOTA) -> int:
    """The cores that the scheduler may give to this process, but no more than the quota of its cgroup pays for."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = quota_file.read_text(encoding="ascii").split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no limit ("max"), or no cgroup of version 2
        return cores
