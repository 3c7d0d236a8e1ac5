"""The topology as text: the bootstrap node on the left, the nodes on the right, the tunnel between them."""

from dataclasses import dataclass
from typing import Final

from rich.text import Text

from umbilical.lab.transcript import CallResult, Picture

COLUMNS: Final = 78
BOOTSTRAP: Final = "bootstrap"
_CHIP: Final = 16
_GAP: Final = 16
_NAME: Final = 9
_LEAST_ROWS: Final = 4
_SERVER_ROW: Final = 2
_ANSWERS: Final = (CallResult.ALLOWED, CallResult.DENIED)

FAINT: Final = "dim"
CORD: Final = "blue"
STYLES: Final = {
    CallResult.NONE: FAINT,
    CallResult.UNREACHABLE: "red",
    CallResult.ALLOWED: "green",
    CallResult.DENIED: "yellow",
}


@dataclass(frozen=True)
class Glyphs:
    there: str
    absent: str
    corners: str
    """Top left, top right, bottom left, bottom right."""
    level: str
    upright: str
    cord: str
    tip_left: str
    tip_right: str
    tip_down: str
    dash: str
    cross: str
    tick: str
    done: str
    failed: str


UNICODE: Final = Glyphs("●", "○", "╭╮╰╯", "─", "│", "━", "◀", "→", "▼", "╌", "✗", "✓", "✓", "✗")
ASCII: Final = Glyphs("*", "o", "++++", "-", "|", "=", "<", "->", "v", "-", "x", "ok,", "[ok]", "[FAIL]")


def call_style(shown: Picture) -> str:
    return STYLES[shown.call] if shown.server and shown.call in _ANSWERS else CORD


def draw(shown: Picture, caller: str, glyphs: Glyphs = UNICODE) -> Text:
    """Draw in at most `COLUMNS` columns; the same nodes always give the same number of lines."""
    nodes = [name for name in shown.nodes if name != BOOTSTRAP]
    count = max(len(nodes), _LEAST_ROWS)
    left = _box(BOOTSTRAP, [_bootstrap_row(number, shown, caller, glyphs) for number in range(count)], glyphs)
    rows = [_node_row(name, shown, caller, glyphs) for name in nodes]
    right = _box("nodes", rows + [_padded(Text(), _NAME + 26)] * (count - len(rows)), glyphs)
    gaps = [_padded(_gap(number, shown, glyphs), _GAP) for number in range(-1, count + 1)]
    return Text("\n").join(Text.assemble("  ", *parts) for parts in zip(left, gaps, right, strict=True))


def routes(shown: Picture, caller: str, glyphs: Glyphs = UNICODE) -> list[Text]:
    """Draw the last call of each kube-apiserver as one line: its route and its result."""
    # A result that came through a removed tunnel is outdated.
    call = CallResult.NONE if shown.call in _ANSWERS and not shown.server else shown.call
    return [
        Text(f"  {BOOTSTRAP:<12}") + route(call, caller, through=shown.server, glyphs=glyphs),
        Text(f"  {'production':<12}") + route(shown.production_call, caller, through=False, glyphs=glyphs),
    ]


def route(call: CallResult, caller: str, *, through: bool, glyphs: Glyphs) -> Text:
    if call is CallResult.NONE:
        return Text("no call", FAINT)
    if call is CallResult.UNREACHABLE:
        hops, sign = f"{caller} {glyphs.dash * 3}{glyphs.cross} webhook", glyphs.cross
    else:
        between = ["server", "agent"] if through else []
        hops, sign = f" {glyphs.tip_right} ".join([caller, *between, "webhook"]), glyphs.tick
    return Text.assemble(f"{hops:<46}", (f"{sign} {call.value}", f"bold {STYLES[call]}"))


def _box(title: str, rows: list[Text], glyphs: Glyphs) -> list[Text]:
    width = len(rows[0]) + 2
    top = Text.assemble(
        (glyphs.corners[0], FAINT), f" {title} ", (glyphs.level * (width - len(title) - 2) + glyphs.corners[1], FAINT)
    )
    bottom = Text(glyphs.corners[2] + glyphs.level * width + glyphs.corners[3], FAINT)
    edge = (glyphs.upright, FAINT)
    return [top, *(Text.assemble(edge, " ", row, " ", edge) for row in rows), bottom]


def _padded(text: Text, width: int) -> Text:
    padded = text.copy()
    padded.append(" " * max(0, width - len(text)))
    return padded


def _chip(name: str, is_there: bool, glyphs: Glyphs, style: str = "") -> Text:
    mark = glyphs.there if is_there else glyphs.absent
    return Text(f"{mark} {name}", style if is_there else FAINT)


def _bootstrap_row(number: int, shown: Picture, caller: str, glyphs: Glyphs) -> Text:
    cells = {0: _chip(caller, shown.apiserver, glyphs), _SERVER_ROW: _chip("server", shown.server, glyphs, CORD)}
    if shown.apiserver and shown.server:
        cells[1] = Text(f"{glyphs.tip_down} socket", call_style(shown) if shown.call in _ANSWERS else FAINT)
    return _padded(cells.get(number, Text()), _CHIP)


def _node_row(name: str, shown: Picture, caller: str, glyphs: Glyphs) -> Text:
    agent = _chip("agent", True, glyphs, CORD) if name in shown.agents else Text()
    other = Text()
    if name == shown.webhook:
        other = _chip("webhook", True, glyphs, _webhook_style(shown))
    elif shown.production_apiserver and name == shown.production_node:
        other = _chip(caller, True, glyphs)
    return Text.assemble(_padded(Text(name[:_NAME]), _NAME), _padded(agent, 8), " ", _padded(other, _CHIP + 1))


def _webhook_style(shown: Picture) -> str:
    call = shown.call if shown.server else shown.production_call
    return STYLES[call] if call in _ANSWERS else ""


def _gap(number: int, shown: Picture, glyphs: Glyphs) -> Text:
    if number == 0 and shown.apiserver and not shown.server:
        return _no_route(shown, glyphs)
    if not shown.server or number not in (_SERVER_ROW, _SERVER_ROW + 1):
        return Text()
    if not shown.agents:
        return Text(" no agent yet" if number == _SERVER_ROW else "", FAINT)
    if number == _SERVER_ROW:
        return Text(glyphs.tip_left + glyphs.cord * (_GAP - 1), call_style(shown))
    many = "agent" if len(shown.agents) == 1 else "agents"
    return Text(f" {len(shown.agents)} {many}, mTLS".ljust(_GAP), FAINT)


def _no_route(shown: Picture, glyphs: Glyphs) -> Text:
    if shown.call is not CallResult.UNREACHABLE:
        return Text(f"   {shown.gap}", FAINT)
    return Text(f"{glyphs.dash * 3}{glyphs.cross} {shown.gap}", "red")
