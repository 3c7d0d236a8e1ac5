"""Creates `.venv` and installs one of the extras into it; a failure is printed with a next step.

`python3 tools/environment.py [FOLDER [EXTRA]]`: `lab` is for `make demo`, `dev` (the default) for all but `make fuzz`
and `make lock`, which need `fuzz` and `release`. Files `.ready-EXTRA` in the folder show which extras are installed.
Must run with any `python3`: only the standard library, and no new syntax.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

OLDEST: Final = (3, 11)
ROOT: Final = Path(__file__).resolve().parent.parent
INSTALL_TIMEOUT_SECONDS: Final = 1200
INCLUDED: Final = {
    "lab": ("lab",),
    "dev": ("lab", "dev"),
    "fuzz": ("lab", "dev", "fuzz"),
    "release": ("release",),
}
"""Extra -> the extras that it includes."""


class EnvironmentRefused(Exception):
    """The environment cannot be created; contains the three lines for the user."""

    def __init__(self, code: str, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{code} {what}\n  why: {why}\n  next: {remedy}")


def require_python(version: tuple[int, ...], executable: str) -> None:
    if tuple(version[:2]) < OLDEST:
        raise EnvironmentRefused(
            "UMB912",
            f"Python {version[0]}.{version[1]} is too old",
            f"this is {executable}; Umbilical needs Python 3.11 or newer",
            "use a newer one: make setup PYTHON=/path/to/python3.11",
        )


def require_venv(version: tuple[int, ...], available: tuple[bool, ...]) -> None:
    """Debian and Ubuntu install Python without `ensurepip`, and `venv` then fails half-way."""
    if not all(available):
        raise EnvironmentRefused(
            "UMB913",
            "this Python cannot create a virtual environment",
            f"the modules `venv` and `ensurepip` of Python {version[0]}.{version[1]} are not installed",
            f"apt-get install python{version[0]}.{version[1]}-venv (or your system's package), then run this again",
        )


def make(folder: Path, extra: str = "dev") -> None:
    """Create or repair the environment; packages of other extras stay.

    Raises:
        EnvironmentRefused: Python is too old or incomplete, or a package failed to install.
    """
    require_python(sys.version_info[:2], sys.executable)
    require_venv(
        sys.version_info[:2], tuple(importlib.util.find_spec(name) is not None for name in ("venv", "ensurepip"))
    )
    python = folder / "bin" / "python"
    if not _runs(python):
        shutil.rmtree(folder, ignore_errors=True)
        _step("a virtual environment", [sys.executable, "-m", "venv", str(folder)])
    _step(f"packages ({extra})", [str(python), "-m", "pip", "install", "--quiet", "--editable", f"{ROOT}[{extra}]"])
    for included in INCLUDED[extra]:
        (folder / f".ready-{included}").touch()


def _runs(python: Path) -> bool:
    """False for an environment without pip or with a removed interpreter; it is created again."""
    if not python.exists():
        return False
    command = [str(python), "-c", "import pip, sys; sys.exit(sys.version_info < (3, 11))"]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def _step(what: str, command: list[str]) -> None:
    print(f"setup: {what}", flush=True)
    done = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", timeout=INSTALL_TIMEOUT_SECONDS, check=False
    )
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise EnvironmentRefused(
            "UMB914",
            f"setup failed: {what}",
            lines[-1] if lines else f"{command[0]} exited with {done.returncode}",
            f"run it by hand for the full output: {' '.join(command)}",
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Create a virtual environment with the packages that Umbilical needs.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(".venv"))
    parser.add_argument("extra", nargs="?", choices=sorted(INCLUDED), default="dev")
    options = parser.parse_args()
    try:
        make(options.folder.resolve(), options.extra)
    except EnvironmentRefused as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
