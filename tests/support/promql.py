"""What a PromQL expression asks for: metrics with matchers, labels that it groups by. As much as tests need."""

import re
from dataclasses import dataclass
from typing import Final

_SELECTOR: Final = re.compile(
    r"(?<![\w\"])([a-z][a-z0-9_]+)\{([^}]*)\}|\b((?:konnectivity|umbilical|process)_[a-z0-9_]+)\b"
)
_MATCHER: Final = re.compile(r"(\w+)\s*(=~|!~|!=|=)\s*\"([^\"]*)\"")
_GROUPING: Final = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")


@dataclass(frozen=True)
class Matcher:
    label: str
    operator: str
    value: str


@dataclass(frozen=True)
class Selector:
    metric: str
    matchers: tuple[Matcher, ...]


def selectors(expression: str) -> list[Selector]:
    found = []
    for match in _SELECTOR.finditer(expression):
        matchers = tuple(Matcher(*parts) for parts in _MATCHER.findall(match[2] or ""))
        found.append(Selector(match[1] or match[3], matchers))
    return found


def grouping_labels(expression: str) -> set[str]:
    groups = _GROUPING.findall(expression)
    return {label.strip() for group in groups for label in group.split(",") if label.strip()}


def label_names(exposition: str) -> dict[str, set[str]]:
    """The labels of each metric in Prometheus' text format, by the name that a query uses."""
    return {metric: {label for label, _ in pairs} for metric, pairs in label_values(exposition).items()}


def label_values(exposition: str) -> dict[str, set[tuple[str, str]]]:
    found: dict[str, set[tuple[str, str]]] = {}
    for line in exposition.splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{") if "{" in line else (line.partition(" ")[0], "", "")
            pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', rest)
            found.setdefault(name, set()).update(pairs)
    return found
