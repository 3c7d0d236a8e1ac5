"""Measures a server with two workers against one with one: rates, CPU of the tunnel, and how the load is shared.

Generator, agent and server share the machine's cores. With two of them more throughput cannot be shown, only that a
second worker costs nothing.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import peers
from bench_compiled import compiled_source
from bench_load import Generator
from bench_processes import cpu_seconds
from bench_rows import DIALS, DOWNLOADS, ECHOES, OURS, UPLOADS, BenchRow
from bench_tunnel import READY_SECONDS, Pki, RunningTunnel, TunnelPrograms, get

PROGRAMS: Final = Path(sys.executable).parent
ROWS: Final = (*DOWNLOADS, *UPLOADS, *ECHOES, *DIALS)
RATE_BAR: Final = 0.95
COST_BAR: Final = 1.1
SHARE_BAR: Final = (0.4, 0.6)
_HELD: Final = b"konnectivity_network_proxy_agent_open_server_connections "


@dataclass(frozen=True)
class Reading:
    """`cost` is CPU of server and agent per unit of the row, `share` that of the first worker in all workers' CPU;
    `worker` and `supervisor` are CPU of all workers and of the supervisor, in us per operation or ms per MB."""

    value: float
    cost: float
    share: float
    worker: float = 0.0
    supervisor: float = 0.0


class WorkersTunnel(RunningTunnel):
    """A pair whose server has so many workers, ready when the agent holds all of them."""

    def __init__(self, workers: int, programs: dict[str, TunnelPrograms], pki: Pki, folder: Path) -> None:
        super().__init__(OURS, "http-connect", programs, pki, folder)
        self._workers = workers

    def _server_flags(self) -> list[str]:
        return [*super()._server_flags(), f"--workers={self._workers}"]

    def _agent_flags(self) -> list[str]:
        return [*super()._agent_flags(), "--sync-interval=100ms"]

    def _begin(self) -> None:
        super()._begin()
        deadline = time.monotonic() + READY_SECONDS
        wanted = b"\n%s%d\n" % (_HELD, self._workers)
        while wanted not in get(self._ports.agent_health, "/metrics", 1 << 20):
            if time.monotonic() > deadline:
                raise OSError(f"the agent did not find {self._workers} workers")
            time.sleep(0.05)

    def worker_cpu(self) -> list[float]:
        """CPU of each worker; of the server itself where it has none."""
        pid = self._children["server"].pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [cpu_seconds(int(child)) for child in children] or [cpu_seconds(pid)]

    def supervisor_cpu(self) -> float:
        return cpu_seconds(self._children["server"].pid) if self._workers > 1 else 0.0

    def tunnel_cpu(self) -> float:
        """CPU of agent, server and workers."""
        pids = [child.pid for child in self._children.values()]
        own = sum(map(cpu_seconds, pids))
        return own + (sum(self.worker_cpu()) if self._workers > 1 else 0.0)


def measure(row: BenchRow, tunnel: WorkersTunnel, generator: Generator, seconds: float) -> Reading:
    before, workers_before, supervisor_before = tunnel.tunnel_cpu(), tunnel.worker_cpu(), tunnel.supervisor_cpu()
    load = generator.measure(row, tunnel.entrance, seconds)
    used = tunnel.tunnel_cpu() - before
    each = [after - earlier for earlier, after in zip(workers_before, tunnel.worker_cpu(), strict=True)]
    units = load["bytes"] / 1e6 if row.is_transfer else load["ops"]
    rate = load["mb_per_second"] if row.is_transfer else load["rate"]
    scale = (1e3 if row.is_transfer else 1e6) / units
    supervisor = (tunnel.supervisor_cpu() - supervisor_before) * scale
    return Reading(rate, used / units, each[0] / max(sum(each), 1e-9), sum(each) * scale, supervisor)


def line(row: BenchRow, one: Sequence[Reading], two: Sequence[Reading]) -> str:
    rate, alone, cost, share = (
        statistics.median(values)
        for values in (
            [reading.value for reading in two],
            [reading.value for reading in one],
            [new.cost / max(old.cost, 1e-12) for new, old in zip(two, one, strict=True)],
            [reading.share for reading in two],
        )
    )
    ratio = statistics.median(new.value / old.value for new, old in zip(two, one, strict=True))
    verdicts = [ratio >= RATE_BAR, cost <= COST_BAR]
    shared = ""
    if row.connections > 1:  # a single tunnel has one worker
        verdicts.append(SHARE_BAR[0] <= share <= SHARE_BAR[1])
        shared = f"{share:.0%}"
    told = "met" if all(verdicts) else "NO"
    worker = statistics.median(reading.worker for reading in two)
    supervisor = statistics.median(reading.supervisor for reading in two)
    spent = f"{worker:>8.2f}{supervisor:>8.2f} {row.cost_unit:<6}"
    return f"{row.name:<26}{alone:>10,.0f}{rate:>10,.0f} {row.unit:<5}{ratio:>6.2f}{cost:>7.2f}{shared:>6}{spent}{told}"


def run(programs: dict[str, TunnelPrograms], generator: Generator, folder: Path, plan: argparse.Namespace) -> None:
    pki = Pki(folder / "pki")
    found: dict[tuple[BenchRow, int], list[Reading]] = {(row, count): [] for row in ROWS for count in (1, 2)}
    for number in range(plan.rounds):
        for count in (1, 2) if number % 2 == 0 else (2, 1):
            with WorkersTunnel(count, programs, pki, folder / f"{count}-{number}") as tunnel:
                for row in ROWS:
                    found[row, count].append(measure(row, tunnel, generator, plan.seconds))
    head = f"{'row':<26}{'1 worker':>10}{'2 workers':>10} {'':<5}{'ratio':>6}{'CPU':>7}{'share':>6}"
    print(f"{head}{'workers':>8}{'superv.':>8} {'':<6}bars")
    for row in ROWS:
        print(line(row, found[row, 1], found[row, 2]), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure two workers against one.")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds; medians are reported (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement in seconds (2)")
    parser.add_argument("--smoke", action="store_true", help="only check that every row runs")
    parser.add_argument("--pure", action="store_true", help="run our programs as pure Python")
    options, _ = parser.parse_known_args(arguments)
    load = peers.binary("umbilical-load")
    if load is None:
        print("a program is missing: run `make peers GROUP=bench`", file=sys.stderr)
        return 1
    environment = {} if options.smoke or options.pure else {"PYTHONPATH": str(compiled_source())}
    if options.smoke:
        options.rounds, options.seconds = 1, 0.2
    programs = {"ours": TunnelPrograms(PROGRAMS / "proxy-server", PROGRAMS / "proxy-agent", True, environment)}
    bars = f"ratio >= {RATE_BAR}, CPU <= {COST_BAR}, share {SHARE_BAR[0]:.0%} to {SHARE_BAR[1]:.0%}"
    print(f"\ntwo workers against one; {options.rounds} rounds of {options.seconds:g} s; bars: {bars}")
    with tempfile.TemporaryDirectory(prefix="umbilical-bench-") as name:
        run(programs, Generator(load), Path(name), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
