"""The topology at one moment as SVG: the bootstrap node on the left, the nodes on the right."""

from typing import Final

from umbilical.lab.report_style import box, drawing, element, line, path, text
from umbilical.lab.transcript import CallResult, Picture

WIDTH: Final = 570.0
_TOP: Final = 40.0
_ROW: Final = 46.0
_ROW_HEIGHT: Final = 38.0
_NODES_LEFT: Final = 270.0
_NODES_RIGHT: Final = 534.0
_RAIL: Final = 548.0
_BOOTSTRAP_LEFT: Final = 1.0
_BOOTSTRAP_RIGHT: Final = 157.0
_LEAST_ROWS: Final = 4
_CHIP_WIDTH: Final = 132.0
_GAP_MIDDLE: Final = (_BOOTSTRAP_RIGHT + _NODES_LEFT) / 2
_GOOD: Final = (CallResult.ALLOWED, CallResult.DENIED)
_CROSS: Final = "M-5 -5L5 5M5 -5L-5 5"


def topology(shown: Picture, caller: str = "kube-apiserver") -> str:
    """Draw it; `caller` is kube-apiserver or its stand-in."""
    nodes = [name for name in shown.nodes if name != "bootstrap"]
    height = _TOP + _ROW * max(len(nodes), _LEAST_ROWS) + 14
    places = {name: _TOP + _ROW * number for number, name in enumerate(nodes)}
    layers = (
        _rail(shown, places),
        _bootstrap(shown, caller, height),
        _cords(shown, places, height),
        *(_node(name, y, shown, caller) for name, y in places.items()),
        _direct(shown, places),
    )
    return drawing(WIDTH, height, described(shown, caller), *layers, style="topology")


def described(shown: Picture, caller: str) -> str:
    tunnel = f"server up, {len(shown.agents)} agents connected" if shown.server else "no tunnel"
    said = [tunnel, f"call from the bootstrap node's {caller}: {shown.call.value}"]
    if shown.production_call is not CallResult.NONE:
        said.append(f"call from the production {caller}: {shown.production_call.value}")
    return "; ".join(said)


def _server_y(height: float) -> float:
    return height - 76


def _bootstrap(shown: Picture, caller: str, height: float) -> str:
    top, bottom = _TOP, _server_y(height)
    middle = (_BOOTSTRAP_LEFT + _BOOTSTRAP_RIGHT) / 2
    parts = [
        text(_BOOTSTRAP_LEFT, _TOP - 14, "bootstrap", "machine"),
        box(_BOOTSTRAP_LEFT, top, _BOOTSTRAP_RIGHT - _BOOTSTRAP_LEFT, height - top - 22, "host", 8),
        _chip(_BOOTSTRAP_LEFT + 12, top + 12, _CHIP_WIDTH, caller, shown.apiserver),
        _chip(_BOOTSTRAP_LEFT + 12, bottom + 12, _CHIP_WIDTH, "server", shown.server, "server"),
    ]
    if shown.apiserver and shown.server:
        style = "way idle" if shown.call is CallResult.NONE else f"way {shown.call.value}"
        parts.append(line(middle, top + 42, middle, bottom + 5, style))
        parts.append(_tip(middle, bottom + 11, 90, style))
        parts.append(text(middle + 9, (top + bottom) / 2 + 32, "socket", "note"))
    return element("g", *parts)


def _is_carried(shown: Picture) -> bool:
    return shown.server and shown.call in _GOOD


def _tip(x: float, y: float, degrees: float, style: str) -> str:
    """Draw an arrow head with its point at (x, y)."""
    return path("M0 0L-8 -4V4Z", f"{style} tip", transform=f"translate({x:g} {y:g}) rotate({degrees:g})")


def _chip(x: float, y: float, width: float, name: str, is_there: bool, style: str = "") -> str:
    state = "here" if is_there else "absent"
    label = text(x + 26, y + 19, name, "name")
    dot = element("circle", cx=x + 14, cy=y + 14.5, r=4, class_="dot")
    return element("g", box(x, y, width, 29, "chip", 5), dot, label, class_=f"{state} {style}".strip())


def _node(name: str, y: float, shown: Picture, caller: str) -> str:
    parts = [
        box(_NODES_LEFT, y, _NODES_RIGHT - _NODES_LEFT, _ROW_HEIGHT, "host", 6),
        text(_NODES_LEFT + 10, y + 24, name, "machine"),
    ]
    if name in shown.agents:
        parts.append(_small(_NODES_LEFT + 82, y, "agent", "here server"))
    if shown.webhook == name:
        parts.append(_small(_NODES_LEFT + 140, y, "webhook", f"here {_verdict(shown)}"))
    elif shown.production_apiserver and name == shown.production_node:
        parts.append(_small(_NODES_LEFT + 140, y, caller, "here"))
    return element("g", *parts)


def _verdict(shown: Picture) -> str:
    call = shown.call if _is_carried(shown) else shown.production_call
    return call.value if call in _GOOD else ""


def _small(x: float, y: float, name: str, style: str) -> str:
    dot = element("circle", cx=x + 6, cy=y + 19.5, r=3.5, class_="dot")
    return element("g", dot, text(x + 15, y + 24, name, "name"), class_=style)


def _cords(shown: Picture, places: dict[str, float], height: float) -> str:
    """Draw a line from every agent to the server, with arrows at the server because agents dial."""
    agents = [name for name in shown.agents if name in places]
    if not shown.server or not agents:
        return ""
    start = _server_y(height) + 26.5
    style = f"way {shown.call.value}" if _is_carried(shown) else "way cord"
    cords = [_cord(places[name] + _ROW_HEIGHT / 2, start, style) for name in agents]
    many = "agent" if len(agents) == 1 else "agents"
    parts = [
        *cords,
        _broken(start) if shown.call is CallResult.UNREACHABLE else "",
        _tip(_BOOTSTRAP_RIGHT - 11, start, 180, style),
        text(_BOOTSTRAP_RIGHT + 6, height - 4, f"{len(agents)} {many}, mutual TLS", "note cord"),
    ]
    return element("g", *parts)


def _broken(y: float) -> str:
    """Draw a cross: the call did not come out of the tunnel."""
    return path(_CROSS, "way unreachable", transform=f"translate({_BOOTSTRAP_RIGHT + 16:g} {y:g})")


def _cord(y: float, start: float, style: str) -> str:
    left, right = _BOOTSTRAP_RIGHT - 12, _NODES_LEFT
    steps = f"M{right:g} {y:g}C{right - 52:g} {y:g} {left + 72:g} {start:g} {left + 8:g} {start:g}"
    return path(steps, style)


def _rail(shown: Picture, places: dict[str, float]) -> str:
    """Draw the pod network, which joins all nodes except the bootstrap node."""
    if not places:
        return ""
    ys = [y + _ROW_HEIGHT / 2 for y in places.values()]
    stubs = [line(_NODES_RIGHT, y, _RAIL, y, "rail") for y in ys]
    heading = text(_NODES_LEFT, _TOP - 14, "nodes", "machine")
    parts = [heading, line(_RAIL, min(ys), _RAIL, max(ys), "rail"), *stubs, _last_leg(shown, places)]
    label = text(
        0,
        0,
        "loopback" if shown.on_loopback else "pod network",
        "note",
        text_anchor="middle",
        transform=f"translate({_RAIL + 11:g} {(min(ys) + max(ys)) / 2:g}) rotate(90)",
    )
    return element("g", *parts, label)


def _last_leg(shown: Picture, places: dict[str, float]) -> str:
    """Colour the part of the pod network that answered calls used."""
    if shown.webhook not in places:
        return ""
    end = places[shown.webhook] + _ROW_HEIGHT / 2
    legs = []
    if shown.production_call in _GOOD and (source := shown.production_node) in places:
        start = places[source] + _ROW_HEIGHT / 2
        steps = f"M{_NODES_RIGHT:g} {start:g}H{_RAIL:g}V{end:g}H{_NODES_RIGHT:g}"
        legs.append(path(steps, f"way {shown.production_call.value}"))
    if _is_carried(shown):
        legs.append(line(_RAIL, end, _NODES_RIGHT, end, f"way {shown.call.value}"))
    return element("g", *legs) if legs else ""


def _direct(shown: Picture, places: dict[str, float]) -> str:
    """Draw the missing route from kube-apiserver to the pod."""
    if shown.server or not shown.apiserver or not places:
        return ""
    y = _TOP + 26.5
    x = 222.0
    if shown.call is not CallResult.UNREACHABLE:
        return text(_GAP_MIDDLE, y + 4, shown.gap, "note", text_anchor="middle")
    cross = path(_CROSS, "way unreachable", transform=f"translate({x:g} {y:g})")
    stub = line(_BOOTSTRAP_RIGHT - 11, y, x - 10, y, "way unreachable dashed")
    return element("g", stub, cross, text(_GAP_MIDDLE, y + 24, shown.gap, "note unreachable", text_anchor="middle"))
