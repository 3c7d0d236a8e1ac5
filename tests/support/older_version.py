"""An older version of ours, or upstream's, as the scenario `upgrade` wants it: `before-server` and `before-agent`."""

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import peers

COMMIT: Final = "7108d266"
"""Of 2026-11-16, before windows followed the round trip and before servers had workers."""
PROGRAMS: Final = ("server", "agent")
BUILD_SECONDS: Final = 300


def older_programs(repository: Path) -> Path:
    """Return the folder with the programs of that commit; it is built into the cache of the peers if it is missing."""
    folder = peers.cache_root() / f"umbilical-{COMMIT}"
    if all((folder / f"before-{name}").exists() for name in PROGRAMS):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        archive = Path(scratch) / "tree.tar"
        _run("git", "-C", str(repository), "archive", "--output", str(archive), COMMIT)
        _run("tar", "-C", scratch, "-xf", str(archive))
        _run(sys.executable, "-m", "venv", str(folder / "venv"))
        _run(str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", scratch)
    for name in PROGRAMS:
        # A script beside the environment, so that a node gets all of it.
        _write_script(folder / f"before-{name}", folder / "venv/bin" / f"proxy-{name}")
    return folder


def upstream_programs(folder: Path) -> Path:
    for name in PROGRAMS:
        program = peers.binary(f"proxy-{name}")
        assert program is not None, "run `make peers GROUP=konnectivity`"
        (folder / f"before-{name}").symlink_to(program)
    return folder


def _write_script(path: Path, program: Path) -> None:
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(str(program))} "$@"\n')
    path.chmod(0o755)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=BUILD_SECONDS, stdin=subprocess.DEVNULL)
