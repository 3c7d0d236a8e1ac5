"""How much memory this process may use: the machine's, or less where a cgroup limits it."""

from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
CGROUPS: Final = Path("/sys/fs/cgroup")


def memory_limit(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Return bytes; 0 if nothing tells."""
    limits = [_machine_memory(proc), *(_limit(file) for file in _limit_files(proc, cgroups))]
    return min((limit for limit in limits if limit > 0), default=0)


def _machine_memory(proc: Path) -> int:
    for line in _read(proc / "meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _limit_files(proc: Path, cgroups: Path) -> list[Path]:
    """Those of our own cgroup and of all above it, which limit it too. In a container it may be shown as the root."""
    found = []
    for line in _read(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, name = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        place = root / path.lstrip("/")
        found += [folder / name for folder in (place, *place.parents) if folder.is_relative_to(root)]
    return found


def _limit(file: Path) -> int:
    """`max`, and the huge number of cgroup v1, are no limit."""
    text = _read(file).strip()
    return int(text) if text.isdigit() else 0


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
