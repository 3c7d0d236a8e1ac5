"""The benchmark's results as text, Markdown, part of a document and JSON, with remarks."""

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

from bench_rows import PAIRS, UPSTREAM, BenchRow, Pair, Results, check_bars, generator_bound, quotient
from bench_tables import Conditions, Table, measure_name, met, most, tables

TEXT_WIDTH: Final = 120
# Less is mostly rounding: the kernel counts in ticks of 10 ms.
NOISE_CORES: Final = 0.15
BEGIN: Final = "<!-- bench:begin -->"
END: Final = "<!-- bench:end -->"


class NoMarkers(ValueError):
    """The document has no markers for the tables."""


def remarks(results: Results) -> list[str]:
    """Return what a reader must know before using the numbers."""
    return [
        *_generator_rows(results),
        *_noise(results),
        *(f"FAILED: {f.row}, {f.pair}, round {f.round}: {f.why}" for f in results.failures),
        *_bars(results),
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


def into(document: str, part: str) -> str:
    """Replace the text between the two marker lines by the part.

    Raises:
        NoMarkers: the document does not contain each once and in order.
    """
    before, begin, rest = document.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in before + after:
        raise NoMarkers(f"the document must contain the lines {BEGIN} and {END}, once each and in this order")
    return f"{before}{BEGIN}\n\n{part}\n{END}{after}"


def as_json(results: Results, conditions: Conditions) -> str:
    """Return everything: medians and ratios per row and pair, bars, and each sample with its round."""
    document = {
        "conditions": asdict(conditions),
        "rows": {row.name: _row_json(results, row) for row in results.rows()},
        "bars": _bars_json(results),
        "remarks": remarks(results),
        "failures": [asdict(failure) for failure in results.failures],
    }
    return json.dumps(document, indent=2) + "\n"


def _bars(results: Results) -> list[str]:
    measured_bars = [checked for checked in check_bars(results) if checked.is_met is not None]
    if not measured_bars:
        return []
    return [f"{sum(1 for checked in measured_bars if checked.is_met)} of {len(measured_bars)} bars met"]


def _bars_json(results: Results) -> list[dict[str, object]]:
    return [
        {
            "row": checked.bar.row.name,
            "pair": checked.bar.pair.name,
            "measure": measure_name(checked),
            "measured": checked.measured,
            "bar": checked.bar.shown,
            "met": met(checked),
        }
        for checked in check_bars(results)
    ]


def _generator_rows(results: Results) -> list[str]:
    found = [(row, generator_bound(results, row)) for row in results.rows() if row.kind == "rate"]
    return [
        f"! the generator used more CPU than upstream's tunnel: {row.name} ({', '.join(p.name for p in pairs)})"
        for row, pairs in found
        if pairs
    ]


def _noise(results: Results) -> list[str]:
    noisy = [(row, most(results, row, "others")) for row in results.rows()]
    names = [f"{row.name} {cores:.2f}" for row, cores in noisy if cores is not None and cores > NOISE_CORES]
    return [f"the machine was not idle; cores used by others: {', '.join(names)}"] if names else []


def _row_json(results: Results, row: BenchRow) -> dict[str, object]:
    pairs = {pair.name: _pair_json(results, row, pair) for pair in PAIRS if results.has(row, pair)}
    return {"unit": row.unit, "cost_unit": row.cost_unit if row.kind == "rate" else None, "pairs": pairs}


def _pair_json(results: Results, row: BenchRow, pair: Pair) -> dict[str, object]:
    samples = results.samples[row.name, pair.name]
    metrics = sorted({metric for _, sample in samples for metric in sample})
    medians = {metric: results.median(row, pair, metric) for metric in metrics}
    ratios = {metric: quotient(value, results.median(row, UPSTREAM, metric)) for metric, value in medians.items()}
    return {"median": medians, "ratio": ratios, "samples": [{"round": number, **sample} for number, sample in samples]}


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
