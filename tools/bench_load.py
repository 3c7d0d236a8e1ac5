"""Runs the compiled load generator: for one measurement, or with tunnels that stay open."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from bench_rows import BenchRow

# The generator has its own limits of 60 s for opening and 20 s for stalls; this is for one that hangs.
GRACE_SECONDS: Final = 90.0


class LoadFailed(Exception):
    """The generator failed or reported errors."""


class Generator:
    """Runs `umbilical-load`, and always ends it. An entrance is the flags for connecting to a tunnel."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def measure(self, row: BenchRow, entrance: Sequence[str], seconds: float) -> dict[str, float]:
        """Load the tunnel for `seconds` and return the generator's numbers.

        Raises:
            LoadFailed: the generator or an operation failed.
        """
        flags = [*entrance, f"--test={row.test}", f"--connections={row.connections}", f"--seconds={seconds}"]
        with self._start(flags) as running:
            return _numbers(running.finish(seconds + GRACE_SECONDS))

    def rest(self, entrance: Sequence[str], tunnels: int) -> "Running":
        """Open tunnels that each echo once and are then idle until the block ends."""
        return self._start([*entrance, "--test=idle", f"--connections={tunnels}"])

    def hold(self, entrance: Sequence[str], test: str, connections: int, seconds: float) -> "Running":
        """Open tunnels that stay for several windows, each started by `Running.window`."""
        return self._start(
            [*entrance, "--hold", f"--test={test}", f"--connections={connections}", f"--seconds={seconds}"]
        )

    def _start(self, flags: list[str]) -> "Running":
        return Running([str(self._program), *flags])


class Running:
    """One generator process; leaving the block ends it."""

    def __init__(self, command: list[str]) -> None:
        pipe = subprocess.PIPE
        # Its own session: Ctrl-C in the terminal only reaches the benchmark, which then ends it.
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

    @property
    def pid(self) -> int:
        return self._process.pid

    def finish(self, timeout_seconds: float) -> str:
        """Wait for the end and return the output."""
        try:
            output, complaint = self._process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise LoadFailed(f"the generator did not end within {timeout_seconds:g} s") from error
        if self._process.returncode != 0:
            raise LoadFailed(complaint.strip() or f"the generator exited with {self._process.returncode}")
        return output

    def wait_opened(self, tunnels: int) -> None:
        """Wait for the line that reports all tunnels open. On failure the generator exits."""
        line = self.line()
        if json.loads(line) != {"opened": tunnels}:
            raise LoadFailed(f"the generator printed {line.strip()!r} instead of opening {tunnels} tunnels")

    def window(self) -> dict[str, float]:
        """Measure one window of a held test: of exchanges from now on, of transfers since the previous window."""
        self.ask()
        return self.answer()

    def ask(self, text: str = "") -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{text}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self.line()

    def answer(self, *, errors: bool = False) -> dict[str, float]:
        """Return the numbers of the window. Errors fail it, unless the caller counts them."""
        return _numbers(self.line(), errors=errors)

    def line(self) -> str:
        """Return the next line of the output. Raises LoadFailed: the program ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.finish(GRACE_SECONDS)
            raise LoadFailed("the generator exited without output")
        return line


def _numbers(output: str, *, errors: bool = False) -> dict[str, float]:
    result: dict[str, object] = json.loads(output)
    if result["errors"] and not errors:
        raise LoadFailed(f"{result['errors']} errors, the first: {result.get('first_error', 'unknown')}")
    numbers = {name: float(value) for name, value in result.items() if isinstance(value, int | float)}
    each_second = result.get("mb_each_second")
    if isinstance(each_second, list) and len(each_second) >= 3:
        numbers["third_second"] = float(each_second[2])
    return numbers
