"""Run one systemd unit without systemd, with what a bootstrap node's services use: condition, directory, environment,
commands and restarts. Drop-ins are read after the unit, in order, as in systemd.
"""

import itertools
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

UNITS: Final = "/etc/systemd/system"
MAX_RESTARTS: Final = 20
STOP_POLL_SECONDS: Final = 0.2
_UNITS_OF_TIME: Final = {"ms": 0.001, "s": 1.0, "sec": 1.0, "min": 60.0, "": 1.0}


@dataclass
class UnitService:
    """The supported settings of a unit."""

    commands: list[list[str]] = field(default_factory=list)
    """ExecStartPre, then ExecStart."""
    conditions: list[str] = field(default_factory=list)
    """Paths that must exist; with ! in front, paths that must not."""
    directory: str = "/"
    environment: dict[str, str] = field(default_factory=dict)
    restarts_on_failure: bool = False
    restarts_always: bool = False
    """Whether it restarts after any exit code, without a limit."""
    restart_seconds: float = 0.1


def read_service(texts: Sequence[str]) -> UnitService:
    """Read a unit and its drop-ins; unknown settings are ignored, as in systemd."""
    service = UnitService()
    before: list[list[str]] = []
    for key, value in _settings(texts):
        match key:
            case "ExecStartPre":
                before.append(shlex.split(value))
            case "ExecStart":
                # An empty value resets the list: drop-ins use it to replace a command.
                service.commands = [*service.commands, shlex.split(value)] if value else []
            case "ConditionPathExists":
                service.conditions.append(value)
            case "WorkingDirectory":
                service.directory = value
            case "Environment":
                service.environment |= dict(word.partition("=")[::2] for word in shlex.split(value))
            case "Restart":
                service.restarts_on_failure, service.restarts_always = value == "on-failure", value == "always"
            case "RestartSec":
                service.restart_seconds = seconds(value)
    service.commands = [*before, *service.commands]
    return service


def seconds(text: str) -> float:
    """Read a systemd time span: `5s`, `500ms`, `2min` or a number."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz").rstrip()
    return float(digits) * _UNITS_OF_TIME[text[len(digits) :].strip()]


def _settings(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        for line in text.replace("\\\n", " ").splitlines():
            key, equals, value = line.strip().partition("=")
            if equals and not line.lstrip().startswith(("#", ";", "[")):
                yield key.strip(), value.strip()


def read_unit(name: str, folder: Path) -> UnitService:
    drop_ins = sorted((folder / f"{name}.d").glob("*.conf"))
    return read_service([path.read_text() for path in (folder / name, *drop_ins)])


class UnitRunner:
    """Runs a service until it succeeds, its restarts are used up, or `stop` is called."""

    def __init__(self, service: UnitService, max_restarts: int = MAX_RESTARTS) -> None:
        self._service = service
        self._max_restarts = max_restarts
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def run(self) -> int:
        if not all(map(_holds, self._service.conditions)):
            _say(f"not started: {' '.join(self._service.conditions)}")
            return 0
        for attempt in itertools.count():
            status = self._run_once()
            _say(f"ended with {status}")
            if not self._starts_again(status, attempt) or not self._pause():
                break
        return status

    def _starts_again(self, status: int, attempt: int) -> bool:
        if self._is_stopped:
            return False
        is_worth_it = self._service.restarts_on_failure and status != 0 and attempt < self._max_restarts
        return self._service.restarts_always or is_worth_it

    def _pause(self) -> bool:
        """Wait until the next start; return False after `stop`. It polls: a signal handler must not take a lock."""
        end = time.monotonic() + self._service.restart_seconds
        while not self._is_stopped and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, STOP_POLL_SECONDS))
        return not self._is_stopped

    def stop(self, number: int, frame: FrameType | None) -> None:
        self._is_stopped = True
        if self._process is not None:
            self._process.send_signal(number)

    def _run_once(self) -> int:
        environment = {**os.environ, **self._service.environment}
        status = 0
        for command in self._service.commands:
            with subprocess.Popen(command, cwd=self._service.directory, env=environment) as process:
                self._process = process
                if self._is_stopped:
                    # `stop` was called before there was a process.
                    process.terminate()
                status = process.wait()
            if status != 0 or self._is_stopped:
                break
        return status


def _holds(condition: str) -> bool:
    path = condition.removeprefix("!")
    return os.path.exists(path) != condition.startswith("!")


def _say(text: str) -> None:
    print(f"unit: {text}", flush=True)


def main() -> int:
    """Run the unit of this name: UNIT [DIRECTORY]."""
    name, *folder = sys.argv[1:]
    runner = UnitRunner(read_unit(name, Path(folder[0] if folder else UNITS)))
    signal.signal(signal.SIGTERM, runner.stop)
    status = runner.run()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
