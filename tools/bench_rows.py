"""What the bench measures, and the arithmetic on it: rows, samples, medians, ratios. No process is started here."""

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

# A sample is a few numbers by name. Every row has "value"; rates have the others too:
#   p50_us p99_us             one exchange, as the client saw it
#   server agent cost         CPU of each process and of both, per operation (us) or per MB (ms)
#   generator                 the generator's own CPU, in the same unit
#   others                    cores that everything else on the machine used meanwhile
Sample = Mapping[str, float]


@dataclass(frozen=True)
class Pair:
    """Whose server and whose agent make the tunnel."""

    name: str
    server: str
    agent: str


UPSTREAM: Final = Pair("upstream", "upstream", "upstream")
OURS: Final = Pair("ours", "ours", "ours")
OUR_SERVER: Final = Pair("ours-upstream", "ours", "upstream")
OUR_AGENT: Final = Pair("upstream-ours", "upstream", "ours")
PAIRS: Final = (UPSTREAM, OURS, OUR_SERVER, OUR_AGENT)
# What the project asks of a rate, as a ratio to upstream's pair. Said in the report, never an exit code.
BARS: Final = {OURS.name: 1.0, OUR_SERVER.name: 0.8, OUR_AGENT.name: 0.8}


@dataclass(frozen=True)
class Row:
    """One line of the report. `connections` is 0 where none are counted."""

    kind: str
    subject: str
    test: str
    connections: int = 0

    @property
    def name(self) -> str:
        parts = ("memory", self.subject, self.test) if self.kind == "memory" else (self.subject, self.test)
        return " ".join([*parts, *([str(self.connections)] if self.kind == "rate" else [])])

    @property
    def is_transfer(self) -> bool:
        return self.test in {"download", "upload"}

    @property
    def unit(self) -> str:
        if self.kind == "rate":
            return "MB/s" if self.is_transfer else "/s"
        return "MB" if self.kind == "memory" else "ms"

    @property
    def cost_unit(self) -> str:
        return "ms/MB" if self.is_transfer else "us"


RATES: Final = (
    *(Row("rate", "http-connect", "echo", count) for count in (1, 16, 64)),
    *(Row("rate", "http-connect", "download", count) for count in (1, 8)),
    *(Row("rate", "http-connect", "upload", count) for count in (1, 8)),
    *(Row("rate", "http-connect", "dial", count) for count in (1, 16)),
    *(Row("rate", "grpc", "dial", count) for count in (1, 16)),
)
MODES: Final = ("http-connect", "grpc")
MEMORY: Final = tuple(Row("memory", mode, test) for mode in MODES for test in ("idle", "tunnels"))
STARTS: Final = (Row("start", "start", "server"), Row("start", "start", "agent"))
ROWS: Final = (*RATES, *MEMORY, *STARTS)


@dataclass(frozen=True)
class Cpu:
    """CPU seconds used so far: by the two processes, by the bench with its generator, by the whole machine."""

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


def rate_sample(row: Row, load: Mapping[str, float], spent: Cpu, wall_seconds: float) -> Sample:
    """Turn what the generator counted and what the processes spent into one sample.

    Raises:
        ValueError: nothing moved, so there is nothing to divide by.
    """
    amount = load.get("bytes", 0.0) / 1e6 if row.is_transfer else load.get("ops", 0.0)
    if amount <= 0:
        raise ValueError("nothing went through the tunnel")
    scale = (1e3 if row.is_transfer else 1e6) / amount
    sample = {
        "value": load["mb_per_second"] if row.is_transfer else load["rate"],
        "server": spent.server * scale,
        "agent": spent.agent * scale,
        "cost": (spent.server + spent.agent) * scale,
        "generator": load["cpu_seconds"] * scale,
        "others": max(0.0, spent.machine - spent.server - spent.agent - spent.bench) / wall_seconds,
    }
    return sample if row.is_transfer else {**sample, "p50_us": load["p50_us"], "p99_us": load["p99_us"]}


@dataclass(frozen=True)
class Failure:
    row: str
    pair: str
    round: int
    why: str


@dataclass
class Results:
    """All samples, by row and pair, each with its round; and what could not be measured."""

    samples: dict[tuple[str, str], list[tuple[int, Sample]]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def add(self, row: Row, pair: Pair, round_number: int, sample: Sample) -> None:
        self.samples.setdefault((row.name, pair.name), []).append((round_number, sample))

    def fail(self, rows: Iterable[Row], pair: Pair, round_number: int, why: str) -> None:
        self.failures.extend(Failure(row.name, pair.name, round_number, why) for row in rows)

    def rows(self) -> list[Row]:
        """Return the rows that were measured for at least one pair, in the order of the report."""
        measured = {row for row, _ in self.samples}
        return [row for row in ROWS if row.name in measured]

    def median(self, row: Row, pair: Pair, metric: str = "value") -> float | None:
        values = [sample[metric] for _, sample in self._of(row, pair) if metric in sample]
        return statistics.median(values) if values else None

    def ratio(self, row: Row, pair: Pair, metric: str = "value") -> float | None:
        """Divide the pair's median by that of upstream's pair."""
        return quotient(self.median(row, pair, metric), self.median(row, UPSTREAM, metric))

    def ratio_range(self, row: Row, pair: Pair) -> tuple[float, float] | None:
        """Return the smallest and the largest ratio that a single round showed."""
        theirs = {number: sample["value"] for number, sample in self._of(row, UPSTREAM)}
        ratios = [
            sample["value"] / theirs[number] for number, sample in self._of(row, pair) if theirs.get(number, 0.0) > 0
        ]
        return (min(ratios), max(ratios)) if ratios else None

    def _of(self, row: Row, pair: Pair) -> list[tuple[int, Sample]]:
        return self.samples.get((row.name, pair.name), [])


def quotient(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def generator_bound(results: Results, row: Row) -> list[Pair]:
    """Name the pairs whose generator used no less CPU than upstream's tunnel: such a row measures the generator."""
    limit = results.median(row, UPSTREAM, "cost")
    if limit is None:
        return []
    return [pair for pair in PAIRS if _is_known(results.median(row, pair, "generator"), lambda used: used >= limit)]


def below_bar(results: Results, row: Row) -> list[tuple[Pair, float]]:
    """Name the pairs whose rate is short of what the project asks for, with their ratios."""
    if row.kind != "rate":
        return []
    ratios = [(pair, results.ratio(row, pair)) for pair in PAIRS if pair.name in BARS]
    return [(pair, ratio) for pair, ratio in ratios if ratio is not None and ratio < BARS[pair.name]]


def _is_known(value: float | None, holds: Callable[[float], bool]) -> bool:
    return value is not None and holds(value)
