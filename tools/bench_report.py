"""The bench's results for people and programs: tables as text and as Markdown, remarks, JSON. Only formats."""

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from bench_rows import (
    BARS,
    OUR_AGENT,
    OUR_SERVER,
    OURS,
    PAIRS,
    UPSTREAM,
    Pair,
    Results,
    Row,
    below_bar,
    generator_bound,
    quotient,
)

ABSENT: Final = "-"
TEXT_WIDTH: Final = 120
# Below this the remainder is mostly rounding: the kernel counts in ticks of 10 ms.
NOISE_CORES: Final = 0.15
METRICS: Final = ("value", "p50_us", "p99_us", "cost", "server", "agent", "generator", "others")


@dataclass(frozen=True)
class Table:
    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Conditions:
    """Where and how it was measured; without these the numbers say nothing."""

    facts: dict[str, str]
    rounds: int
    seconds: float
    rest_seconds: float
    tunnels: int


def tables(results: Results, conditions: Conditions) -> list[Table]:
    """Lay out what was measured; a table without lines is left out."""
    found = [
        _rates(results, conditions),
        _latencies(results),
        _mixed(results),
        _plain("Memory", _memory_title(conditions), results, "memory"),
        _plain("Start", "ms from exec to the first 200 of GET /healthz", results, "start"),
    ]
    return [table for table in found if table.lines]


def remarks(results: Results) -> list[str]:
    """Say what a reader must know before trusting or quoting the numbers."""
    return [
        *_short_rows(results),
        *_generator_rows(results),
        *_noise(results),
        *(f"FAILED: {f.row}, {f.pair}, round {f.round}: {f.why}" for f in results.failures),
    ]


def text(results: Results, conditions: Conditions) -> str:
    blocks = ["\n".join(f"{name + ':':<10} {value}" for name, value in conditions.facts.items())]
    blocks += [_text_table(table) for table in tables(results, conditions)]
    if notes := remarks(results):
        blocks.append("\n".join(textwrap.fill(f"* {note}", TEXT_WIDTH, subsequent_indent="  ") for note in notes))
    return "\n\n".join(blocks) + "\n"


def markdown(results: Results, conditions: Conditions) -> str:
    blocks = ["\n".join(f"- {name}: {value}" for name, value in conditions.facts.items())]
    blocks += [_markdown_table(table) for table in tables(results, conditions)]
    if notes := remarks(results):
        blocks.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(blocks) + "\n"


def as_json(results: Results, conditions: Conditions) -> str:
    """Give everything: medians and ratios per row and pair, and each sample with its round."""
    rows = {row.name: _row_json(results, row) for row in results.rows()}
    document = {
        "conditions": asdict(conditions),
        "rows": rows,
        "remarks": remarks(results),
        "failures": [asdict(failure) for failure in results.failures],
    }
    return json.dumps(document, indent=2) + "\n"


def number(value: float | None) -> str:
    """Show three or four digits, which is more than such a measurement is worth."""
    if value is None:
        return ABSENT
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ratio(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.2f}"


def _rates(results: Results, conditions: Conditions) -> Table:
    title = (
        f"Rates: median of {conditions.rounds} rounds of {conditions.seconds:g} s;"
        " cost = CPU of server and agent together, generator = its own CPU, each per operation or MB;"
        " others = cores that the rest of the machine used"
    )
    header = ["row", "upstream", "ours", "unit", "ratio", "rounds", "cost up", "cost ours", "unit", "cost ratio"]
    header += ["gen up", "gen ours", "others"]
    return Table(title, header, [_rate_line(results, row) for row in _kind(results, "rate")])


def _rate_line(results: Results, row: Row) -> list[str]:
    lowest_highest = results.ratio_range(row, OURS)
    bound = generator_bound(results, row)
    return [
        row.name,
        *(number(results.median(row, pair)) for pair in (UPSTREAM, OURS)),
        row.unit,
        ratio(results.ratio(row, OURS)),
        "..".join(map(ratio, lowest_highest)) if lowest_highest else ABSENT,
        *(number(results.median(row, pair, "cost")) for pair in (UPSTREAM, OURS)),
        row.cost_unit,
        ratio(results.ratio(row, OURS, "cost")),
        *(number(results.median(row, pair, "generator")) + ("!" if pair in bound else "") for pair in (UPSTREAM, OURS)),
        ratio(_most(results, row, "others")),
    ]


def _latencies(results: Results) -> Table:
    header = ["row", "p50 up", "p50 ours", "ratio", "p99 up", "p99 ours", "ratio"]
    rows = [row for row in _kind(results, "rate") if not row.is_transfer]
    return Table("Latency: us of one operation, as the client saw it", header, [_latency(results, row) for row in rows])


def _latency(results: Results, row: Row) -> list[str]:
    cells = [row.name]
    for metric in ("p50_us", "p99_us"):
        cells += [number(results.median(row, pair, metric)) for pair in (UPSTREAM, OURS)]
        cells.append(ratio(results.ratio(row, OURS, metric)))
    return cells


def _mixed(results: Results) -> Table:
    title = "Mixed pairs: ratios to upstream's pair"
    header = ["row", "our server, their agent", "rounds", "cost", "their server, our agent", "rounds", "cost"]
    rows = [row for row in _kind(results, "rate") if _has(results, row, OUR_SERVER) or _has(results, row, OUR_AGENT)]
    return Table(title, header, [_mixed_line(results, row) for row in rows])


def _mixed_line(results: Results, row: Row) -> list[str]:
    cells = [row.name]
    for pair in (OUR_SERVER, OUR_AGENT):
        lowest_highest = results.ratio_range(row, pair)
        cells.append(ratio(results.ratio(row, pair)))
        cells.append("..".join(map(ratio, lowest_highest)) if lowest_highest else ABSENT)
        cells.append(ratio(results.ratio(row, pair, "cost")))
    return cells


def _plain(name: str, title: str, results: Results, kind: str) -> Table:
    header = ["row", "upstream", "ours", "ratio", "our server, their agent", "their server, our agent"]
    return Table(f"{name}: {title}", header, [_plain_line(results, row) for row in _kind(results, kind)])


def _plain_line(results: Results, row: Row) -> list[str]:
    upstream, ours, our_server, our_agent = (number(results.median(row, pair)) for pair in PAIRS)
    return [row.name, upstream, ours, ratio(results.ratio(row, OURS)), our_server, our_agent]


def _memory_title(conditions: Conditions) -> str:
    return (
        f"resident MB of server and agent together; idle = {conditions.rest_seconds:g} s after the agent connected,"
        f" before any traffic; tunnels = growth with {conditions.tunnels} tunnels that each echoed 128 bytes"
        f" and rested {conditions.rest_seconds:g} s"
    )


def _short_rows(results: Results) -> list[str]:
    """List the rates below their bar, a line for each pair."""
    short: dict[str, list[str]] = {}
    for row in results.rows():
        for pair, value in below_bar(results, row):
            short.setdefault(pair.name, []).append(f"{row.name} {value:.2f}")
    return [f"below {BARS[name]:.1f}, {name}: {', '.join(rows)}" for name, rows in short.items()]


def _generator_rows(results: Results) -> list[str]:
    found = [(row, generator_bound(results, row)) for row in results.rows()]
    return [
        f"! the generator used no less CPU than upstream's tunnel: {row.name} ({', '.join(p.name for p in pairs)})"
        for row, pairs in found
        if pairs
    ]


def _noise(results: Results) -> list[str]:
    noisy = [(row, _most(results, row, "others")) for row in results.rows()]
    names = [f"{row.name} {cores:.2f}" for row, cores in noisy if cores is not None and cores > NOISE_CORES]
    return [f"the machine was not quiet; cores used by others: {', '.join(names)}"] if names else []


def _most(results: Results, row: Row, metric: str) -> float | None:
    values = [results.median(row, pair, metric) for pair in PAIRS]
    return max((value for value in values if value is not None), default=None)


def _kind(results: Results, kind: str) -> list[Row]:
    return [row for row in results.rows() if row.kind == kind]


def _has(results: Results, row: Row, pair: Pair) -> bool:
    return results.median(row, pair) is not None


def _row_json(results: Results, row: Row) -> dict[str, object]:
    pairs = {pair.name: _pair_json(results, row, pair) for pair in PAIRS if _has(results, row, pair)}
    return {"unit": row.unit, "cost_unit": row.cost_unit if row.kind == "rate" else None, "pairs": pairs}


def _pair_json(results: Results, row: Row, pair: Pair) -> dict[str, object]:
    medians = {metric: results.median(row, pair, metric) for metric in METRICS}
    known = {metric: value for metric, value in medians.items() if value is not None}
    ratios = {metric: quotient(value, results.median(row, UPSTREAM, metric)) for metric, value in known.items()}
    samples = [{"round": number, **sample} for number, sample in results.samples[row.name, pair.name]]
    return {"median": known, "ratio": ratios, "samples": samples}


def _text_table(table: Table) -> str:
    widths = [max(map(len, column)) for column in zip(table.header, *table.lines, strict=True)]
    aligned = [_padded(line, widths) for line in (table.header, *table.lines)]
    return "\n".join([textwrap.fill(table.title, TEXT_WIDTH), aligned[0], "-" * len(aligned[0]), *aligned[1:]])


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Names to the left, numbers to the right."""
    sides: list[Callable[[str, int], str]] = [str.ljust, *[str.rjust] * (len(widths) - 1)]
    return "  ".join(side(cell, width) for side, cell, width in zip(sides, cells, widths, strict=True))


def _markdown_table(table: Table) -> str:
    rule = ["---", *["---:"] * (len(table.header) - 1)]
    lines = [f"| {' | '.join(cells)} |" for cells in (table.header, rule, *table.lines)]
    return "\n".join([f"{table.title}", "", *lines])
