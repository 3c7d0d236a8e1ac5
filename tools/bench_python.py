"""Print the interpreter for the benchmark: the fastest of this machine.

A Python built without profile-guided optimisation, as often by version managers, is slower by a tenth at echoes and by
more at dials. Debian's is built with it, but its configuration does not show it. So a short loop is timed on each
interpreter, and a faster one gets its own environment.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
CANDIDATES: Final = (Path("/usr/bin/python3"), Path("/usr/local/bin/python3"))
FOLDER: Final = ROOT / ".venv-bench"
# Attribute access, calls, small integers, slices: typical of a data path in Python.
SAMPLE: Final = """
import sys, time
if sys.version_info < (3, 11): sys.exit(1)
class Box:
    def __init__(self): self.count = 0
    def add(self, view, step): self.count += len(view[step & 63:]) & 7; return self.count
def run():
    box, view = Box(), memoryview(bytearray(128))
    start = time.perf_counter()
    for step in range(100_000): box.add(view, step)
    return time.perf_counter() - start
print(min(run() for _ in range(15)))
"""
WORTH_IT: Final = 1.05
"""At about the same speed the system's own is used, as for servers and agents in production."""
SAMPLE_TIMEOUT_SECONDS: Final = 60
MAKE_TIMEOUT_SECONDS: Final = 1300


def seconds_of(python: Path) -> float | None:
    """Return the time of the sample on this interpreter; None if it does not run."""
    if not python.exists():
        return None
    command = [str(python), "-c", SAMPLE]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SAMPLE_TIMEOUT_SECONDS)
    try:
        return float(ran.stdout) if ran.returncode == 0 else None
    except ValueError:
        return None


def fastest(here: Path, candidates: tuple[Path, ...]) -> Path:
    """Return the fastest interpreter; a candidate may be slightly slower than `here`."""
    best, best_seconds = here, (seconds_of(here) or float("inf")) * WORTH_IT
    for candidate in candidates:
        seconds = seconds_of(candidate)
        if seconds is not None and seconds < best_seconds:
            best, best_seconds = candidate, seconds
    return best


def make_environment(python: Path, folder: Path) -> Path | None:
    """Create an environment of this interpreter with our package; None if that fails, with the reason on stderr."""
    command = [str(python), str(ROOT / "tools" / "environment.py"), str(folder)]
    made = subprocess.run(command, stdout=sys.stderr, check=False, timeout=MAKE_TIMEOUT_SECONDS)
    return folder / "bin" / "python" if made.returncode == 0 else None


def choose(here: Path, candidates: tuple[Path, ...] = CANDIDATES, folder: Path = FOLDER) -> Path:
    best = fastest(here, candidates)
    if best == here:
        return here
    made = make_environment(best, folder)
    if made is None:
        print(f"bench: {best} is faster, but its environment failed; our numbers will be too low", file=sys.stderr)
        return here
    return made


if __name__ == "__main__":
    print(choose(Path(sys.executable)))
