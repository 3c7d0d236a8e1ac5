"""SVG as text: elements with escaped attributes, and the few shapes that our pictures are made of.

Colours are classes: the page that holds a picture says what they look like by day, by night and on paper.
"""

from html import escape


def element(name: str, *children: str, **attributes: object) -> str:
    """Write one element. `class_` and `text_anchor` become `class` and `text-anchor`; children are SVG already."""
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


def picture(width: float, height: float, label: str, *children: str, style: str = "") -> str:
    """Frame a drawing; `label` is what somebody hears who cannot see it."""
    frame = {"viewBox": f"0 0 {_number(width)} {_number(height)}", "role": "img", "aria_label": label}
    return element("svg", *children, **frame, **_styled(style))


def _styled(style: str) -> dict[str, object]:
    return {"class_": style} if style else {}


def _spelled(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _number(value: object) -> str:
    # Two decimals are a hundredth of a pixel; more only makes pages long.
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
