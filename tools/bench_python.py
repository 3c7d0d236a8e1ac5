"""Print the interpreter that the bench should run on: one built with optimisation, if the machine has one.

A Python built without PGO, as version managers often leave it, is slower by a tenth at echoes and a quarter at dials;
Debian's is built with it. The bench then gets an environment of its own on that one.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
CANDIDATES: Final = (Path("/usr/bin/python3"), Path("/usr/local/bin/python3"))
FOLDER: Final = ROOT / ".venv-bench"
ASK: Final = (
    "import sys, sysconfig; sys.exit(sys.version_info < (3, 11) or "
    "'--enable-optimizations' not in str(sysconfig.get_config_var('CONFIG_ARGS')))"
)
MAKE_TIMEOUT_SECONDS: Final = 1300


def is_optimised(arguments: object) -> bool:
    return "--enable-optimizations" in str(arguments)


def optimised(candidates: tuple[Path, ...]) -> Path | None:
    """The first of these that is there, new enough and built with PGO."""
    for candidate in candidates:
        if candidate.exists() and subprocess.run([candidate, "-c", ASK], check=False, timeout=60).returncode == 0:
            return candidate
    return None


def make_environment(python: Path, folder: Path) -> Path | None:
    """An environment of this interpreter with our package in it; None, with the reason on stderr, where it fails."""
    command = [str(python), str(ROOT / "tools" / "environment.py"), str(folder)]
    made = subprocess.run(command, stdout=sys.stderr, check=False, timeout=MAKE_TIMEOUT_SECONDS)
    return folder / "bin" / "python" if made.returncode == 0 else None


def choose(candidates: tuple[Path, ...] = CANDIDATES, folder: Path = FOLDER) -> Path:
    here = Path(sys.executable)
    if is_optimised(sysconfig.get_config_var("CONFIG_ARGS")):
        return here
    better = optimised(candidates)
    made = make_environment(better, folder) if better is not None else None
    if made is None:
        print("bench: no optimised Python 3.11 or newer here; ours will look slower than it is", file=sys.stderr)
        return here
    return made


if __name__ == "__main__":
    print(choose())
