"""Commands as a user runs them, in this process: what they print, with the exit status already judged."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.fixture_types import Captured, Patch

from umbilical.cli import main


class Told(NamedTuple):
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Told]


def runner(captured: Captured) -> Run:
    """Return a function that runs a command and returns what that one printed."""

    def run(*arguments: object, status: int = 0) -> Told:
        captured.readouterr()
        found = main.run([str(one) for one in arguments])
        told = Told(*captured.readouterr())
        assert found == status, f"exit status {found}, not {status}:\n{told.out}{told.err}"
        return told

    return run


def modules_loaded(script: str) -> set[str]:
    """Name the modules that a fresh Python has loaded after the script."""
    code = f"import sys\n{script}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def stand_in(folder: Path, name: str, script: str, monkeypatch: Patch) -> None:
    """Put a shell script first on PATH under the name of a program."""
    path = folder / "bin" / name
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
