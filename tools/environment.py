"""Make `.venv` and install one of the extras into it; name the remedy where that cannot work.

`python3 tools/environment.py [FOLDER [EXTRA]]`: `lab` is what `make demo` needs, `dev` (the default) is everything. A
file in the folder says which extra is there: `.ready-lab`, `.ready-dev`. Runs under whatever `python3` there is: the
standard library only, and no syntax that an old one refuses.
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
INCLUDED: Final = {"lab": ("lab",), "dev": ("lab", "dev")}
"""Extra -> the extras that are there once it is installed."""


class EnvironmentRefused(Exception):
    """The environment cannot be made; carries the three lines that the user sees."""

    def __init__(self, code: str, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{code} {what}\n  why: {why}\n  next: {remedy}")


def require_python(version: tuple[int, ...], executable: str) -> None:
    if tuple(version[:2]) < OLDEST:
        raise EnvironmentRefused(
            "UMB912",
            f"Python {version[0]}.{version[1]} is too old",
            f"{executable} runs this; Umbilical needs 3.11 or newer",
            "name a newer one: make setup PYTHON=/path/to/python3.11",
        )


def require_venv(version: tuple[int, ...], available: tuple[bool, ...]) -> None:
    """Debian and Ubuntu ship Python without `ensurepip`: `venv` is there and fails half-way."""
    if not all(available):
        raise EnvironmentRefused(
            "UMB913",
            "this Python cannot make a virtual environment",
            f"the modules `venv` and `ensurepip` of Python {version[0]}.{version[1]} are not installed",
            f"apt-get install python{version[0]}.{version[1]}-venv (or your system's name for it), then again",
        )


def make(folder: Path, extra: str = "dev") -> None:
    """Make the environment, or mend the one that is there; what another extra brought stays.

    Raises:
        EnvironmentRefused: Python is too old or incomplete, or a package could not be installed.
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
    """An environment whose interpreter has been upgraded away, or that has no pip, is made anew."""
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
            f"run it by hand to see all of it: {' '.join(command)}",
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a virtual environment with what Umbilical needs.")
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
