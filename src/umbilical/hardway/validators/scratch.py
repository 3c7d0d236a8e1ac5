"""A temporary copy of the artifacts in which validators run, and the search for their programs."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from umbilical.checks.check import Check, Verdict, failed, passed, skipped, warned
from umbilical.hardway.lint.facts import LintFacts, Unreadable
from umbilical.host.files import make_directory, write_file

PROGRAM_SECONDS: Final = 120.0
"""Usually they take milliseconds; the limit is for a busy machine."""

Lookup = Callable[[str], Path | None]
Search = Callable[["ScratchCopy"], list[str]]


@dataclass(frozen=True)
class ProgramResult:
    """Exit status and output of a program."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def lines(self) -> list[str]:
        """All lines that it printed, stderr first."""
        text = (self.stderr + b"\n" + self.stdout).decode(errors="replace")
        return [line.strip() for line in text.splitlines() if line.strip()]


@dataclass(frozen=True)
class ScratchCopy:
    facts: LintFacts
    folder: Path
    """Holds the artifacts by path. Keys are among them, so it has mode 0700 and is deleted at the end."""
    lookup: Lookup

    def program(self, name: str) -> str:
        found = self.lookup(name)
        assert found is not None, f"{name} was not searched before use"
        return str(found)

    def file(self, path: str) -> Path:
        return self.folder / path

    def run(
        self, name: str, *words: str | Path, stdin: bytes | None = None, environment: Mapping[str, str] | None = None
    ) -> ProgramResult:
        command = [self.program(name), *map(str, words)]
        done = subprocess.run(
            command, input=stdin, capture_output=True, env=environment, timeout=PROGRAM_SECONDS, check=False
        )
        return ProgramResult(done.returncode, done.stdout, done.stderr)


def on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None


@contextmanager
def open_scratch(facts: LintFacts, lookup: Lookup = on_path) -> Iterator[ScratchCopy]:
    with tempfile.TemporaryDirectory(prefix="umbilical-validators-") as name:
        folder = Path(name)
        for asset in facts.assets.values():
            place = folder / asset.path
            make_directory(place.parent)
            write_file(place, asset.content)
        yield ScratchCopy(facts, folder, lookup)


def validator(
    identifier: str, title: str, why: str, fix: str, search: Search, *programs: str, is_advice: bool = False
) -> Check[ScratchCopy]:
    """Make a check that passes if `search` finds no fault, and is skipped if one of its programs is missing."""

    def validate(scratch: ScratchCopy) -> Verdict:
        missing = [name for name in programs if scratch.lookup(name) is None]
        if missing:
            return skipped(f"program not found: {', '.join(missing)}")
        try:
            faults = search(scratch)
        except (Unreadable, OSError) as error:
            faults = [str(error)]
        except subprocess.TimeoutExpired as error:
            faults = [f"{Path(error.cmd[0]).name} did not finish within {error.timeout:g} s"]
        if not faults:
            return passed()
        return warned("; ".join(faults)) if is_advice else failed("; ".join(faults))

    return Check(identifier, title, why, fix, validate)
