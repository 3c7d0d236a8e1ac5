"""Our tunnel beside upstream's, in one run: rates, CPU, memory, start. It measures and reports, and judges nothing.

All pairs of a round run side by side and take turns row by row, so that a machine that gets slower or faster
meanwhile does the same to each. docs/benchmarks.md explains the rows.
"""

import argparse
import importlib.util
import os
import platform
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import bench_report
import peers
import umbilical
from bench_load import Generator, LoadFailed
from bench_report import Conditions
from bench_rows import MODES, PAIRS, ROWS, STARTS, Pair, Results, Row, Sample, rate_sample
from bench_tunnel import Pki, Program, Tunnel
from umbilical.host.errors import HostError

# What went through before must have drained from the buffers, or the next row pays for it.
SETTLE_SECONDS: Final = 0.2
INTERRUPTED: Final = 130
REAP_SECONDS: Final = 5.0
OUR_PROGRAMS: Final = Path(sys.executable).parent
BUILD_INFO_MAGIC: Final = b"\xff Go buildinf:"
TROUBLE: Final = (HostError, LoadFailed, OSError, ValueError)


class BenchError(Exception):
    """The bench cannot begin; carries the three lines that the user sees."""

    def __init__(self, what: str, why: str, remedy: str) -> None:
        super().__init__(f"UMB931 {what}\n  why: {why}\n  next: {remedy}")


@dataclass(frozen=True)
class Plan:
    """What to measure, and how long."""

    pairs: tuple[Pair, ...]
    rows: tuple[Row, ...]
    rounds: int
    seconds: float
    rest_seconds: float
    tunnels: int
    starts: int

    def of(self, kind: str, subject: str) -> list[Row]:
        return [row for row in self.rows if row.kind == kind and row.subject == subject]

    def turn(self, round_number: int) -> tuple[Pair, ...]:
        """Let another pair be the first in each round."""
        first = round_number % len(self.pairs)
        return self.pairs[first:] + self.pairs[:first]


class Bench:
    """Runs the plan. A row that cannot run is noted, and the others go on."""

    def __init__(self, plan: Plan, programs: dict[str, Program], generator: Generator, folder: Path) -> None:
        self.plan = plan
        self.results = Results()
        self._programs = programs
        self._generator = generator
        self._folder = folder
        self._pki = Pki(folder / "pki")
        self._tunnels_started = 0
        self._round = 0

    def run(self) -> None:
        while self._round < self.plan.rounds:
            self._round += 1
            self._measure_starts()
            for mode in MODES:
                self._measure_rates(mode)
            self._measure_memory()

    def _measure_starts(self) -> None:
        rows = [row for row in STARTS if row in self.plan.rows]
        for _ in range(self.plan.starts if rows else 0):
            for pair in self.plan.turn(self._round):
                with self._noting(rows, pair), self._tunnel(pair, MODES[0]) as tunnel:
                    for row in rows:
                        self._add(row, pair, {"value": tunnel.start_milliseconds[row.test]})

    def _measure_rates(self, mode: str) -> None:
        rows = self.plan.of("rate", mode)
        with ExitStack() as stack:
            tunnels = self._fleet(stack, mode, rows)
            for row in rows:
                for tunnel in tunnels:
                    with self._noting([row], tunnel.pair):
                        self._measure_rate(row, tunnel)

    def _measure_rate(self, row: Row, tunnel: Tunnel) -> None:
        if gone := tunnel.ended():
            raise LoadFailed(gone)
        time.sleep(SETTLE_SECONDS)
        before, began = tunnel.cpu(), time.monotonic()
        load = self._generator.measure(row, tunnel.socket, self.plan.seconds)
        spent = tunnel.cpu().since(before)
        self._add(row, tunnel.pair, rate_sample(row, load, spent, time.monotonic() - began))

    def _measure_memory(self) -> None:
        """Rest with all tunnels together: what one process holds does not depend on its neighbours."""
        for mode in MODES:
            with ExitStack() as stack:
                tunnels = self._fleet(stack, mode, self.plan.of("memory", mode))
                idle = self._measure_idle(mode, tunnels)
                self._measure_growth(stack, mode, idle)

    def _measure_idle(self, mode: str, tunnels: list[Tunnel]) -> dict[Tunnel, dict[str, float]]:
        rows = [row for row in self.plan.of("memory", mode) if row.test == "idle"]
        idle = {}
        for tunnel in tunnels:
            with self._noting(rows, tunnel.pair):
                idle[tunnel] = self._resident(tunnel, tunnel.connected_at)
                for row in rows:
                    self._add(row, tunnel.pair, idle[tunnel])
        return idle

    def _measure_growth(self, stack: ExitStack, mode: str, idle: dict[Tunnel, dict[str, float]]) -> None:
        rows = [row for row in self.plan.of("memory", mode) if row.test == "tunnels"]
        opened = self._open_resting(stack, mode, list(idle), rows) if rows else {}
        for tunnel, opened_at in opened.items():
            with self._noting(rows, tunnel.pair):
                loaded = self._resident(tunnel, opened_at)
                growth = {name: loaded[name] - before for name, before in idle[tunnel].items()}
                for row in rows:
                    self._add(row, tunnel.pair, growth)

    def _open_resting(self, stack: ExitStack, mode: str, tunnels: list[Tunnel], rows: list[Row]) -> dict[Tunnel, float]:
        """Open the tunnels that rest, one server after the other, and return when each was through."""
        opened = {}
        for tunnel in tunnels:
            with self._noting(rows, tunnel.pair):
                resting = stack.enter_context(self._generator.rest(mode, tunnel.socket, self.plan.tunnels))
                resting.wait_opened(self.plan.tunnels)
                opened[tunnel] = time.monotonic()
        return opened

    def _resident(self, tunnel: Tunnel, since: float) -> dict[str, float]:
        time.sleep(max(0.0, since + self.plan.rest_seconds - time.monotonic()))
        return tunnel.resident_megabytes()

    def _fleet(self, stack: ExitStack, mode: str, rows: list[Row]) -> list[Tunnel]:
        """Start a tunnel for each pair, if there is anything to measure; those that fail are noted."""
        tunnels = []
        for pair in self.plan.turn(self._round) if rows else ():
            with self._noting(rows, pair):
                tunnels.append(stack.enter_context(self._tunnel(pair, mode)))
        return tunnels

    def _tunnel(self, pair: Pair, mode: str) -> Tunnel:
        self._tunnels_started += 1
        return Tunnel(pair, mode, self._programs, self._pki, self._folder / f"tunnel-{self._tunnels_started}")

    @contextmanager
    def _noting(self, rows: Sequence[Row], pair: Pair) -> Iterator[None]:
        try:
            yield
        except TROUBLE as error:
            why = " ".join(str(error).split())
            self.results.fail(rows, pair, self._round, why)
            _say(f"round {self._round}/{self.plan.rounds}  {pair.name:<14} FAILED: {why}")

    def _add(self, row: Row, pair: Pair, sample: Sample) -> None:
        self.results.add(row, pair, self._round, sample)
        shown = f"{bench_report.number(sample['value'])} {row.unit}"
        _say(f"round {self._round}/{self.plan.rounds}  {pair.name:<14} {row.name:<26} {shown}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def facts(programs: dict[str, Program]) -> dict[str, str]:
    """Name what the numbers hang on."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "ours": _our_form(programs["ours"]),
        "upstream": f"apiserver-network-proxy {peers.groups()['konnectivity'][0].version},"
        f" {go_version(programs['upstream'].server)}, CGO_ENABLED=0, --v=0",
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} cores,"
        f" net.core.wmem_max {Path('/proc/sys/net/core/wmem_max').read_text().strip()}",
    }


def _our_form(program: Program) -> str:
    if {program.server.parent, program.agent.parent} != {OUR_PROGRAMS}:
        return f"in their place: {program.server} and {program.agent}"
    spec = importlib.util.find_spec("umbilical.wire.packets")
    form = "compiled" if spec and str(spec.origin).endswith(".so") else "pure Python"
    return f"Umbilical {umbilical.__version__}, {form}, on {_interpreter()}"


def _interpreter() -> str:
    """Version and compiler; whether it was built with PGO cannot be told for every distribution's."""
    return f"{platform.python_implementation()} {platform.python_version()} ({platform.python_compiler()})"


def go_version(program: Path) -> str:
    """Read from the executable itself which Go built it: the toolchain need not be here any more."""
    content = program.read_bytes()
    place = content.find(BUILD_INFO_MAGIC)
    if place < 0:
        return "not built by Go"
    # Go 1.18 and later: a header of 32 bytes, then the version behind its length in one byte.
    length = content[place + 32]
    return content[place + 33 : place + 33 + length].decode(errors="replace")


def _peer(name: str) -> Path:
    found = peers.binary(name)
    if found is None:
        raise BenchError(f"no program {name}", "it is not in the peers' cache", "run `make bench`, which builds it")
    return found


def _pairs(text: str) -> tuple[Pair, ...]:
    names = text.split(",")
    known = {pair.name: pair for pair in PAIRS}
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"no pair {unknown[0]!r}; there are {', '.join(known)}")
    return tuple(pair for pair in PAIRS if pair.name in names)


def _rows(text: str) -> tuple[Row, ...]:
    try:
        chosen = tuple(row for row in ROWS if re.search(text, row.name))
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error
    if not chosen:
        raise argparse.ArgumentTypeError(f"{text!r} matches none of: {', '.join(row.name for row in ROWS)}")
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Our tunnel beside upstream's, as ratios.")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds; the median counts (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement (2)")
    parser.add_argument("--rows", type=_rows, default=ROWS, help="only rows whose name matches this expression")
    parser.add_argument("--pairs", type=_pairs, default=PAIRS, help="only these, by comma; a name is server-agent")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="one round of 1 s")
    length.add_argument("--smoke", action="store_true", help="only show that every row runs; the numbers mean nothing")
    parser.add_argument(
        "--ours-server", type=Path, default=OUR_PROGRAMS / "proxy-server", help="what to run as our server"
    )
    parser.add_argument(
        "--ours-agent", type=Path, default=OUR_PROGRAMS / "proxy-agent", help="what to run as our agent"
    )
    parser.add_argument("--json", type=Path, help="write everything, each sample included, to this file")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file")
    return parser


def plan_of(options: argparse.Namespace) -> Plan:
    if options.smoke:
        return Plan(options.pairs, options.rows, rounds=1, seconds=0.3, rest_seconds=0.5, tunnels=100, starts=1)
    rounds, seconds = (1, 1.0) if options.quick else (options.rounds, options.seconds)
    return Plan(options.pairs, options.rows, rounds, seconds, rest_seconds=5.0, tunnels=1000, starts=3)


def _prepare_process() -> None:
    """Let SIGTERM and SIGHUP clean up as Ctrl-C does, and let our children hold as many sockets as Go's do."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _kill_leftovers() -> None:
    """End a child that an interrupt hit between its start and its entry in our books."""
    try:
        left = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    for pid in left:
        _reap(int(pid))


def _reap(pid: int) -> None:
    """Wait until a killed child is gone from the kernel's table; whoever asks after us must not find it there."""
    deadline = time.monotonic() + REAP_SECONDS
    with suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)


def _report(results: Results, conditions: Conditions, options: argparse.Namespace) -> None:
    print(bench_report.text(results, conditions), end="", flush=True)
    writers: list[tuple[Path | None, Callable[[Results, Conditions], str]]] = [
        (options.json, bench_report.as_json),
        (options.markdown, bench_report.markdown),
    ]
    for path, form in writers:
        if path is not None:
            path.write_text(form(results, conditions))


def _run(options: argparse.Namespace) -> int:
    plan = plan_of(options)
    programs = {
        "upstream": Program(_peer("proxy-server"), _peer("proxy-agent"), logs_to_file=False),
        "ours": Program(options.ours_server, options.ours_agent, logs_to_file=True),
    }
    conditions = Conditions(facts(programs), plan.rounds, plan.seconds, plan.rest_seconds, plan.tunnels)
    generator = Generator(_peer("umbilical-load"))
    folder = Path(tempfile.mkdtemp(prefix="umbilical-bench-"))
    try:
        bench = Bench(plan, programs, generator, folder)
        code = _run_to_an_end(bench)
        _report(bench.results, conditions, options)
        _clean(folder, keep_logs=bool(bench.results.failures))
    except BaseException:
        _clean(folder, keep_logs=False)
        raise
    return code


def _run_to_an_end(bench: Bench) -> int:
    try:
        bench.run()
    except KeyboardInterrupt:
        _say("interrupted: this is what was measured until then")
        return INTERRUPTED
    finally:
        _kill_leftovers()
    return 1 if bench.results.failures else 0


def _clean(folder: Path, *, keep_logs: bool) -> None:
    """Remove the keys in any case, and the programs' logs unless they are needed to see what went wrong."""
    shutil.rmtree(folder / "pki" if keep_logs else folder, ignore_errors=True)
    if keep_logs:
        _say(f"the logs of the programs are kept in {folder}")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    _prepare_process()
    try:
        return _run(options)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
