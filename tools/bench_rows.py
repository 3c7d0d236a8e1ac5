"""Rows, bars, samples, medians and ratios of the benchmark. Starts no process.

A bar is the project's target for one number.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

# A sample is a set of named numbers. Every row has "value"; most have some of the others:
#   p50_us p99_us             one exchange, as the client saw it
#   server agent cost         CPU of each process and of both, per operation (us) or per MB (ms)
#   generator                 the generator's own CPU, in the same unit
#   others                    cores used by everything else on the machine
#   bulk                      MB/s of the transfers during the echo
#   alone times_alone         the same measure without other traffic, and this one divided by it
#   longest_us unfinished     the longest exchange, and how many were unfinished at the end of a window
#   growth bound of_bound     added resident MB, its upper bound, and the one divided by the other
#   third_second              MB in the third second of a transfer
#   round_trips               the p50, in round trips of the network
#   p99_seconds ended         of an echo on a slow link, and the transfers beside it that ended
Sample = Mapping[str, float]


@dataclass(frozen=True)
class Pair:
    """The implementations of server and agent in a tunnel."""

    name: str
    server: str
    agent: str


UPSTREAM: Final = Pair("upstream", "upstream", "upstream")
OURS: Final = Pair("ours", "ours", "ours")
OUR_SERVER: Final = Pair("ours-upstream", "ours", "upstream")
OUR_AGENT: Final = Pair("upstream-ours", "upstream", "ours")
TUNNELS: Final = (UPSTREAM, OURS, OUR_SERVER, OUR_AGENT)
# Not a tunnel: a relay that shows the machine's maximum.
LIMIT: Final = Pair("haproxy", "haproxy", "haproxy")
# Not a tunnel either: the network of the far rows alone.
RELAY: Final = Pair("relay", "relay", "relay")
PAIRS: Final = (*TUNNELS, LIMIT, RELAY)


@dataclass(frozen=True)
class BenchRow:
    """One line of the report. `connections` is 0 if it does not apply."""

    kind: str
    subject: str
    test: str
    connections: int = 0
    round_trip_ms: int = 0

    @property
    def name(self) -> str:
        match self.kind:
            case "memory":
                return f"memory {self.subject} {self.test}"
            case "start":
                return f"start {self.test}"
            case "beside":
                return f"echo beside {self.connections} {self.test}s"
            case "stuck":
                return f"stuck {self.connections}+{self.connections}"
            case "crowd":
                return f"idle 10000 {self.test} {self.connections}"
            case "far":
                return f"{self.round_trip_ms} ms {self.test} {self.connections}"
            case "slow":
                return f"slow link {self.test}"
        return f"{self.subject} {self.test} {self.connections}"

    @property
    def is_transfer(self) -> bool:
        return self.kind in {"rate", "far"} and self.test in {"download", "upload"}

    @property
    def unit(self) -> str:
        if self.kind in {"memory", "start"}:
            return "MB" if self.kind == "memory" else "ms"
        return "MB/s" if self.is_transfer else "/s"

    @property
    def cost_unit(self) -> str:
        return "ms/MB" if self.is_transfer else "us"


def _rates(mode: str, test: str, *counts: int) -> tuple[BenchRow, ...]:
    return tuple(BenchRow("rate", mode, test, count) for count in counts)


def _far(round_trip_ms: int, tests: Iterable[tuple[str, int]]) -> tuple[BenchRow, ...]:
    return tuple(BenchRow("far", "http-connect", test, count, round_trip_ms) for test, count in tests)


MODES: Final = ("http-connect", "grpc")
ECHOES: Final = _rates("http-connect", "echo", 1, 16, 64)
DOWNLOADS: Final = _rates("http-connect", "download", 1, 8)
UPLOADS: Final = _rates("http-connect", "upload", 1, 8)
DIALS: Final = _rates("http-connect", "dial", 1, 16)
GRPC_DIALS: Final = _rates("grpc", "dial", 1, 16)
GRPC_MORE: Final = (*_rates("grpc", "echo", 1, 16), *_rates("grpc", "download", 1))
RATES: Final = (*ECHOES, *DOWNLOADS, *UPLOADS, *DIALS, *GRPC_DIALS, *GRPC_MORE)
BESIDE: Final = tuple(BenchRow("beside", "http-connect", test, 8) for test in ("download", "upload"))
STUCK: Final = BenchRow("stuck", "http-connect", "echo", 64)
CROWD: Final = tuple(
    BenchRow("crowd", "http-connect", test, count) for test, count in (("echo", 1), ("dial", 1), ("dial", 16))
)
IDLE: Final = tuple(BenchRow("memory", mode, "idle") for mode in MODES)
GROWTH: Final = tuple(BenchRow("memory", mode, "tunnels") for mode in MODES)
MEMORY: Final = tuple(row for both in zip(IDLE, GROWTH, strict=True) for row in both)
STARTS: Final = (BenchRow("start", "start", "server"), BenchRow("start", "start", "agent"))
# One transfer comes before eight of its kind: it must open the windows of a new connection itself.
FAR_TESTS: Final = (("echo", 1), ("dial", 1), ("download", 1), ("upload", 1), ("download", 8), ("upload", 8))
FAR_CHART: Final = (("download", 1), ("download", 8))
ROUND_TRIPS_MS: Final = (0, 10, 50, 100, 200)
FAR: Final = tuple(row for ms in ROUND_TRIPS_MS for row in _far(ms, FAR_TESTS if ms in {10, 50, 200} else FAR_CHART))
SLOW: Final = tuple(BenchRow("slow", "http-connect", test, 8, 50) for test in ("echo", "stall"))
ROWS: Final = (*RATES, *BESIDE, STUCK, *CROWD, *MEMORY, *STARTS, *FAR, *SLOW)


def far_rows(round_trip_ms: int, *names: str) -> list[BenchRow]:
    """Return the rows of this round trip with one of these names, as in `download 1`."""
    return [row for row in FAR if row.round_trip_ms == round_trip_ms and f"{row.test} {row.connections}" in names]


# The round trip at which the mixed pairs run, too.
MIXED_MS: Final = 50


def measured_by(row: BenchRow) -> tuple[Pair, ...]:
    """Return the pairs that this row is measured for."""
    if row.kind == "crowd":
        return (OURS,)
    if row.kind in {"beside", "stuck", "slow"} or row in GRPC_MORE:
        return (UPSTREAM, OURS)
    if row.kind == "far":
        tunnels = TUNNELS if row.round_trip_ms == MIXED_MS else (UPSTREAM, OURS)
        return (*tunnels, RELAY) if row.test == "download" else tunnels
    return (*TUNNELS, LIMIT) if row in {*ECHOES, *DOWNLOADS, *UPLOADS} else TUNNELS


@dataclass(frozen=True)
class Bar:
    """The target for one number. Only reported; does not change the exit code."""

    row: BenchRow
    pair: Pair
    metric: str
    limit: float
    is_ceiling: bool
    to_upstream: bool = True
    """Whether the limit is for the ratio to upstream's pair, not for the number itself."""

    @property
    def shown(self) -> str:
        return f"{'<=' if self.is_ceiling else '>='} {self.limit:g}"


def _floor(limit: float, rows: Iterable[BenchRow], *pairs: Pair) -> list[Bar]:
    return [Bar(row, pair, "value", limit, is_ceiling=False) for pair in pairs or (OURS,) for row in rows]


def _ceiling(limit: float, rows: Iterable[BenchRow], metric: str = "value") -> list[Bar]:
    return [Bar(row, OURS, metric, limit, is_ceiling=True) for row in rows]


def _absolute(limit: float, rows: Iterable[BenchRow], metric: str, *, is_ceiling: bool) -> list[Bar]:
    return [Bar(row, OURS, metric, limit, is_ceiling, to_upstream=False) for row in rows]


def _far_bars() -> list[Bar]:
    one, eight = ("download 1", "upload 1"), ("download 8", "upload 8")
    bulk = ((10, one, 1.5), (10, eight, 1.5), (50, one, 1.4), (50, eight, 1.8), (200, one, 2.5), (200, eight, 3.0))
    return [
        *(bar for ms, names, limit in bulk for bar in _floor(limit, far_rows(ms, *names))),
        *(bar for ms in (10, 50, 200) for bar in _floor(1.0, far_rows(ms, "echo 1", "dial 1"))),
        *_absolute(40.0, far_rows(200, *one), "third_second", is_ceiling=False),
        *_absolute(2.2, far_rows(50, "dial 1"), "round_trips", is_ceiling=True),
        *_floor(1.0, far_rows(MIXED_MS, "echo 1", "dial 1", *one, *eight), OUR_SERVER, OUR_AGENT),
        *_absolute(1.0, SLOW[:1], "p99_seconds", is_ceiling=True),
        *_absolute(0.0, SLOW[1:], "ended", is_ceiling=True),
    ]


BARS: Final = (
    *_floor(3.0, DOWNLOADS),
    *_floor(2.2, UPLOADS),
    *_floor(1.1, ECHOES[:1]),
    *_ceiling(0.9, ECHOES[:1], "p50_us"),
    *_floor(1.5, ECHOES[1:]),
    *_floor(1.3, DIALS[:1]),
    *_floor(1.5, DIALS[1:]),
    *_floor(1.1, GRPC_DIALS),
    *_ceiling(0.4, (*DOWNLOADS, *UPLOADS), "cost"),
    *_ceiling(0.55, ECHOES, "cost"),
    *_ceiling(0.5, DIALS, "cost"),
    *_ceiling(1.0, BESIDE, "p50_us"),
    *_ceiling(1.0, BESIDE, "p99_us"),
    *_absolute(2.0, [STUCK], "times_alone", is_ceiling=True),
    *_absolute(1.0, [STUCK], "of_bound", is_ceiling=True),
    *_absolute(0.8, CROWD, "times_alone", is_ceiling=False),
    *_ceiling(0.85, IDLE),
    *_ceiling(0.5, GROWTH),
    *_ceiling(10.0, STARTS),
    *_floor(1.0, (*ECHOES, *DOWNLOADS, *UPLOADS, *DIALS, *GRPC_DIALS), OUR_SERVER, OUR_AGENT),
    *_far_bars(),
)


@dataclass(frozen=True)
class Cpu:
    """CPU seconds of server, agent, benchmark with its generators, and whole machine."""

    server: float
    agent: float
    bench: float
    machine: float

    def since(self, before: "Cpu") -> "Cpu":
        return Cpu(
            self.server - before.server,
            self.agent - before.agent,
            self.bench - before.bench,
            self.machine - before.machine,
        )

    def others_in(self, wall_seconds: float) -> float:
        """Return the cores used by everything else."""
        return max(0.0, self.machine - self.server - self.agent - self.bench) / wall_seconds


def rate_sample(row: BenchRow, load: Mapping[str, float], spent: Cpu, wall_seconds: float) -> Sample:
    """Make a sample from the generator's counts and the processes' CPU time.

    Raises:
        ValueError: no data passed the tunnel.
    """
    amount = load.get("bytes", 0.0) / 1e6 if row.is_transfer else load.get("ops", 0.0)
    if amount <= 0:
        raise ValueError("no data passed the tunnel")
    scale = (1e3 if row.is_transfer else 1e6) / amount
    sample = {
        "value": load["mb_per_second"] if row.is_transfer else load["rate"],
        "server": spent.server * scale,
        "agent": spent.agent * scale,
        "cost": (spent.server + spent.agent) * scale,
        "generator": load["cpu_seconds"] * scale,
        "others": spent.others_in(wall_seconds),
    }
    if row.is_transfer:
        return sample | {name: load[name] for name in ("third_second",) if name in load}
    sample |= {"p50_us": load["p50_us"], "p99_us": load["p99_us"]}
    return sample | {"round_trips": load["p50_us"] / 1e3 / row.round_trip_ms} if row.round_trip_ms else sample


@dataclass(frozen=True)
class BenchFailure:
    row: str
    pair: str
    round: int
    why: str


@dataclass
class Results:
    """All samples by row and pair, each with its round; and failed measurements."""

    samples: dict[tuple[str, str], list[tuple[int, Sample]]] = field(default_factory=dict)
    failures: list[BenchFailure] = field(default_factory=list)

    def add(self, row: BenchRow, pair: Pair, round_number: int, sample: Sample) -> None:
        self.samples.setdefault((row.name, pair.name), []).append((round_number, sample))

    def fail(self, rows: Iterable[BenchRow], pair: Pair, round_number: int, why: str) -> None:
        self.failures.extend(BenchFailure(row.name, pair.name, round_number, why) for row in rows)

    def rows(self) -> list[BenchRow]:
        """Return the rows that were measured for at least one pair, in the order of the report."""
        measured = {row for row, _ in self.samples}
        return [row for row in ROWS if row.name in measured]

    def has(self, row: BenchRow, pair: Pair) -> bool:
        return (row.name, pair.name) in self.samples

    def median(self, row: BenchRow, pair: Pair, metric: str = "value") -> float | None:
        values = self.values(row, pair, metric)
        return statistics.median(values) if values else None

    def values(self, row: BenchRow, pair: Pair, metric: str = "value") -> list[float]:
        return [sample[metric] for _, sample in self._of(row, pair) if metric in sample]

    def ratio(self, row: BenchRow, pair: Pair, metric: str = "value") -> float | None:
        """Divide the pair's median by that of upstream's pair."""
        return quotient(self.median(row, pair, metric), self.median(row, UPSTREAM, metric))

    def ratio_range(self, row: BenchRow, pair: Pair) -> tuple[float, float] | None:
        """Return the smallest and the largest ratio of a single round."""
        theirs = {number: sample["value"] for number, sample in self._of(row, UPSTREAM)}
        ratios = [
            sample["value"] / theirs[number] for number, sample in self._of(row, pair) if theirs.get(number, 0.0) > 0
        ]
        return (min(ratios), max(ratios)) if ratios else None

    def _of(self, row: BenchRow, pair: Pair) -> list[tuple[int, Sample]]:
        return self.samples.get((row.name, pair.name), [])


def quotient(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


@dataclass(frozen=True)
class BarResult:
    """A bar, the measured number, and whether the bar is met; None where there was nothing to check_bars."""

    bar: Bar
    measured: float | None

    @property
    def is_met(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured <= self.bar.limit if self.bar.is_ceiling else self.measured >= self.bar.limit


def check_bars(results: Results, bars: Iterable[Bar] = BARS) -> list[BarResult]:
    """Compare the results with the bars of the measured rows."""
    measured = set(results.rows())
    return [BarResult(bar, _measured_number(results, bar)) for bar in bars if bar.row in measured]


def _measured_number(results: Results, bar: Bar) -> float | None:
    read = results.ratio if bar.to_upstream else results.median
    return read(bar.row, bar.pair, bar.metric)


def generator_bound(results: Results, row: BenchRow) -> list[Pair]:
    """Return the pairs with a generator that used at least as much CPU as upstream's tunnel: it limits the rate."""
    limit = results.median(row, UPSTREAM, "cost")
    if limit is None:
        return []
    return [pair for pair in TUNNELS if _is_known(results.median(row, pair, "generator"), lambda used: used >= limit)]


def _is_known(value: float | None, holds: Callable[[float], bool]) -> bool:
    return value is not None and holds(value)
