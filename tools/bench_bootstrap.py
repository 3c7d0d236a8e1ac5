"""Measures `bootstrap patch` and `bootstrap verify` on a large bootstrap.ign, as whole processes.

No other program does the same, so the reference in the same run is jq, which decodes one file of the same config. The
goal is one second each; a missed goal is reported and does not change the exit code.
"""

import argparse
import base64
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
# The generator of bootstrap configs belongs to the tests.
sys.path.insert(0, str(ROOT))

CONFIG_BYTES: Final = 5_000_000
GOAL_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 120.0
UMBILICAL: Final = Path(sys.executable).parent / "umbilical"
JQ_FILTER: Final = '.storage.files[] | select(.path == "/usr/local/bin/bootkube.sh") | .contents.source'


@dataclass(frozen=True)
class TimedCommand:
    name: str
    command: tuple[str, ...]
    goal_seconds: float | None = GOAL_SECONDS
    """None: a reference without a goal."""
    makes: Path | None = None
    """A file that it writes and does not overwrite; deleted before each run."""


@dataclass(frozen=True)
class CommandTimes:
    row: TimedCommand
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def write_config(folder: Path) -> Path:
    """Write a config of five megabytes like that of a current installer."""
    from tests.support.bootstrap_corpus import bootstrap_config

    path = folder / "bootstrap.ign"
    # No platform: platforms that store the file in a Secret refuse this size.
    path.write_bytes(bootstrap_config("4.18", platform="none", padding_bytes=CONFIG_BYTES * 3 // 4))
    return path


def rows(config: Path) -> list[TimedCommand]:
    result = config.with_name("patched.ign")
    program, plain, patched = str(UMBILICAL), str(config), str(result)
    found = [
        TimedCommand("bootstrap patch", (program, "bootstrap", "patch", plain, "--out", patched), makes=result),
        TimedCommand("bootstrap verify, plain", (program, "bootstrap", "verify", plain, "-o", "json")),
        TimedCommand("bootstrap verify, patched", (program, "bootstrap", "verify", patched, "-o", "json")),
        TimedCommand("umbilical version (start only)", (program, "version"), goal_seconds=None),
    ]
    jq = shutil.which("jq")
    if jq is not None:
        found.append(TimedCommand("jq, one file of it (reference)", (jq, "-r", JQ_FILTER, plain), goal_seconds=None))
    return found


def measure(row: TimedCommand, rounds: int) -> CommandTimes:
    """Run the command `rounds` times.

    Raises:
        RuntimeError: the command failed.
    """
    seconds = []
    for _ in range(rounds):
        if row.makes is not None:
            row.makes.unlink(missing_ok=True)
        began = time.monotonic()
        done = subprocess.run(row.command, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
        seconds.append(time.monotonic() - began)
        if done.returncode != 0:
            raise RuntimeError(f"{row.name}: exit {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
    return CommandTimes(row, tuple(seconds))


def line(result: CommandTimes) -> str:
    spread = f"{min(result.seconds):.3f}..{max(result.seconds):.3f}"
    return f"{result.row.name:<34} {result.median:7.3f} s   {spread:<14} {_goal(result)}".rstrip()


def _goal(result: CommandTimes) -> str:
    goal = result.row.goal_seconds
    return "" if goal is None else f"goal {goal:g} s, {'met' if result.median < goal else 'MISSED'}"


def _decoded_size(config: Path) -> int:
    """Return the size of all decoded files."""
    import json

    files = json.loads(config.read_bytes())["storage"]["files"]
    sources = [file.get("contents", {}).get("source", "") for file in files]
    return sum(len(base64.b64decode(source.partition(",")[2])) for source in sources if ";base64," in source)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure patch and verify of a 5 MB bootstrap.ign.")
    parser.add_argument("--rounds", type=int, default=5, help="number of runs of each; the median is reported (5)")
    parser.add_argument("--smoke", action="store_true", help="only check that every row runs")
    options, _ = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory(prefix="umbilical-bench-") as folder:
        config = write_config(Path(folder))
        shown = f"{config.stat().st_size / 1e6:.1f} MB, {_decoded_size(config) / 1e6:.1f} MB decoded"
        print(f"\nbootstrap.ign of {shown}; whole processes, median of {1 if options.smoke else options.rounds}")
        for row in rows(config):
            print(line(measure(row, 1 if options.smoke else options.rounds)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
