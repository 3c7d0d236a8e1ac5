"""Style of the report (light, dark and print), and SVG elements for its drawings."""

from html import escape
from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --paper: #fbfbfa; --card: #ffffff; --ink: #1b1f24; --soft: #5b6470; --faint: #8b939d; --rule: #e3e5e8;
  --cord: #2457c5; --good: #18794e; --no: #9a6700; --bad: #c3362b; --bar: #6f9bea; --host: #f4f5f6; --chip: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --card: #1b1f24; --ink: #e6e8ea; --soft: #a5adb7; --faint: #79828d; --rule: #30363d;
    --cord: #79a7ff; --good: #4cc38a; --no: #e0a93b; --bad: #ff7b6e; --bar: #4069b5; --host: #20252b; --chip: #2a3038;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 ui-sans-serif, system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums;
}
main { max-width: 1120px; margin: 0 auto; padding: 48px 32px 64px; }
header p { margin: 0; color: var(--soft); max-width: 46em; }
.eyebrow { font-size: 13px; letter-spacing: .04em; color: var(--faint); }
h1 { font-size: 34px; line-height: 1.15; letter-spacing: -.015em; font-weight: 650; margin: 6px 0 10px; }
h2 { font-size: 19px; letter-spacing: -.005em; font-weight: 650; margin: 52px 0 4px; }
h2 + p { margin: 0 0 18px; color: var(--soft); max-width: 46em; }
.verdict { font-weight: 600; }
.verdict.done { color: var(--good); }
.verdict.failed { color: var(--bad); }
.notice { margin-top: 18px; padding: 12px 16px; border-left: 3px solid var(--no); background: var(--card); }
code, pre { font: 13px/1.5 ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace; }
dl { display: flex; flex-wrap: wrap; gap: 18px 44px; margin: 28px 0 0; padding: 18px 0 0; }
dl { border-top: 1px solid var(--rule); }
dt { color: var(--soft); font-size: 14px; }
dd { margin: 0; font-size: 20px; line-height: 1.3; font-weight: 600; }
.moments { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(480px, 100%), 1fr)); gap: 24px; }
figure, .wide { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
figure { margin: 0; padding: 18px 20px 16px; }
figcaption { margin-bottom: 12px; color: var(--soft); font-size: 14px; line-height: 1.45; }
figcaption b { display: block; color: var(--ink); font-size: 16px; font-weight: 600; }
figcaption a { color: inherit; }
blockquote { margin: 12px 0 0; padding: 0 0 0 12px; border-left: 2px solid var(--rule); overflow-wrap: anywhere; }
blockquote code { color: var(--soft); }
svg { display: block; width: 100%; height: auto; font-size: 13px; }
svg text { fill: var(--ink); }
.wide { overflow-x: auto; padding: 18px 20px 12px; }
.wide svg { min-width: 860px; }
.timeline .grid { stroke: var(--rule); }
.timeline .tick, .timeline .count, .timeline .duration { fill: var(--faint); font-size: 12px; }
.timeline .title { fill: var(--ink); font-size: 12.5px; }
.timeline a { text-decoration: none; }
.timeline a:hover .title { text-decoration: underline; }
.timeline .bar { fill: var(--bar); }
.timeline .bar.failed { fill: var(--bad); }
.timeline .bar.running { fill: var(--faint); }
.timeline .row.failed .title, .timeline .row.failed .duration { fill: var(--bad); font-weight: 600; }
.timeline .unreachable { fill: var(--bad); font-weight: 600; }
.timeline .allowed { fill: var(--good); font-weight: 600; }
.timeline .denied { fill: var(--no); font-weight: 600; }
.topology .host { fill: var(--host); stroke: var(--rule); }
.topology { font-size: 12.5px; }
.topology .machine { font-weight: 600; }

.topology .note { fill: var(--faint); font-size: 12px; }
.topology .note.cord { fill: var(--soft); }
.topology .note.unreachable { fill: var(--bad); font-weight: 600; font-size: 13px; }
.topology .chip { fill: var(--chip); stroke: var(--rule); }
.topology .dot { fill: var(--ink); }
.topology .server .dot { fill: var(--cord); }
.topology .server .name { fill: var(--cord); }
.topology .here.server .chip { stroke: var(--cord); }
.topology .absent .chip { fill: none; stroke-dasharray: 3 3; }
.topology .absent .dot { fill: none; stroke: var(--faint); }
.topology .absent .name { fill: var(--faint); }
.topology .allowed .dot { fill: var(--good); }
.topology .denied .dot { fill: var(--no); }
.topology .allowed .name { fill: var(--good); font-weight: 600; }
.topology .denied .name { fill: var(--no); font-weight: 600; }
.topology .rail { stroke: var(--rule); stroke-width: 2; }
.way { fill: none; stroke: var(--faint); stroke-width: 1.8; stroke-linecap: round; }
.way.cord { stroke: var(--cord); }
.way.allowed { stroke: var(--good); stroke-width: 2.2; }
.way.denied { stroke: var(--no); stroke-width: 2.2; }
.way.unreachable { stroke: var(--bad); stroke-width: 2.4; }
.way.dashed { stroke-dasharray: 5 5; stroke-width: 2; }
.way.tip { stroke: none; fill: var(--faint); }
.way.tip.cord { fill: var(--cord); }
.way.tip.allowed { fill: var(--good); }
.way.tip.denied { fill: var(--no); }
.way.tip.unreachable { fill: var(--bad); }
ol.steps { list-style: none; margin: 0; padding: 0; border-top: 1px solid var(--rule); }
ol.steps li { border-bottom: 1px solid var(--rule); }
ol.steps li:target { background: var(--card); }
summary, .bare { display: flex; gap: 12px; align-items: baseline; padding: 9px 4px; }
summary { cursor: pointer; }
summary::-webkit-details-marker { display: none; }
summary .title { text-decoration: underline; text-decoration-color: var(--rule); text-underline-offset: 4px; }
summary:hover .title { text-decoration-color: currentColor; }
.sign { width: 1.2em; font-weight: 700; }
.sign.done { color: var(--good); }
.sign.failed { color: var(--bad); }
.sign.running { color: var(--faint); }
.number { width: 1.6em; text-align: right; color: var(--faint); font-size: 14px; }
.title { flex: 1; }
.time { color: var(--soft); font-size: 14px; white-space: nowrap; }
pre {
  margin: 0 0 12px 62px; padding: 10px 14px; background: var(--card); border: 1px solid var(--rule); border-radius: 6px;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
footer { margin-top: 48px; color: var(--faint); font-size: 13px; }
@media (max-width: 640px) { main { padding: 28px 16px 40px; } h1 { font-size: 27px; } pre { margin-left: 0; } }
@media print {
  :root {
    --paper: #fff; --card: #fff; --ink: #000; --soft: #333; --faint: #666; --rule: #bbb; --host: #f2f2f2; --chip: #fff;
    --cord: #1a47a8; --good: #12633f; --no: #7d5300; --bad: #a81f15; --bar: #7da3e6; color-scheme: light;
  }
  body { font-size: 10.5pt; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  .moments { grid-template-columns: 1fr 1fr; gap: 12px; }
  figure, .wide, li { break-inside: avoid; }
  h2, h2 + p { break-after: avoid; }
  code, pre { font-size: 8.5pt; }
  pre { margin-bottom: 8px; padding: 6px 10px; }
  summary, .bare { padding: 5px 4px; }
  h2 { margin-top: 30px; }
  .wide svg { min-width: 0; }
  details::details-content { content-visibility: visible; display: block; height: auto; }
}
"""


def element(name: str, *children: str, **attributes: object) -> str:
    """Write one element. `class_` and `text_anchor` become `class` and `text-anchor`; children are SVG text."""
    words = "".join(f' {_spelled(key)}="{escape(_number(value))}"' for key, value in attributes.items())
    return f"<{name}{words}>{''.join(children)}</{name}>" if children else f"<{name}{words}/>"


def text(x: float, y: float, words: str, style: str = "", **attributes: object) -> str:
    return element("text", escape(words), x=x, y=y, **_styled(style), **attributes)


def line(x1: float, y1: float, x2: float, y2: float, style: str, **attributes: object) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=style, **attributes)


def path(steps: str, style: str, **attributes: object) -> str:
    return element("path", d=steps, class_=style, **attributes)


def box(x: float, y: float, width: float, height: float, style: str, radius: float = 6) -> str:
    return element("rect", x=x, y=y, width=width, height=height, rx=radius, class_=style)


def drawing(width: float, height: float, label: str, *children: str, style: str = "") -> str:
    """Frame a drawing; `label` is for screen readers."""
    frame = {"viewBox": f"0 0 {_number(width)} {_number(height)}", "role": "img", "aria_label": label}
    return element("svg", *children, **frame, **_styled(style))


def _styled(style: str) -> dict[str, object]:
    return {"class_": style} if style else {}


def _spelled(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _number(value: object) -> str:
    # Two decimals are enough for a pixel.
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
