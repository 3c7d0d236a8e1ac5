"""Compares our tunnel with upstream's in one run: rates, CPU, memory, start. Missed bars do not fail.

docs/benchmarks.md explains the rows; `bench_run.py` runs them.
"""

import argparse
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import bench_compiled
import bench_far_plot
import bench_haproxy
import bench_plot
import bench_report
import peers
import umbilical
from bench_crowd import CrowdSize
from bench_far import FarPlan
from bench_load import Generator
from bench_rows import LIMIT, PAIRS, ROWS, BenchRow, Pair, Results
from bench_run import Bench, BenchSetup, Plan, say
from bench_tables import Conditions
from bench_tunnel import TunnelPrograms

INTERRUPTED: Final = 130
REAP_SECONDS: Final = 5.0
# The far rows take long, and vary less: the delay is most of their time.
FAR_ROUNDS: Final = 3
ASK_SECONDS: Final = 30
OUR_PROGRAMS: Final = Path(sys.executable).parent
BUILD_INFO_MAGIC: Final = b"\xff Go buildinf:"


class BenchError(Exception):
    """The benchmark cannot start; contains the three lines for the user."""

    def __init__(self, what: str, why: str, remedy: str) -> None:
        super().__init__(f"UMB931 {what}\n  why: {why}\n  next: {remedy}")


def _kernel() -> str:
    """The kernel version without the suffixes of its builder."""
    return ".".join(platform.release().split(".")[:2])


def facts(programs: dict[str, TunnelPrograms], haproxy: Path | None) -> dict[str, str]:
    """Return the facts that the numbers depend on."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "ours": _our_form(programs["ours"]),
        "upstream": f"apiserver-network-proxy {peers.groups()['konnectivity'][0].version},"
        f" {go_version(programs['upstream'].server)}, CGO_ENABLED=0, --v=0",
        "limit": bench_haproxy.version(haproxy) if haproxy else "haproxy is not installed and was skipped",
        "machine": f"{platform.system()} {_kernel()} {platform.machine()}, {os.cpu_count()} cores,"
        f" net.core.wmem_max {Path('/proc/sys/net/core/wmem_max').read_text().strip()}",
    }


def _our_form(program: TunnelPrograms) -> str:
    if {program.server.parent, program.agent.parent} != {OUR_PROGRAMS}:
        return f"replaced by {program.server} and {program.agent}"
    return f"Umbilical {umbilical.__version__}, {form(program)}, on {_interpreter()}"


def form(program: TunnelPrograms) -> str:
    """Return the form that the interpreter of our programs really loads."""
    ask = [sys.executable, "-c", "import umbilical.wire.packets as packets; print(packets.__file__)"]
    environment = {**os.environ, **program.environment}
    told = subprocess.run(ask, env=environment, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    if told.returncode != 0:
        return "of unknown form"
    return "compiled" if told.stdout.strip().endswith(".so") else "pure Python"


def _interpreter() -> str:
    version = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{version} ({platform.python_compiler()}), {interpreter_build(Path('/etc/debian_version').exists())}"


def interpreter_build(on_debian: bool) -> str:
    """Return whether it was built with PGO. Debian's is, but its configuration does not show it."""
    if on_debian and sys.base_prefix == "/usr":
        return "Debian's python3, built with PGO"
    told = "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS"))
    return "built with PGO" if told else "built without PGO"


def go_version(program: Path) -> str:
    """Read the Go version from the executable; the toolchain may not be installed any more."""
    content = program.read_bytes()
    place = content.find(BUILD_INFO_MAGIC)
    if place < 0:
        return "not built by Go"
    # Go 1.18 and later: a header of 32 bytes, one byte of length, then the version.
    length = content[place + 32]
    return content[place + 33 : place + 33 + length].decode(errors="replace")


def _peer(name: str) -> Path:
    found = peers.binary(name)
    if found is None:
        raise BenchError(
            f"the program {name} is missing", "it is not in the peers' cache", "run `make bench`, which builds it"
        )
    return found


def _pairs(text: str) -> tuple[Pair, ...]:
    names = text.split(",")
    known = {pair.name: pair for pair in PAIRS}
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"unknown pair {unknown[0]!r}; the pairs are {', '.join(known)}")
    return tuple(pair for pair in PAIRS if pair.name in names)


def _rows(text: str) -> tuple[BenchRow, ...]:
    try:
        chosen = tuple(row for row in ROWS if re.search(text, row.name))
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from error
    if not chosen:
        raise argparse.ArgumentTypeError(f"{text!r} matches none of: {', '.join(row.name for row in ROWS)}")
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Compare our tunnel with upstream's, as ratios.")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds; the median is reported (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement in seconds (2)")
    parser.add_argument("--rows", type=_rows, default=ROWS, help="regular expression for the names of rows to run")
    parser.add_argument(
        "--pairs",
        type=_pairs,
        default=PAIRS,
        help="pairs to run, separated by commas: server-agent, or haproxy",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="one round of 1 s")
    length.add_argument("--smoke", action="store_true", help="only check that every row runs; ignore the numbers")
    parser.add_argument(
        "--ours-server", type=Path, default=OUR_PROGRAMS / "proxy-server", help="program to run as our server"
    )
    parser.add_argument(
        "--ours-agent", type=Path, default=OUR_PROGRAMS / "proxy-agent", help="program to run as our agent"
    )
    parser.add_argument("--pure", action="store_true", help="run our programs as pure Python; implied by --smoke")
    parser.add_argument("--json", type=Path, help="write all results and samples to this file")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file")
    parser.add_argument("--into", type=Path, help=f"write the tables into this file, after {bench_report.BEGIN}")
    parser.add_argument("--svg", type=Path, help="write a chart of the ratios to this file")
    parser.add_argument("--round-trips-svg", type=Path, help="write a chart of MB/s over round trip to this file")
    return parser


def plan_of(options: argparse.Namespace, *, has_haproxy: bool = True) -> Plan:
    pairs = tuple(pair for pair in options.pairs if has_haproxy or pair != LIMIT)
    rows = tuple(row for row in options.rows if row.kind != "crowd" or _is_our_own(options))
    if options.smoke:
        return Plan(
            pairs,
            rows,
            rounds=1,
            seconds=0.1,
            rest_seconds=0.2,
            stuck_seconds=0.5,
            tunnels=100,
            starts=1,
            crowd=CrowdSize(agents=8, tunnels=200, processes=2),
            far=FarPlan(1, ramp=False, fill_seconds=0.1, slow_seconds=0.4, stall_seconds=0.1, divisor=20),
        )
    rounds, seconds = (1, 1.0) if options.quick else (options.rounds, options.seconds)
    crowd = CrowdSize(agents=200, tunnels=10_000, processes=4)
    far = FarPlan(min(rounds, FAR_ROUNDS))
    return Plan(
        pairs, rows, rounds, seconds, rest_seconds=5.0, stuck_seconds=5.0, tunnels=1000, starts=4, crowd=crowd, far=far
    )


def _is_our_own(options: argparse.Namespace) -> bool:
    """Whether the programs of this tree run; only they can run many agents in one process."""
    return {options.ours_server.parent, options.ours_agent.parent} == {OUR_PROGRAMS}


def _prepare_process() -> None:
    """Clean up at SIGTERM and SIGHUP as at Ctrl-C; allow our children as many sockets as Go's programs."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _kill_leftovers() -> None:
    """Kill children that an interrupt hit between their start and their registration."""
    try:
        left = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    for pid in left:
        _reap(int(pid))


def _reap(pid: int) -> None:
    """Wait until a killed child has left the kernel's table of processes."""
    deadline = time.monotonic() + REAP_SECONDS
    with suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)


def _report(results: Results, conditions: Conditions, options: argparse.Namespace) -> None:
    print(bench_report.text(results, conditions), end="", flush=True)
    writers: list[tuple[Path | None, Callable[[Results, Conditions], str]]] = [
        (options.json, bench_report.as_json),
        (options.markdown, bench_report.markdown),
        (options.svg, bench_plot.svg),
        (options.round_trips_svg, bench_far_plot.svg),
    ]
    for path, form in writers:
        if path is not None:
            path.write_text(form(results, conditions))
    if options.into is not None:
        part = picture(options.svg, options.into) + bench_report.markdown(results, conditions)
        options.into.write_text(bench_report.into(options.into.read_text(), part))


def picture(svg: Path | None, document: Path) -> str:
    """Return the Markdown line for the picture if both files are written."""
    if svg is None:
        return ""
    place = Path(os.path.relpath(svg, document.parent)).as_posix()
    return f"![Ours against upstream's tunnel, as ratios]({place})\n\n"


def _check_files(options: argparse.Namespace) -> None:
    """Check before the run that results can be written after half an hour."""
    for path in (options.json, options.markdown, options.svg, options.round_trips_svg):
        if path is not None and not path.parent.is_dir():
            raise BenchError(f"cannot write {path}", "its directory does not exist", f"mkdir -p {path.parent}")
    if options.into is None:
        return
    try:
        bench_report.into(options.into.read_text(), "")
    except (OSError, bench_report.NoMarkers) as error:
        raise BenchError(f"cannot write tables into {options.into}", str(error), "add the two marker lines") from error


def _our_environment(options: argparse.Namespace) -> dict[str, str]:
    if options.pure or options.smoke or not _is_our_own(options):
        return {}
    try:
        return {"PYTHONPATH": str(bench_compiled.compiled_source())}
    except bench_compiled.BuildFailed as error:
        remedy = "install a C compiler and Python's headers (Debian: gcc python3-dev), or measure with --pure"
        raise BenchError("our package did not compile", str(error), remedy) from error


def _run(options: argparse.Namespace) -> int:
    _check_files(options)
    haproxy = bench_haproxy.find()
    plan = plan_of(options, has_haproxy=haproxy is not None)
    programs = {
        "upstream": TunnelPrograms(_peer("proxy-server"), _peer("proxy-agent"), logs_to_file=False),
        "ours": TunnelPrograms(
            options.ours_server, options.ours_agent, logs_to_file=True, environment=_our_environment(options)
        ),
    }
    generator, relay = Generator(_peer("umbilical-load")), _peer("umbilical-relay")
    conditions = Conditions(
        facts(programs, haproxy),
        plan.rounds,
        plan.seconds,
        plan.rest_seconds,
        plan.stuck_seconds,
        plan.tunnels,
        plan.starts,
        str(plan.crowd),
        plan.far.told(plan.seconds),
        plan.far.told_slow(),
    )
    folder = Path(tempfile.mkdtemp(prefix="umbilical-bench-"))
    try:
        bench = Bench(plan, BenchSetup(programs, haproxy, relay, generator, folder))
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
        say("interrupted: these are the results until now")
        return INTERRUPTED
    finally:
        _kill_leftovers()
    return 1 if bench.results.failures else 0


def _clean(folder: Path, *, keep_logs: bool) -> None:
    """Remove the keys, and the programs' logs unless they are needed to find a failure."""
    shutil.rmtree(folder / "pki" if keep_logs else folder, ignore_errors=True)
    if keep_logs:
        say(f"the logs of the programs are kept in {folder}")


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
