"""Prometheus' text format 0.0.4: counters, gauges and histograms.

Families without a sample are left out, as the Go client does.
"""

from bisect import bisect_left
from collections.abc import Mapping

Labels = tuple[str, ...]


class Histogram:
    """Counts per bucket; made cumulative when rendered, to keep `observe` cheap."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.count = 0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds
        self.count += 1


class Exposition:
    """The families of one scrape."""

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}

    def counter(self, name: str, text: str, labels: Labels, samples: Mapping[Labels, float]) -> None:
        self._simple("counter", name, text, labels, samples)

    def gauge(self, name: str, text: str, labels: Labels, samples: Mapping[Labels, float]) -> None:
        self._simple("gauge", name, text, labels, samples)

    def single_gauge(self, name: str, text: str, value: float) -> None:
        self._simple("gauge", name, text, (), {(): value})

    def histogram(self, name: str, text: str, labels: Labels, samples: Mapping[Labels, Histogram]) -> None:
        used = {values: histogram for values, histogram in samples.items() if histogram.count}
        if used:
            lines = self._open("histogram", name, text)
            for values, histogram in sorted(used.items()):
                _histogram_lines(lines, name, (labels, values), histogram)

    def render(self) -> bytes:
        lines = [line for _, family in sorted(self._families.items()) for line in family]
        return ("\n".join(lines) + "\n").encode()

    def _simple(self, kind: str, name: str, text: str, labels: Labels, samples: Mapping[Labels, float]) -> None:
        if samples:
            lines = self._open(kind, name, text)
            for values, value in sorted(samples.items()):
                lines.append(f"{name}{_label_text(labels, values)} {_number(value)}")

    def _open(self, kind: str, name: str, text: str) -> list[str]:
        lines = [f"# HELP {name} {_escape_help(text)}", f"# TYPE {name} {kind}"]
        self._families[name] = lines
        return lines


def _histogram_lines(lines: list[str], name: str, labelled: tuple[Labels, Labels], histogram: Histogram) -> None:
    labels, values = labelled
    cumulative = 0
    for index, count in enumerate(histogram.counts):
        cumulative += count
        bound = _number(histogram.bounds[index]) if index < len(histogram.bounds) else "+Inf"
        lines.append(f"{name}_bucket{_label_text((*labels, 'le'), (*values, bound))} {cumulative}")
    lines.append(f"{name}_sum{_label_text(labels, values)} {_number(histogram.total)}")
    lines.append(f"{name}_count{_label_text(labels, values)} {histogram.count}")


def _label_text(labels: Labels, values: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in zip(labels, values, strict=True)) + "}"


def _escape(value: str) -> str:
    # Lone surrogates come from bytes that are not UTF-8; a scrape must not fail because of them.
    text = value.encode("utf-8", "replace").decode()
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def add(samples: dict[Labels, float], labels: Labels) -> None:
    samples[labels] = samples.get(labels, 0) + 1


def observe(samples: dict[Labels, Histogram], labels: Labels, bounds: tuple[float, ...], seconds: float) -> None:
    histogram = samples.get(labels)
    if histogram is None:
        histogram = samples[labels] = Histogram(bounds)
    histogram.observe(seconds)
