"""Tables of the benchmark's results, and the format of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench_rows import (
    LIMIT,
    OUR_AGENT,
    OUR_SERVER,
    OURS,
    PAIRS,
    RELAY,
    TUNNELS,
    UPSTREAM,
    BarResult,
    BenchRow,
    Pair,
    Results,
    check_bars,
    generator_bound,
    quotient,
)

ABSENT: Final = "-"
PER_THOUSAND: Final = 16
"""Connections of the rows whose cost is shown per 1,000 requests a second: a busy tunnel's."""
MEASURES: Final = {
    "value": "rate",
    "p50_us": "p50",
    "p99_us": "p99",
    "cost": "CPU",
    "times_alone": "to itself alone",
    "of_bound": "memory to its bound",
    "third_second": "MB/s in the third second",
    "round_trips": "p50 in round trips",
    "p99_seconds": "p99 in s",
    "ended": "number of ended tunnels",
}


@dataclass(frozen=True)
class Table:
    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Conditions:
    """Where and how it was measured."""

    facts: dict[str, str]
    rounds: int
    seconds: float
    rest_seconds: float
    stuck_seconds: float
    tunnels: int
    starts: int
    crowd: str
    far: str
    slow: str


def tables(results: Results, conditions: Conditions) -> list[Table]:
    """Return the tables of what was measured; empty tables are omitted."""
    found = [
        _rates(results, conditions),
        _latencies(results),
        _limit(results),
        _mixed(results),
        _beside(results),
        _stuck(results, conditions),
        _crowd(results, conditions),
        _plain("Memory", _memory_title(conditions), results, "memory"),
        _per_thousand(results, conditions),
        _plain("Start", _start_title(conditions), results, "start"),
        _far(results, conditions),
        _slow(results, conditions),
        _bars(results),
    ]
    return [table for table in found if table.lines]


def number(value: float | None) -> str:
    """Return three or four digits, which is more than the precision of a measurement."""
    if value is None:
        return ABSENT
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ratio(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2f}"


def most(results: Results, row: BenchRow, metric: str) -> float | None:
    """Return the largest of the pairs' medians."""
    values = [results.median(row, pair, metric) for pair in PAIRS]
    return max((value for value in values if value is not None), default=None)


def measure_name(checked: BarResult) -> str:
    kind, metric = checked.bar.row.kind, checked.bar.metric
    return kind if metric == "value" and kind not in {"rate", "far"} else MEASURES[metric]


def met(checked: BarResult) -> str:
    return {True: "yes", False: "NO", None: "not measured"}[checked.is_met]


def _rates(results: Results, conditions: Conditions) -> Table:
    title = (
        f"Rates: median of {conditions.rounds} rounds of {conditions.seconds:g} s;"
        " cost = CPU of server and agent together, generator = its own CPU, each per operation or MB;"
        " others = cores that the rest of the machine used"
    )
    header = ["row", "upstream", "ours", "unit", "ratio", "rounds", "cost up", "cost ours", "unit", "cost ratio"]
    header += ["gen up", "gen ours", "others"]
    return Table(title, header, [_rate_line(results, row) for row in _kind(results, "rate")])


def _rate_line(results: Results, row: BenchRow) -> list[str]:
    bound = generator_bound(results, row)
    return [
        row.name,
        *(number(results.median(row, pair)) for pair in (UPSTREAM, OURS)),
        row.unit,
        ratio(results.ratio(row, OURS)),
        _range(results.ratio_range(row, OURS)),
        *(number(results.median(row, pair, "cost")) for pair in (UPSTREAM, OURS)),
        row.cost_unit,
        ratio(results.ratio(row, OURS, "cost")),
        *(number(results.median(row, pair, "generator")) + ("!" if pair in bound else "") for pair in (UPSTREAM, OURS)),
        ratio(most(results, row, "others")),
    ]


def _latencies(results: Results) -> Table:
    header = ["row", "p50 up", "p50 ours", "ratio", "p99 up", "p99 ours", "ratio"]
    rows = [row for row in _kind(results, "rate") if not row.is_transfer]
    lines = [[row.name, *_latency(results, row)] for row in rows]
    return Table("Latency: us of one operation, as the client saw it", header, lines)


def _latency(results: Results, row: BenchRow) -> list[str]:
    cells = []
    for metric in ("p50_us", "p99_us"):
        cells += [number(results.median(row, pair, metric)) for pair in (UPSTREAM, OURS)]
        cells.append(ratio(results.ratio(row, OURS, metric)))
    return cells


def _limit(results: Results) -> Table:
    title = "Limit: two haproxy processes of the same shape, which relay and know no dial; cost as above"
    header = ["row", "upstream", "ours", "haproxy", "unit", "ours to haproxy", "cost ours", "cost haproxy", "unit"]
    rows = [row for row in results.rows() if results.has(row, LIMIT)]
    return Table(title, header, [_limit_line(results, row) for row in rows])


def _limit_line(results: Results, row: BenchRow) -> list[str]:
    return [
        row.name,
        *(number(results.median(row, pair)) for pair in (UPSTREAM, OURS, LIMIT)),
        row.unit,
        ratio(quotient(results.median(row, OURS), results.median(row, LIMIT))),
        *(number(results.median(row, pair, "cost")) for pair in (OURS, LIMIT)),
        row.cost_unit,
    ]


def _mixed(results: Results) -> Table:
    title = "Mixed pairs: ratios to upstream's pair"
    header = ["row", "our server, their agent", "rounds", "cost", "their server, our agent", "rounds", "cost"]
    rows = [row for row in _kind(results, "rate") if results.has(row, OUR_SERVER) or results.has(row, OUR_AGENT)]
    return Table(title, header, [_mixed_line(results, row) for row in rows])


def _mixed_line(results: Results, row: BenchRow) -> list[str]:
    cells = [row.name]
    for pair in (OUR_SERVER, OUR_AGENT):
        cells.append(ratio(results.ratio(row, pair)))
        cells.append(_range(results.ratio_range(row, pair)))
        cells.append(ratio(results.ratio(row, pair, "cost")))
    return cells


def _beside(results: Results) -> Table:
    title = "Beside bulk: us of one 128-byte exchange while eight tunnels run at full speed, and their MB/s meanwhile"
    header = ["row", "p50 up", "p50 ours", "ratio", "p99 up", "p99 ours", "ratio", "bulk up", "bulk ours", "others"]
    rows = _kind(results, "beside")
    return Table(title, header, [_beside_line(results, row) for row in rows])


def _beside_line(results: Results, row: BenchRow) -> list[str]:
    bulk = [number(results.median(row, pair, "bulk")) for pair in (UPSTREAM, OURS)]
    return [row.name, *_latency(results, row), *bulk, ratio(most(results, row, "others"))]


def _stuck(results: Results, conditions: Conditions) -> Table:
    title = (
        "Stuck: 64 tunnels whose clients never read and 64 whose endpoints never read, each offered 64 MiB; us of one"
        f" 128-byte exchange in another tunnel in windows of {conditions.stuck_seconds:g} s: alone, while they fill,"
        " and while they stand; an exchange that a window cut short counts with the time it had, so `>` means at least;"
        " resident MB that came on top, and the bound that our protocol promises"
    )
    header = ["pair", "alone p50", "alone p99", "filling p99", "p50", "p99", "p99 to alone", "longest", "cut short"]
    header += ["server grew", "agent grew", "bound", "others"]
    lines = [_stuck_line(results, row, pair) for row in _kind(results, "stuck") for pair in _of(results, row)]
    return Table(title, header, lines)


def _stuck_line(results: Results, row: BenchRow, pair: Pair) -> list[str]:
    def shown(metric: str) -> str:
        return number(results.median(row, pair, metric))

    cut = results.median(row, pair, "unfinished") or 0.0
    least = ">" if cut else ""
    return [
        pair.name,
        *(shown("alone_p50_us"), shown("alone")),
        *(least + shown(metric) for metric in ("filling_p99_us", "p50_us", "p99_us", "times_alone", "longest_us")),
        f"{cut:.0f}",
        *(shown(metric) for metric in ("server", "agent")),
        shown("bound") if pair == OURS else ABSENT,
        ratio(results.median(row, pair, "others")),
    ]


def _crowd(results: Results, conditions: Conditions) -> Table:
    title = f"Size: {conditions.crowd}, against the same server with one agent and no tunnel; ours alone"
    header = ["row", "one agent", "crowd", "unit", "ratio", "rounds", "cost one", "cost crowd", "unit", "others"]
    return Table(title, header, [_crowd_line(results, row) for row in _kind(results, "crowd")])


def _crowd_line(results: Results, row: BenchRow) -> list[str]:
    ratios = results.values(row, OURS, "times_alone")
    return [
        row.name,
        *(number(results.median(row, OURS, metric)) for metric in ("alone", "value")),
        row.unit,
        ratio(results.median(row, OURS, "times_alone")),
        _range((min(ratios), max(ratios)) if ratios else None),
        *(number(results.median(row, OURS, metric)) for metric in ("alone_cost", "cost")),
        row.cost_unit,
        ratio(most(results, row, "others")),
    ]


def _far(results: Results, conditions: Conditions) -> Table:
    title = (
        f"Far: a relay that delays every byte by half a round trip; {conditions.far}; third = MB/s in the third second"
        " of a transfer, round trips = p50 of an exchange or of a dial with one; relay = the relay alone, without TLS"
    )
    header = ["row", "upstream", "ours", "unit", "ratio", "rounds", "our server, their agent"]
    header += ["their server, our agent", "relay", "third up", "third ours", "round trips up", "ours", "others"]
    return Table(title, header, [_far_line(results, row) for row in _kind(results, "far")])


def _far_line(results: Results, row: BenchRow) -> list[str]:
    return [
        row.name,
        *(number(results.median(row, pair)) for pair in (UPSTREAM, OURS)),
        row.unit,
        ratio(results.ratio(row, OURS)),
        _range(results.ratio_range(row, OURS)),
        *(ratio(results.ratio(row, pair)) for pair in (OUR_SERVER, OUR_AGENT)),
        number(results.median(row, RELAY)),
        *(number(results.median(row, pair, "third_second")) for pair in (UPSTREAM, OURS)),
        *(ratio(results.median(row, pair, "round_trips")) for pair in (UPSTREAM, OURS)),
        ratio(most(results, row, "others")),
    ]


def _slow(results: Results, conditions: Conditions) -> Table:
    title = f"Slow link: {conditions.slow}; ms of one 128-byte exchange beside eight downloads, and their MB/s"
    header = ["row", "pair", "p50", "p99", "longest", "cut short", "downloads", "ended", "others"]
    lines = [_slow_line(results, row, pair) for row in _kind(results, "slow") for pair in _of(results, row)]
    return Table(title, header, lines)


def _slow_line(results: Results, row: BenchRow, pair: Pair) -> list[str]:
    def shown(metric: str, scale: float = 1.0) -> str:
        value = results.median(row, pair, metric)
        return number(None if value is None else value * scale)

    cut = results.median(row, pair, "unfinished") or 0.0
    return [
        *(row.name, pair.name),
        *((">" if cut else "") + shown(metric, 1e-3) for metric in ("p50_us", "p99_us", "longest_us")),
        *(f"{cut:.0f}", shown("bulk"), f"{results.median(row, pair, 'ended') or 0.0:.0f}"),
        ratio(results.median(row, pair, "others")),
    ]


def _plain(name: str, title: str, results: Results, kind: str) -> Table:
    header = ["row", "upstream", "ours", "ratio", "our server, their agent", "their server, our agent"]
    return Table(f"{name}: {title}", header, [_plain_line(results, row) for row in _kind(results, kind)])


def _plain_line(results: Results, row: BenchRow) -> list[str]:
    upstream, ours, our_server, our_agent = (number(results.median(row, pair)) for pair in TUNNELS)
    return [row.name, upstream, ours, ratio(results.ratio(row, OURS)), our_server, our_agent]


def _memory_title(conditions: Conditions) -> str:
    return (
        f"resident MB of server and agent together; idle = {conditions.rest_seconds:g} s after the agent connected,"
        f" before any traffic; tunnels = growth with {conditions.tunnels} tunnels that each echoed 128 bytes"
        f" and rested {conditions.rest_seconds:g} s"
    )


def _per_thousand(results: Results, conditions: Conditions) -> Table:
    title = (
        "Per 1,000 requests a second: cores = 1,000 times the cost of the row; MB = resident when idle, and the growth"
        " of as many tunnels as the row has; dial = a tunnel for each request, echo = open tunnels"
    )
    rows = [row for row in _kind(results, "rate") if not row.is_transfer and row.connections == PER_THOUSAND]
    found = [(row, [_held(results, row, pair, conditions) for pair in (UPSTREAM, OURS)]) for row in rows]
    lines = [
        [row.name, *(_cores(results, row, pair) for pair in (UPSTREAM, OURS)), *map(number, held)]
        for row, held in found
        if held != [None, None]
    ]
    return Table(title, ["row", "cores up", "cores ours", "MB up", "MB ours"], lines)


def _cores(results: Results, row: BenchRow, pair: Pair) -> str:
    cost = results.median(row, pair, "cost")
    return ABSENT if cost is None else f"{cost / 1e3:.3f}"


def _held(results: Results, row: BenchRow, pair: Pair, conditions: Conditions) -> float | None:
    idle, growth = (results.median(BenchRow("memory", row.subject, test), pair) for test in ("idle", "tunnels"))
    return None if idle is None or growth is None else idle + growth * row.connections / conditions.tunnels


def _start_title(conditions: Conditions) -> str:
    starts = conditions.starts * conditions.rounds
    return f"ms from exec to the first 200 of GET /healthz, median of {starts} with a warm file cache"


def _bars(results: Results) -> Table:
    title = "Bars: what the project asks; ratios to upstream's pair in the same run unless the measure says otherwise"
    header = ["row", "pair", "measure", "measured", "bar", "met"]
    return Table(title, header, [_bar_line(checked) for checked in check_bars(results)])


def _bar_line(checked: BarResult) -> list[str]:
    bar = checked.bar
    name = measure_name(checked)
    return [bar.row.name, bar.pair.name, name, _judged(checked), bar.shown, met(checked)]


def _judged(checked: BarResult) -> str:
    """Return the number with as many digits as its verdict needs: 0.998 misses a bar of 1."""
    if checked.measured is None:
        return ABSENT
    shown = (f"{checked.measured:.{digits}f}" for digits in range(2, 6))
    agreeing = (text for text in shown if BarResult(checked.bar, float(text)).is_met == checked.is_met)
    return next(agreeing, f"{checked.measured!r}")


def _range(lowest_highest: tuple[float, float] | None) -> str:
    return "..".join(map(ratio, lowest_highest)) if lowest_highest else ABSENT


def _kind(results: Results, kind: str) -> list[BenchRow]:
    return [row for row in results.rows() if row.kind == kind]


def _of(results: Results, row: BenchRow) -> list[Pair]:
    return [pair for pair in PAIRS if results.has(row, pair)]
