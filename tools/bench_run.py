"""Runs the plan: in each round all pairs take turns row by row, so that changes of the machine's speed affect all."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import bench_tables
from bench_crowd import CrowdServer, CrowdSize, idle_tunnels
from bench_far import FarPlan, slow_sample
from bench_haproxy import Relay
from bench_load import Generator, LoadFailed, Running
from bench_relay import FarTunnel, Network, RelayAlone, slow_link
from bench_rows import (
    CROWD,
    LIMIT,
    MODES,
    OURS,
    RELAY,
    SLOW,
    STARTS,
    STUCK,
    BenchRow,
    Pair,
    Results,
    Sample,
    measured_by,
    rate_sample,
)
from bench_tunnel import Carrier, Pki, RunningTunnel, TunnelPrograms
from umbilical.fault import HostError

# Buffers of the previous row must be empty before the next row starts.
SETTLE_SECONDS: Final = 0.2
TROUBLE: Final = (HostError, LoadFailed, OSError, ValueError)
# Upper bounds of buffered bytes by docs/protocol.md: per tunnel with a reader that took the first bytes at once, as a
# socket's empty buffer does, and per connection in each of its two processes.
TUNNEL_BOUND_BYTES: Final = 2 * 1024 * 1024
CONNECTION_BOUND_BYTES: Final = 2 * (256 + 512) * 1024


@dataclass(frozen=True)
class Plan:
    """What to measure, and for how long."""

    pairs: tuple[Pair, ...]
    rows: tuple[BenchRow, ...]
    rounds: int
    seconds: float
    rest_seconds: float
    stuck_seconds: float
    tunnels: int
    starts: int
    crowd: CrowdSize
    far: FarPlan

    def of(self, kind: str, subject: str) -> list[BenchRow]:
        return [row for row in self.rows if row.kind == kind and row.subject == subject]

    def turn(self, round_number: int) -> tuple[Pair, ...]:
        """Return the pairs in the order of this round: each round starts with another pair."""
        first = round_number % len(self.pairs)
        return self.pairs[first:] + self.pairs[:first]

    def takes(self, row: BenchRow, pair: Pair) -> bool:
        return row in self.rows and pair in self.pairs and pair in measured_by(row)


@dataclass(frozen=True)
class BenchSetup:
    """Programs, generator and folder of a run."""

    programs: dict[str, TunnelPrograms]
    haproxy: Path | None
    relay: Path
    generator: Generator
    folder: Path


class Bench:
    """Runs all rows; a failed row is recorded, and the others continue."""

    def __init__(self, plan: Plan, stage: BenchSetup) -> None:
        self.plan = plan
        self.results = Results()
        self._stage = stage
        self._generator = stage.generator
        self._pki = Pki(stage.folder / "pki")
        self._carriers_started = 0
        self._round = 0

    def run(self) -> None:
        while self._round < self.plan.rounds:
            self._round += 1
            self._measure_starts()
            for mode in MODES:
                self._measure_rates(mode)
            self._measure_stuck()
            self._measure_crowd()
            self._measure_memory()
            if self._round <= self.plan.far.rounds:
                self._measure_far()
                self._measure_slow()

    def _measure_starts(self) -> None:
        rows = [row for row in STARTS if row in self.plan.rows]
        warming = 1 if self._round == 1 else 0  # the first start fills the file cache
        for number in range(self.plan.starts + warming if rows else 0):
            for pair in self._turn(rows):
                with self._noting(rows, pair), self._tunnel(pair, MODES[0]) as tunnel:
                    for row in rows if number >= warming else ():
                        self._add(row, pair, {"value": tunnel.start_milliseconds[row.test]})

    def _measure_rates(self, mode: str) -> None:
        rows = [*self.plan.of("rate", mode), *self.plan.of("beside", mode)]
        with ExitStack() as stack:
            self._take_turns(rows, self._fleet(stack, rows, partial(self._carrier, mode=mode)))

    def _take_turns(self, rows: Sequence[BenchRow], carriers: Sequence[Carrier]) -> None:
        for row in rows:
            for carrier in carriers:
                if self.plan.takes(row, carrier.pair):
                    with self._noting([row], carrier.pair):
                        self._measure_rate(row, carrier)

    def _measure_rate(self, row: BenchRow, carrier: Carrier) -> None:
        if gone := carrier.ended():
            raise LoadFailed(gone)
        time.sleep(min(SETTLE_SECONDS + self.plan.far.settle_seconds(row), self.plan.seconds))
        if row.kind == "beside":
            self._add(row, carrier.pair, self._beside(row, carrier))
        else:
            self._add(row, carrier.pair, self._rate(row, carrier))

    def _rate(self, row: BenchRow, carrier: Carrier, held: Sequence[Running] = ()) -> Sample:
        pids = [running.pid for running in held]
        before, began = carrier.cpu(pids), time.monotonic()
        load = self._generator.measure(row, carrier.entrance, self.plan.seconds + self.plan.far.ramp_seconds(row))
        spent = carrier.cpu(pids).since(before)
        return rate_sample(row, load, spent, time.monotonic() - began)

    def _beside(self, row: BenchRow, carrier: Carrier) -> Sample:
        """Measure one echo during transfers. Two generators, so that the echo does not wait for transfers."""
        with ExitStack() as stack:
            echo = self._hold(stack, carrier, "echo", 1, self.plan.seconds)
            bulk = self._hold(stack, carrier, row.test, row.connections, self.plan.seconds)
            bulk.window()
            time.sleep(min(SETTLE_SECONDS, self.plan.seconds))
            pids = [echo.pid, bulk.pid]
            before, began = carrier.cpu(pids), time.monotonic()
            bulk.window()
            load, moved = echo.window(), bulk.window()
            others = carrier.cpu(pids).since(before).others_in(time.monotonic() - began)
        echoes = {"value": load["rate"], "p50_us": load["p50_us"], "p99_us": load["p99_us"]}
        return {**echoes, "bulk": moved.get("mb_per_second", 0.0), "others": others}

    def _hold(self, stack: ExitStack, carrier: Carrier, test: str, connections: int, seconds: float) -> Running:
        held = stack.enter_context(self._generator.hold(carrier.entrance, test, connections, seconds))
        held.wait_opened(connections)
        return held

    def _measure_stuck(self) -> None:
        for pair in self._turn([STUCK]):
            with self._noting([STUCK], pair), self._tunnel(pair, STUCK.subject) as tunnel:
                self._add(STUCK, pair, self._stuck(tunnel))

    def _stuck(self, tunnel: RunningTunnel) -> Sample:
        """Measure one echo alone, while the readers stop reading, and after they have stopped."""
        seconds, count = self.plan.stuck_seconds, STUCK.connections
        with ExitStack() as stack:
            echo = self._hold(stack, tunnel, "echo", 1, seconds)
            stuck = [self._hold(stack, tunnel, f"stuck-{end}", count, seconds) for end in ("clients", "endpoints")]
            alone, idle = echo.window(), tunnel.resident_megabytes()
            pids = [running.pid for running in (echo, *stuck)]
            before, began = tunnel.cpu(pids), time.monotonic()
            for one in stuck:
                one.window()
            filling, filled = echo.window(), tunnel.resident_megabytes()
            beside, stood = echo.window(), tunnel.resident_megabytes()
            others = tunnel.cpu(pids).since(before).others_in(time.monotonic() - began)
            taken = sum(one.window().get("bytes", 0.0) for one in stuck) / 1e6
        most = max(filled, stood, key=lambda held: held["value"])
        growth = {name: most[name] - idle[name] for name in most}
        return stuck_sample(alone, filling, beside, growth, 2 * count) | {"others": others, "taken": taken}

    def _measure_crowd(self) -> None:
        rows = [row for row in CROWD if self.plan.takes(row, OURS)]
        if not rows:
            return
        with self._noting(rows, OURS), self._crowd_server() as server:
            with server.agents(1, 1):
                alone = {row: self._rate(row, server) for row in rows}
            size = self.plan.crowd
            with server.agents(size.agents, size.processes), ExitStack() as stack:
                held = stack.enter_context(idle_tunnels(self._generator, server.entrance, size))
                time.sleep(min(SETTLE_SECONDS, self.plan.seconds))
                for row in rows:
                    sample = self._rate(row, server, held)
                    self._add(row, OURS, {**sample, **crowd_against(sample, alone[row])})

    def _measure_far(self) -> None:
        for round_trip in sorted({row.round_trip_ms for row in self.plan.rows if row.kind == "far"}):
            rows = [row for row in self.plan.rows if row.kind == "far" and row.round_trip_ms == round_trip]
            network = Network(round_trip / self.plan.far.divisor)
            with ExitStack() as stack:
                self._take_turns(rows, self._fleet(stack, rows, partial(self._distant, network=network)))

    def _measure_slow(self) -> None:
        """Measure each row on a new pair: what one leaves in buffers must not reach the other."""
        for row in SLOW:
            network = slow_link(row.round_trip_ms / self.plan.far.divisor)
            for pair in self._turn([row]):
                with self._noting([row], pair), self._far_tunnel(pair, network) as tunnel:
                    self._add(row, pair, self._slow(row, tunnel))

    def _slow(self, row: BenchRow, tunnel: FarTunnel) -> Sample:
        """Measure one echo during downloads that fill the link, for a part of the time with a stalled link."""
        far = self.plan.far
        with ExitStack() as stack:
            echo = self._hold(stack, tunnel, "echo", 1, far.slow_seconds)
            bulk = self._hold(stack, tunnel, "download", row.connections, far.slow_seconds)
            bulk.window()
            time.sleep(far.fill_seconds)
            pids = [echo.pid, bulk.pid]
            before, began = tunnel.cpu(pids), time.monotonic()
            bulk.window()
            echo.ask()
            if row.test == "stall":
                tunnel.relay.stall(far.stall_seconds)
            exchanged, moved = echo.answer(errors=row.test == "stall"), bulk.window()
            others = tunnel.cpu(pids).since(before).others_in(time.monotonic() - began)
        return {**slow_sample(exchanged, moved), "others": others}

    def _measure_memory(self) -> None:
        """Measure all tunnels together: the memory of a process does not depend on the others."""
        for mode in MODES:
            with ExitStack() as stack:
                tunnels = self._fleet(stack, self.plan.of("memory", mode), partial(self._carrier, mode=mode))
                idle = self._measure_idle(mode, tunnels)
                self._measure_growth(stack, mode, idle)

    def _measure_idle(self, mode: str, tunnels: list[Carrier]) -> dict[Carrier, dict[str, float]]:
        rows = [row for row in self.plan.of("memory", mode) if row.test == "idle"]
        idle = {}
        for tunnel in tunnels:
            with self._noting(rows, tunnel.pair):
                idle[tunnel] = self._resident(tunnel, tunnel.connected_at)
                for row in rows:
                    self._add(row, tunnel.pair, idle[tunnel])
        return idle

    def _measure_growth(self, stack: ExitStack, mode: str, idle: dict[Carrier, dict[str, float]]) -> None:
        rows = [row for row in self.plan.of("memory", mode) if row.test == "tunnels"]
        opened = self._open_resting(stack, list(idle), rows) if rows else {}
        for tunnel, opened_at in opened.items():
            with self._noting(rows, tunnel.pair):
                loaded = self._resident(tunnel, opened_at)
                growth = {name: loaded[name] - before for name, before in idle[tunnel].items()}
                for row in rows:
                    self._add(row, tunnel.pair, growth)

    def _open_resting(self, stack: ExitStack, tunnels: list[Carrier], rows: list[BenchRow]) -> dict[Carrier, float]:
        """Open the idle tunnels, one server after the other, and return the time at which each was done."""
        opened = {}
        for tunnel in tunnels:
            with self._noting(rows, tunnel.pair):
                resting = stack.enter_context(self._generator.rest(tunnel.entrance, self.plan.tunnels))
                resting.wait_opened(self.plan.tunnels)
                opened[tunnel] = time.monotonic()
        return opened

    def _resident(self, tunnel: Carrier, since: float) -> dict[str, float]:
        time.sleep(max(0.0, since + self.plan.rest_seconds - time.monotonic()))
        return tunnel.resident_megabytes()

    def _fleet(self, stack: ExitStack, rows: list[BenchRow], make: Callable[[Pair], Carrier]) -> list[Carrier]:
        """Start the carriers of the pairs to measure; failures are recorded."""
        carriers = []
        for pair in self._turn(rows):
            with self._noting([row for row in rows if self.plan.takes(row, pair)], pair):
                carriers.append(stack.enter_context(make(pair)))
        return carriers

    def _turn(self, rows: Sequence[BenchRow]) -> list[Pair]:
        """Return the pairs of these rows in the order of this round."""
        return [pair for pair in self.plan.turn(self._round) if any(self.plan.takes(row, pair) for row in rows)]

    def _carrier(self, pair: Pair, mode: str) -> Carrier:
        if pair != LIMIT:
            return self._tunnel(pair, mode)
        assert self._stage.haproxy is not None
        return Relay(self._stage.haproxy, self._pki, self._next_folder())

    def _distant(self, pair: Pair, network: Network) -> Carrier:
        if pair == RELAY:
            return RelayAlone(network, self._stage.relay, self._next_folder())
        return self._far_tunnel(pair, network)

    def _far_tunnel(self, pair: Pair, network: Network) -> FarTunnel:
        return FarTunnel(network, self._stage.relay, pair, self._stage.programs, self._pki, self._next_folder())

    def _tunnel(self, pair: Pair, mode: str) -> RunningTunnel:
        return RunningTunnel(pair, mode, self._stage.programs, self._pki, self._next_folder())

    def _crowd_server(self) -> CrowdServer:
        return CrowdServer(OURS, MODES[0], self._stage.programs, self._pki, self._next_folder())

    def _next_folder(self) -> Path:
        self._carriers_started += 1
        return self._stage.folder / f"tunnel-{self._carriers_started}"

    @contextmanager
    def _noting(self, rows: Sequence[BenchRow], pair: Pair) -> Iterator[None]:
        try:
            yield
        except TROUBLE as error:
            why = " ".join(str(error).split())
            self.results.fail(rows, pair, self._round, why)
            say(f"round {self._round}/{self.plan.rounds}  {pair.name:<14} FAILED: {why}")

    def _add(self, row: BenchRow, pair: Pair, sample: Sample) -> None:
        self.results.add(row, pair, self._round, sample)
        shown = f"{bench_tables.number(sample['value'])} {row.unit}"
        say(f"round {self._round}/{self.plan.rounds}  {pair.name:<14} {row.name:<26} {shown}")


def stuck_sample(
    alone: dict[str, float], filling: dict[str, float], beside: dict[str, float], growth: dict[str, float], tunnels: int
) -> dict[str, float]:
    """Make one sample from the three windows and the memory; unfinished exchanges count with their time so far."""
    bound = (tunnels * TUNNEL_BOUND_BYTES + CONNECTION_BOUND_BYTES) / 1e6
    return {
        "value": beside["rate"],
        "alone_p50_us": alone["p50_us"],
        "alone": alone["p99_us"],
        "filling_p99_us": filling["p99_us"],
        "longest_us": max(filling["longest_us"], beside["longest_us"]),
        "p50_us": beside["p50_us"],
        "p99_us": beside["p99_us"],
        "times_alone": beside["p99_us"] / alone["p99_us"],
        "unfinished": filling.get("unfinished", 0.0) + beside.get("unfinished", 0.0),
        "server": growth["server"],
        "agent": growth["agent"],
        "growth": growth["value"],
        "bound": bound,
        "of_bound": growth["value"] / bound,
    }


def crowd_against(crowd: Sample, alone: Sample) -> Sample:
    """Compare a rate and its cost with those of the same server without other tunnels."""
    times = crowd["value"] / alone["value"]
    return {"alone": alone["value"], "alone_cost": alone["cost"], "times_alone": times}


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
