"""The compiled load generator as the bench runs it: one measurement, or many tunnels that rest."""

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final

from bench_rows import Row

# The generator gives up by itself after 60 s of opening and 20 s of stalling; this is for one that does not.
GRACE_SECONDS: Final = 90.0


class LoadFailed(Exception):
    """The generator could not measure, or saw errors."""


class Generator:
    """Runs `umbilical-load`, and ends it in every case."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def measure(self, row: Row, socket: Path, seconds: float) -> dict[str, float]:
        """Load the tunnel for the window and return the generator's numbers.

        Raises:
            LoadFailed: it ended with an error, or an operation failed.
        """
        flags = [f"--mode={row.subject}", f"--test={row.test}", f"--connections={row.connections}"]
        with self._start([*flags, f"--uds={socket}", f"--seconds={seconds}"]) as running:
            return _numbers(running.finish(seconds + GRACE_SECONDS))

    def rest(self, mode: str, socket: Path, tunnels: int) -> "Running":
        """Start to open tunnels that each echo once and then rest until the block ends."""
        return self._start([f"--mode={mode}", "--test=idle", f"--uds={socket}", f"--connections={tunnels}"])

    def _start(self, flags: list[str]) -> "Running":
        return Running([str(self._program), *flags])


class Running:
    """One generator process; leaving the block ends it."""

    def __init__(self, command: list[str]) -> None:
        pipe = subprocess.PIPE
        # A session of its own: Ctrl-C in the terminal reaches the bench alone, which then ends it.
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )

    def __enter__(self) -> "Running":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:
            self._process.kill()

    def finish(self, timeout_seconds: float) -> str:
        """Wait for the end and return what it printed."""
        try:
            output, complaint = self._process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise LoadFailed(f"the generator did not end within {timeout_seconds:g} s") from error
        if self._process.returncode != 0:
            raise LoadFailed(complaint.strip() or f"the generator exited with {self._process.returncode}")
        return output

    def wait_opened(self, tunnels: int) -> None:
        """Wait for the line that says that all tunnels are open; the generator ends by itself if they do not."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.finish(GRACE_SECONDS)
        if json.loads(line or "{}") != {"opened": tunnels}:
            raise LoadFailed(f"the generator said {line.strip()!r} instead of opening {tunnels} tunnels")


def _numbers(output: str) -> dict[str, float]:
    result: dict[str, object] = json.loads(output)
    if result["errors"]:
        raise LoadFailed(f"{result['errors']} errors, the first: {result.get('first_error', 'not told')}")
    return {name: float(value) for name, value in result.items() if isinstance(value, int | float)}
