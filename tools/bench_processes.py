"""CPU and memory from /proc: of one process, of the benchmark, of the whole machine."""

import os
import resource
from pathlib import Path
from typing import Final

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, its threads included; 0 when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    # The program's name is in parentheses and may contain spaces: count fields after it.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"process {pid} has ended")


def memory_megabytes(pid: int) -> dict[str, float]:
    """Return resident MB: all (rss), with shared pages divided among their processes (pss), its own alone (uss)."""
    fields = dict.fromkeys(("Rss", "Pss", "Private_Clean", "Private_Dirty"), 0.0)
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        if name in fields:
            fields[name] = int(rest.split()[0]) * 1024 / 1e6
    return {
        "rss": fields["Rss"],
        "pss": fields["Pss"],
        "uss": fields["Private_Clean"] + fields["Private_Dirty"],
    }


def machine_cpu_seconds() -> float:
    """Return the CPU time of all processes (user, nice, system) and of other guests of the host (steal)."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(int(fields[index]) for index in (1, 2, 3, 8)) / TICKS_PER_SECOND


def bench_cpu_seconds() -> float:
    """Return the CPU time of this process and of its ended generators."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
