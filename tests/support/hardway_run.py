"""The hard way as users run it: commands in processes of their own, which may be killed, and a record that is read."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

COMMAND_SECONDS: Final = 1800.0
POLL_SECONDS: Final = 0.05


class Cluster:
    """One cluster's directory, and `umbilical stage` for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder.parent / f"{folder.name}.log"

    def stage(self, *words: str, seconds: float = COMMAND_SECONDS) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(self._command(*words), capture_output=True, text=True, timeout=seconds, check=False)
        with self.log.open("a") as log:
            log.write(f"$ umbilical stage {' '.join(words)}\n{done.stderr}{done.stdout}-> {done.returncode}\n")
        return done

    def succeed(self, *words: str) -> str:
        done = self.stage(*words)
        assert done.returncode == 0, f"umbilical stage {' '.join(words)} -> {done.returncode}\n{done.stderr[-3000:]}"
        return done.stdout

    def run_until(self, is_time: Callable[[list[dict[str, Any]]], bool], *words: str) -> bool:
        """Begin `stage run` and kill it as soon as the record says that it is time; tell whether it was killed."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(self._command("run", *words), stdout=log, stderr=log)
            deadline = time.monotonic() + COMMAND_SECONDS
            try:
                while process.poll() is None:
                    assert time.monotonic() < deadline, "it neither ended nor came to where it is killed"
                    if is_time(self.events()):
                        process.send_signal(signal.SIGKILL)
                        return True
                    time.sleep(POLL_SECONDS)
                return False
            finally:
                process.kill()
                process.wait()

    def events(self) -> list[dict[str, Any]]:
        """Read the journal; a last line that is being written is left out."""
        try:
            lines = (self.folder / ".umbilical" / "events.jsonl").read_text().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / ".umbilical" / "state.json").read_text())
        return found

    def _command(self, verb: str, *words: str) -> list[str]:
        return [sys.executable, "-m", "umbilical", "stage", verb, "--dir", str(self.folder), *words]


def began(title: str) -> Callable[[list[dict[str, Any]]], bool]:
    """Say that it is time once a step of this title has begun."""
    return lambda events: any(one["event"] == "step-began" and one["title"] == title for one in events)


def reached(number: int) -> Callable[[list[dict[str, Any]]], bool]:
    """Say that it is time once the record has this many lines."""
    return lambda events: len(events) >= number
