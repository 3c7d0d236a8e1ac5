"""Print the interpreter that the bench should run on: the fastest of the machine's.

A Python built without profile-guided optimisation, as version managers often leave it, is slower by a tenth at echoes
and more at dials; Debian's is built with it, but its configuration does not say so. So a short loop is timed on each,
and a faster one gets an environment of its own.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
CANDIDATES: Final = (Path("/usr/bin/python3"), Path("/usr/local/bin/python3"))
FOLDER: Final = ROOT / ".venv-bench"
# Attribute access, calls, small integers, slices: what a data path in Python is made of.
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
"""At about the same speed the system's own is taken: it is what people run server and agent on."""
SAMPLE_TIMEOUT_SECONDS: Final = 60
MAKE_TIMEOUT_SECONDS: Final = 1300


def seconds_of(python: Path) -> float | None:
    """How long the sample takes on this interpreter; None where it cannot run."""
    if not python.exists():
        return None
    command = [str(python), "-c", SAMPLE]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SAMPLE_TIMEOUT_SECONDS)
    try:
        return float(ran.stdout) if ran.returncode == 0 else None
    except ValueError:
        return None


def fastest(here: Path, candidates: tuple[Path, ...]) -> Path:
    """The fastest of these that is not clearly slower than `here`, or `here`."""
    best, best_seconds = here, (seconds_of(here) or float("inf")) * WORTH_IT
    for candidate in candidates:
        seconds = seconds_of(candidate)
        if seconds is not None and seconds < best_seconds:
            best, best_seconds = candidate, seconds
    return best


def make_environment(python: Path, folder: Path) -> Path | None:
    """An environment of this interpreter with our package in it; None, with the reason on stderr, where it fails."""
    command = [str(python), str(ROOT / "tools" / "environment.py"), str(folder)]
    made = subprocess.run(command, stdout=sys.stderr, check=False, timeout=MAKE_TIMEOUT_SECONDS)
    return folder / "bin" / "python" if made.returncode == 0 else None


def choose(here: Path, candidates: tuple[Path, ...] = CANDIDATES, folder: Path = FOLDER) -> Path:
    best = fastest(here, candidates)
    if best == here:
        return here
    made = make_environment(best, folder)
    if made is None:
        print(f"bench: {best} is faster, but cannot be used; ours will look slower than it is", file=sys.stderr)
        return here
    return made


if __name__ == "__main__":
    print(choose(Path(sys.executable)))
