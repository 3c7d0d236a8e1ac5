"""The benchmark's ratios to upstream as an SVG bar chart on a logarithmic scale.

Hand-written SVG is small, readable in a diff and follows the reader's light or dark theme.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final
from xml.sax.saxutils import escape

from bench_rows import OURS, BarResult, Results, check_bars
from bench_tables import Conditions, measure_name, ratio

WIDTH: Final = 860
LEFT: Final = 250
RIGHT: Final = 90
TOP: Final = 92
LINE: Final = 20
BAR: Final = 12
GROUP_GAP: Final = 34
FOOT: Final = 34
LOWEST, HIGHEST = 1 / 16, 16.0
TICKS: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0, 16.0)
STYLE: Final = """\
  text { font: 12px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 17px; font-weight: 600; }
  .group { font-weight: 600; }
  .quiet { fill: #59636e; font-size: 11px; }
  .paper { fill: #ffffff; }
  .grid { stroke: #d1d9e0; }
  .even { stroke: #59636e; stroke-width: 1.5; }
  .met { fill: #1a7f37; }
  .missed { fill: #bc4c00; }
  .mark { stroke: #1f2328; stroke-width: 2.5; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .quiet { fill: #9198a1; }
    .paper { fill: #0d1117; }
    .grid { stroke: #30363d; }
    .even { stroke: #9198a1; }
    .met { fill: #3fb950; }
    .missed { fill: #db8b45; }
    .mark { stroke: #e6edf3; }
  }"""


def svg(results: Results, conditions: Conditions) -> str:
    """Draw all measured ratios of ours to upstream."""
    shown = [
        one for one in check_bars(results) if one.bar.pair == OURS and one.bar.to_upstream and one.measured is not None
    ]
    more = [checked for checked in shown if not checked.bar.is_ceiling]
    less = [checked for checked in shown if checked.bar.is_ceiling]
    body: list[str] = []
    top = TOP
    for title, group in (("Rates: longer to the right is better", more), ("Costs: longer to the left is better", less)):
        if group:
            body += _group(title, group, top)
            top += GROUP_GAP + LINE * len(group)
    return _document(body, top, _description(shown, conditions), conditions)


def x_of(value: float) -> float:
    """Return the position of a ratio on the scale, limited to its ends."""
    held = min(max(value, LOWEST), HIGHEST)
    share = (math.log2(held) - math.log2(LOWEST)) / (math.log2(HIGHEST) - math.log2(LOWEST))
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def picture_head(
    title: str, description: str, size: tuple[int, int], conditions: Conditions, legend: str, style: str = ""
) -> list[str]:
    """Return the first lines of a picture, with its title, facts and legend."""
    width, height = size
    facts = " · ".join(conditions.facts.get(name, "") for name in ("date", "upstream") if name in conditions.facts)
    return [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' role="img" aria-labelledby="title desc">'
        ),
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(description)}</desc>',
        f"<style>\n{STYLE}\n{style}</style>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
        f'<text class="title" x="16" y="30">{escape(title)}</text>',
        f'<text class="quiet" x="16" y="50">{escape(facts)}</text>',
        f'<text class="quiet" x="16" y="67">{escape(legend)}</text>',
    ]


def _document(body: Sequence[str], bottom: int, description: str, conditions: Conditions) -> str:
    legend = (
        f"ours to upstream in the same run, median of {conditions.rounds};"
        " thick line = equal, short mark = the project's bar; green = met, orange = missed"
    )
    size = (WIDTH, bottom + FOOT)
    head = picture_head("Umbilical against upstream's tunnel", description, size, conditions, legend)
    return "\n".join([*head, *_grid(bottom), *body, "</svg>"]) + "\n"


def _grid(bottom: int) -> Iterable[str]:
    for value in TICKS:
        x, kind = x_of(value), "even" if value == 1.0 else "grid"
        name = f"{value:g}" if value >= 1 else f"1/{round(1 / value)}"
        yield f'<line class="{kind}" x1="{x}" y1="{TOP - 8}" x2="{x}" y2="{bottom}"/>'
        yield f'<text class="quiet" x="{x}" y="{bottom + 16}" text-anchor="middle">{name}</text>'


def _group(title: str, checked_bars: Sequence[BarResult], top: int) -> list[str]:
    lines = [f'<text class="group" x="16" y="{top + 12}">{escape(title)}</text>']
    for number, checked in enumerate(checked_bars):
        lines += _line(checked, top + 22 + number * LINE)
    return lines


def _line(checked: BarResult, y: int) -> list[str]:
    assert checked.measured is not None
    even, end, mark = x_of(1.0), x_of(checked.measured), x_of(checked.bar.limit)
    kind = "met" if checked.is_met else "missed"
    left, width = min(even, end), max(abs(end - even), 1.0)
    beyond, anchor = (end + 6, "start") if end >= even else (end - 6, "end")
    # Bar, mark and number must not overlap: the number is placed after the longer of bar and mark.
    if (mark - end) * (1 if end >= even else -1) > -4:
        beyond = mark + 6 if end >= even else mark - 6
    return [
        f'<text x="{LEFT - 12}" y="{y + 10}" text-anchor="end">{escape(_label(checked))}</text>',
        f'<rect class="{kind}" x="{left:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>',
        f'<line class="mark" x1="{mark}" y1="{y - 2}" x2="{mark}" y2="{y + BAR + 2}"/>',
        f'<text x="{beyond:.1f}" y="{y + 10}" text-anchor="{anchor}">{ratio(checked.measured)}</text>',
    ]


def _label(checked: BarResult) -> str:
    name = measure_name(checked)
    row = checked.bar.row.name
    return row if name in {"rate", "memory", "start"} else f"{row}, {name}"


def _description(shown: Sequence[BarResult], conditions: Conditions) -> str:
    told = [f"{_label(one)} {ratio(one.measured)} (bar {one.bar.shown})" for one in shown]
    return f"Ratios of ours to upstream, median of {conditions.rounds} rounds: {'; '.join(told)}."
