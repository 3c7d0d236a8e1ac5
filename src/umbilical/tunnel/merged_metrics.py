"""The metrics of several processes as those of one server, from their own texts.

Counters and histograms are summed, and those of a process that has ended stay in the sum, so that none ever falls.
Gauges are summed, except those of which a sum says nothing.
"""

from typing import Final

Samples = dict[str, float]
"""By name and labels, as in the text."""

_LARGEST: Final = frozenset(
    {
        "konnectivity_network_proxy_server_ready_backends",
        "konnectivity_network_proxy_server_ready_backend_connections",
        "umbilical_build_info",
    }
)
"""Every worker has all agents, or soon will: a sum would count each several times."""
_SMALLEST: Final = frozenset({"process_start_time_seconds", "umbilical_certificate_expiry_timestamp_seconds"})


class MetricFamily:
    def __init__(self, head: list[str], kind: str) -> None:
        self.head: Final = head
        self.kind: Final = kind
        self.samples: Final[Samples] = {}

    @property
    def only_grows(self) -> bool:
        return self.kind in ("counter", "histogram")

    def add(self, name: str, other: Samples) -> None:
        mine = self.samples
        for sample, value in other.items():
            if sample not in mine:
                mine[sample] = value
            elif name in _LARGEST:
                mine[sample] = max(mine[sample], value)
            elif name in _SMALLEST:
                mine[sample] = min(mine[sample], value)
            else:
                mine[sample] += value


Families = dict[str, MetricFamily]


def parse(text: str) -> Families:
    """Read what `Exposition` writes."""
    families: Families = {}
    head: list[str] = []
    family = MetricFamily([], "untyped")
    for line in text.split("\n"):
        if line.startswith("# HELP "):
            head = [line]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            family = families[name] = MetricFamily([*head, line], kind)
        elif line:
            sample, _, value = line.rpartition(" ")
            family.samples[sample] = float(value)
    return families


def merge(parts: list[Families]) -> Families:
    merged: Families = {}
    for part in parts:
        for name, family in part.items():
            if name not in merged:
                merged[name] = MetricFamily(family.head, family.kind)
            merged[name].add(name, family.samples)
    return merged


def growing(families: Families) -> Families:
    """What stays of a process that has ended."""
    return {name: family for name, family in families.items() if family.only_grows}


def render(families: Families) -> bytes:
    lines: list[str] = []
    for _, family in sorted(families.items()):
        lines += family.head
        lines += [f"{sample} {_number(value)}" for sample, value in family.samples.items()]
    return ("\n".join(lines) + "\n").encode()


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
