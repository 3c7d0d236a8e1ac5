"""How long `bootstrap patch` and `bootstrap verify` take on a large bootstrap.ign, as whole processes.

No other program does the same job, so the yardstick in the same run is what people do by hand today: jq, which
decodes one file of the same config. The goal is a second each; it is said in the report, never an exit code.
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
# The corpus of bootstrap configs belongs to the tests; there is no second generator.
sys.path.insert(0, str(ROOT))

CONFIG_BYTES: Final = 5_000_000
GOAL_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 120.0
UMBILICAL: Final = Path(sys.executable).parent / "umbilical"
JQ_FILTER: Final = '.storage.files[] | select(.path == "/usr/local/bin/bootkube.sh") | .contents.source'


@dataclass(frozen=True)
class Row:
    name: str
    command: tuple[str, ...]
    goal_seconds: float | None = GOAL_SECONDS
    """None: a yardstick."""
    makes: Path | None = None
    """What it writes and would not overwrite; taken away before each run."""


@dataclass(frozen=True)
class Result:
    row: Row
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def write_config(folder: Path) -> Path:
    """Write a config of five megabytes as an installer of a current release would."""
    from tests.support.bootstrap_corpus import bootstrap_config

    path = folder / "bootstrap.ign"
    # No platform: those that carry the file in a Secret refuse one of this size, as they should.
    path.write_bytes(bootstrap_config("4.18", platform="none", padding_bytes=CONFIG_BYTES * 3 // 4))
    return path


def rows(config: Path) -> list[Row]:
    result = config.with_name("patched.ign")
    program, plain, patched = str(UMBILICAL), str(config), str(result)
    found = [
        Row("bootstrap patch", (program, "bootstrap", "patch", plain, "--out", patched), makes=result),
        Row("bootstrap verify, plain", (program, "bootstrap", "verify", plain, "-o", "json")),
        Row("bootstrap verify, patched", (program, "bootstrap", "verify", patched, "-o", "json")),
        Row("umbilical version (start alone)", (program, "version"), goal_seconds=None),
    ]
    jq = shutil.which("jq")
    if jq is not None:
        found.append(Row("jq, one file of it (yardstick)", (jq, "-r", JQ_FILTER, plain), goal_seconds=None))
    return found


def measure(row: Row, rounds: int) -> Result:
    """Run the command that often.

    Raises:
        RuntimeError: it failed, so its time means nothing.
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
    return Result(row, tuple(seconds))


def line(result: Result) -> str:
    spread = f"{min(result.seconds):.3f}..{max(result.seconds):.3f}"
    return f"{result.row.name:<34} {result.median:7.3f} s   {spread:<14} {_goal(result)}".rstrip()


def _goal(result: Result) -> str:
    goal = result.row.goal_seconds
    return "" if goal is None else f"goal {goal:g} s, {'kept' if result.median < goal else 'MISSED'}"


def _decoded_size(config: Path) -> int:
    """How many bytes the files hold once decoded: what a reader of the report wants to know beside the size."""
    import json

    files = json.loads(config.read_bytes())["storage"]["files"]
    sources = [file.get("contents", {}).get("source", "") for file in files]
    return sum(len(base64.b64decode(source.partition(",")[2])) for source in sources if ";base64," in source)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Patch and verify of a 5 MB bootstrap.ign.")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each; the median counts (5)")
    parser.add_argument("--smoke", action="store_true", help="only show that every row runs")
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
