"""Coverage-guided fuzzing with atheris: every target of tests/fuzz/targets, from the committed corpus.

    fuzz.py [--seconds 20] [TARGET ...]      all targets together take that long, on all cores
    fuzz.py --reproduce TARGET FILE          one input, without atheris

An input that breaks a target is made small and left in out/fuzz; copied to tests/fuzz/corpus/TARGET, it is a test.
"""

import argparse
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "tests" / "fuzz"
OUT: Final = ROOT / "out" / "fuzz"
FOUND: Final = "found-"
INSTRUMENTED: Final = ["umbilical.wire", "umbilical.konnectivity", "umbilical.tunnel", "hpack"]
LONGEST_INPUT: Final = 1024
"""Longer ones take longer and reach no more: limits of targets are small."""
SLOWEST_INPUT_SECONDS: Final = 10
"""An input that takes longer is a finding, too: most take less than a millisecond."""
MOST_MEMORY_MIB: Final = 1024
START_SECONDS: Final = 120
"""For the start of a target on a busy machine, and for the input that it is at when its time is over."""
SHRINK_SECONDS: Final = 10.0
TRACE_CHARACTERS: Final = 4000
Target = Callable[[bytes], None]


class FuzzRefused(Exception):
    """Fuzzing cannot start; contains the three lines for the user."""


class Outcome(NamedTuple):
    """What one target's run printed and left."""

    target: str
    executions: int
    per_second: int
    new_inputs: int
    edges: int
    found: Path | None
    trace: str

    def row(self) -> str:
        found = self.found.name if self.found is not None else "-"
        counts = f"{self.executions:>12,}{self.per_second:>12,}{self.new_inputs:>12,}{self.edges:>8,}"
        return f"{self.target:<15}{counts}  {found}"


HEAD: Final = f"{'target':<15}{'executions':>12}{'a second':>12}{'new inputs':>12}{'edges':>8}  found"


def targets() -> list[str]:
    return sorted(path.stem for path in (FOLDER / "targets").glob("*.py"))


def load(name: str) -> Target:
    target: Target = importlib.import_module(f"tests.fuzz.targets.{name}").target
    return target


def require_atheris() -> None:
    """Raises FuzzRefused."""
    if importlib.util.find_spec("atheris") is None:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise FuzzRefused(
            "UMB921 fuzzing needs atheris\n"
            f"  why: it is not installed for Python {version}; it has wheels for Python 3.11 to 3.13 on x86-64 only\n"
            "  next: make fuzz PYTHON=/path/to/python3.11, after `make clean` if .venv has another Python"
        )


def run(name: str, seconds: float) -> Outcome:
    """Fuzz one target in a process of its own."""
    found = OUT / name
    shutil.rmtree(found, ignore_errors=True)
    found.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix=f"umbilical-fuzz-{name}-") as scratch:
        corpus = Path(scratch) / "corpus"
        shutil.copytree(FOLDER / "corpus" / name, corpus)
        command = [sys.executable, __file__, "--child", name, *_options(found, seconds), str(corpus)]
        done = subprocess.run(
            command,
            cwd=scratch,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds + START_SECONDS,
            check=False,
        )
    output = done.stdout.decode("utf-8", "replace")
    left = sorted(found.iterdir())
    if done.returncode != 0 and not left:
        why = output.strip()[-TRACE_CHARACTERS:]
        raise FuzzRefused(f"UMB921 fuzzing of {name} did not start\n  why: {why}\n  next: make clean fuzz")
    return outcome(name, output, left[0] if left else None)


def _options(found: Path, seconds: float) -> Iterator[str]:
    """Return libFuzzer's options; `-seed` makes the gate's runs alike, as hypothesis does there."""
    yield f"-artifact_prefix={found / FOUND}"
    yield f"-max_total_time={max(round(seconds), 1)}"
    yield f"-max_len={LONGEST_INPUT}"
    yield f"-timeout={SLOWEST_INPUT_SECONDS}"
    yield f"-rss_limit_mb={MOST_MEMORY_MIB}"
    yield "-print_final_stats=1"
    if os.environ.get("CI"):
        yield "-seed=1"


def outcome(name: str, output: str, found: Path | None) -> Outcome:
    """Read what libFuzzer printed."""
    executions = _largest(r"^stat::number_of_executed_units:\s+(\d+)", output)
    per_second = _largest(r"^stat::average_exec_per_sec:\s+(\d+)", output)
    new, edges = output.count("\tNEW "), _largest(r"\bcov: (\d+)", output)
    trace = output[max(output.rfind("Traceback"), 0) :].partition("\nMS: ")[0].strip()
    return Outcome(name, executions, per_second, new, edges, found, trace[-TRACE_CHARACTERS:])


def _largest(pattern: str, output: str) -> int:
    return max([int(number) for number in re.findall(pattern, output, re.MULTILINE)], default=0)


def child(name: str, options: Sequence[str]) -> None:
    """Hand the target to libFuzzer, which ends the process."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=INSTRUMENTED):
        target = load(name)
    atheris.Setup([sys.argv[0], *options], target)
    atheris.Fuzz()


def shrink(target: Target, octets: bytes, seconds: float = SHRINK_SECONDS) -> bytes:
    """Leave out pieces, halves first, as long as the target fails in the same way."""
    fault = failure(target, octets)
    end = time.monotonic() + seconds
    size = max(len(octets) // 2, 1)
    while size and fault:
        before = octets
        for at in range(len(octets), -1, -size):
            shorter = octets[:at] + octets[at + size :]
            if time.monotonic() > end:
                return octets
            if len(shorter) < len(octets) and failure(target, shorter) == fault:
                octets = shorter
        size = size if octets != before else size // 2
    return octets


def failure(target: Target, octets: bytes) -> str:
    """Return where and by what a target fails; empty if it does not."""
    try:
        target(octets)
    except Exception as error:
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        return f"{type(error).__name__} in line {last.tb_lineno if last is not None else 0}"
    return ""


def report(found: Outcome) -> str:
    assert found.found is not None
    small = shrink(load(found.target), found.found.read_bytes())
    found.found.write_bytes(small)
    shown = found.found.relative_to(ROOT)
    return (
        "\n"
        f"UMB922 {found.target} fails with an input of {len(small)} bytes: {shown}\n"
        f"  why: {found.trace}\n"
        f"  next: {os.path.relpath(sys.executable, ROOT)} tools/fuzz.py --reproduce {found.target} {shown}; "
        f"repair it, and copy the input to tests/fuzz/corpus/{found.target}/"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the parsers and a server session with atheris.")
    parser.add_argument("targets", nargs="*", help="targets to run; default: all")
    parser.add_argument("--seconds", type=float, default=20.0, help="time for all targets together; default: 20")
    parser.add_argument("--reproduce", nargs=2, metavar=("TARGET", "FILE"), help="run one input, without atheris")
    options = parser.parse_args()
    if options.reproduce:
        load(options.reproduce[0])(Path(options.reproduce[1]).read_bytes())
        return 0
    try:
        require_atheris()
        return fuzz(options.targets or targets(), options.seconds)
    except FuzzRefused as error:
        print(error, file=sys.stderr)
        return 4


def fuzz(names: Sequence[str], seconds: float) -> int:
    """Run the targets, as many at once as there are cores. Raises FuzzRefused."""
    cores = len(os.sched_getaffinity(0))
    print(HEAD, flush=True)
    broken = []
    with ThreadPoolExecutor(cores) as pool:
        for each in pool.map(lambda name: run(name, seconds * cores / len(names)), names):
            print(each.row(), flush=True)
            broken += [each] if each.found is not None else []
    for each in broken:
        print(report(each), file=sys.stderr, flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3:])
    sys.exit(main())
