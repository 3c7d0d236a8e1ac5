"""Builds the two wheels of this version: a pure one, and a compiled one for this Python and Linux.

Both contain the same sources; the compiled one also contains the data path as machine code. pip prefers the compiled
one where it fits.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import compiled

FORMS: Final = ("pure", "compiled")
BUILD_TIMEOUT_SECONDS: Final = 1800
WHEEL_UMASK: Final = 0o022
_WHAT_IS_LEFT: Final = 12


class WheelRefused(Exception):
    """A wheel failed to build; contains the three lines for the user."""

    def __init__(self, form: str, output: str) -> None:
        lines = [line for line in output.splitlines() if line.strip()][-_WHAT_IS_LEFT:]
        remedy = "make setup; the compiled form needs gcc and Python.h too (Debian: apt-get install gcc python3-dev)"
        why = "\n       ".join(lines) or "pip printed nothing"
        super().__init__(f"UMB915 the {form} wheel was not built\n  why: {why}\n  next: {remedy}")


def build(form: str, out: Path) -> Path:
    """Build one wheel from a scratch copy of the tree, and return its path.

    Raises:
        WheelRefused: with the last lines of the output.
    """
    out.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UMBILICAL_COMPILE")}
    environment["UMBILICAL_COMPILE"] = "1" if form == "compiled" else "0"
    with tempfile.TemporaryDirectory(prefix="umbilical-wheel-") as folder:
        scratch = Path(folder) / "tree"
        compiled.copy_tree(scratch)
        _make_reproducible(scratch, environment)
        made = Path(folder) / "made"
        # Without isolation: uses mypy and setuptools of the environment, and no network.
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "."]
        done = subprocess.run(
            [*command, "--wheel-dir", str(made)],
            cwd=scratch,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_TIMEOUT_SECONDS,
            check=False,
            # setuptools gives its copies the modes that the umask allows, whatever those of the sources are.
            umask=WHEEL_UMASK,
        )
        if done.returncode != 0:
            raise WheelRefused(form, done.stdout)
        (wheel,) = made.glob("*.whl")
        place = out / wheel.name
        place.write_bytes(wheel.read_bytes())
    return place


def _make_reproducible(scratch: Path, environment: dict[str, str]) -> None:
    """Keep the scratch folder's name out of machine code, and this user's umask out of the archive."""
    environment["CFLAGS"] = f"{environment.get('CFLAGS', '')} -ffile-prefix-map={scratch}=.".strip()
    for path in scratch.rglob("*"):
        is_program = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if is_program else 0o644)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build wheels and print their paths.")
    parser.add_argument("--out", type=Path, default=compiled.ROOT / "dist", help="output folder")
    parser.add_argument("--form", choices=(*FORMS, "both"), default="both")
    options = parser.parse_args()
    for form in FORMS if options.form == "both" else (options.form,):
        try:
            print(build(form, options.out), flush=True)
        except WheelRefused as fault:
            print(fault, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
