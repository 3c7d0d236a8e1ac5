"""Throughput over round trip as an SVG: ours, upstream's and the relay alone, for one tunnel and for eight."""

import math
from collections.abc import Iterable, Sequence
from typing import Final
from xml.sax.saxutils import escape

from bench_plot import picture_head
from bench_rows import OURS, RELAY, ROUND_TRIPS_MS, UPSTREAM, Pair, Results, far_rows
from bench_tables import Conditions, number

WIDTH: Final = 880
HEIGHT: Final = 430
TOP: Final = 104
BOTTOM: Final = 372
PANEL_WIDTH: Final = 300
PANELS: Final = ((60, 1, "One tunnel"), (490, 8, "Eight tunnels"))
LOWEST, HIGHEST = 1.0, 4096.0
TICKS: Final = (1, 4, 16, 64, 256, 1024, 4096)
LINES: Final = ((RELAY, "relay", "relay alone"), (OURS, "ours", "ours"), (UPSTREAM, "theirs", "upstream"))
STYLE: Final = """\
  .line { fill: none; stroke-width: 2.5; }
  .ours { stroke: #1a7f37; } .dot.ours { fill: #1a7f37; }
  .theirs { stroke: #bc4c00; } .dot.theirs { fill: #bc4c00; }
  .relay { stroke: #59636e; stroke-dasharray: 5 4; } .dot.relay { fill: #59636e; }
  @media (prefers-color-scheme: dark) {
    .ours { stroke: #3fb950; } .dot.ours { fill: #3fb950; }
    .theirs { stroke: #db8b45; } .dot.theirs { fill: #db8b45; }
    .relay { stroke: #9198a1; } .dot.relay { fill: #9198a1; }
  }"""


def svg(results: Results, conditions: Conditions) -> str:
    """Draw the downloads; a round trip that was not measured has no dot."""
    head = picture_head(
        "Throughput over round trip",
        _description(results),
        (WIDTH, HEIGHT),
        conditions,
        f"download through mutual TLS, {conditions.far}",
        STYLE,
    )
    body = [line for left, tunnels, title in PANELS for line in _panel(results, left, tunnels, title)]
    return "\n".join([*head, *body, "</svg>"]) + "\n"


def y_of(megabytes: float) -> float:
    """Return the position on the logarithmic scale, limited to its ends."""
    held = min(max(megabytes, LOWEST), HIGHEST)
    return round(BOTTOM - math.log(held / LOWEST) / math.log(HIGHEST / LOWEST) * (BOTTOM - TOP), 1)


def _x_of(left: int, place: int) -> float:
    return round(left + 18 + place * (PANEL_WIDTH - 36) / (len(ROUND_TRIPS_MS) - 1), 1)


def _panel(results: Results, left: int, tunnels: int, title: str) -> Iterable[str]:
    yield f'<text class="group" x="{left}" y="{TOP - 14}">{escape(title)}, MB/s</text>'
    for value in TICKS:
        y = y_of(value)
        yield f'<line class="grid" x1="{left}" y1="{y}" x2="{left + PANEL_WIDTH}" y2="{y}"/>'
        yield f'<text class="quiet" x="{left - 8}" y="{y + 4}" text-anchor="end">{value:,}</text>'
    for place, milliseconds in enumerate(ROUND_TRIPS_MS):
        yield _text(_x_of(left, place), BOTTOM + 18, f"{milliseconds} ms", "quiet")
    for pair, kind, name in LINES:
        yield from _line(results, left, tunnels, pair, kind, name)


def _line(results: Results, left: int, tunnels: int, pair: Pair, kind: str, name: str) -> Iterable[str]:
    points = [(_x_of(left, place), value) for place, value in _measured(results, tunnels, pair)]
    if not points:
        return
    yield f'<polyline class="line {kind}" points="{" ".join(f"{x},{y_of(value)}" for x, value in points)}"/>'
    for x, value in points:
        yield f'<circle class="dot {kind}" cx="{x}" cy="{y_of(value)}" r="3.5"/>'
        yield _text(x, y_of(value) + (18 if pair == UPSTREAM else -8), number(value), "quiet")
    x, value = points[-1]
    yield f'<text x="{x + 22}" y="{y_of(value) + 4}">{escape(name)}</text>'


def _measured(results: Results, tunnels: int, pair: Pair) -> Sequence[tuple[int, float]]:
    rows = [(place, far_rows(ms, f"download {tunnels}")[0]) for place, ms in enumerate(ROUND_TRIPS_MS)]
    medians = [(place, results.median(row, pair)) for place, row in rows]
    return [(place, median) for place, median in medians if median is not None]


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="middle">{escape(text)}</text>'


def _description(results: Results) -> str:
    told = []
    for _, tunnels, title in PANELS:
        for pair, _, name in LINES:
            points = [f"{ROUND_TRIPS_MS[at]} ms {number(value)}" for at, value in _measured(results, tunnels, pair)]
            told += [f"{title}, {name}: {', '.join(points)}"] if points else []
    return f"MB/s by round trip. {'; '.join(told)}."
