import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.tunnel.exposition import Exposition, Histogram, Labels, add, observe


@given(st.lists(st.floats(0, 100)))
def test_a_histogram_counts_every_value_in_its_bucket(values: list[float]) -> None:
    bounds = (0.1, 1.0, 10.0)
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    cumulative = [sum(histogram.counts[: index + 1]) for index in range(4)]
    assert cumulative == [sum(value <= bound for value in values) for bound in (*bounds, math.inf)]
    assert histogram.count == len(values)
    assert histogram.total == pytest.approx(sum(values))


def test_families_come_in_the_order_of_their_names_and_samples_in_that_of_their_labels() -> None:
    out = Exposition()
    out.gauge("zebras", "How many.", ("stripes",), {("few",): 2, ("any",): 1.5})
    out.counter("apes_total", "How many\nby now.", (), {(): 3})
    assert out.render().decode().splitlines() == [
        "# HELP apes_total How many\\nby now.",
        "# TYPE apes_total counter",
        "apes_total 3",
        "# HELP zebras How many.",
        "# TYPE zebras gauge",
        'zebras{stripes="any"} 1.5',
        'zebras{stripes="few"} 2',
    ]


def test_a_family_without_a_sample_is_left_out() -> None:
    out = Exposition()
    out.gauge("empty", "Nothing.", (), {})
    out.histogram("unused", "Nothing.", (), {(): Histogram((1.0,))})
    assert out.render() == b"\n"


def test_samples_gather_by_their_labels() -> None:
    counts: dict[Labels, float] = {}
    for name in ("a", "b", "a"):
        add(counts, (name,))
    assert counts == {("a",): 2, ("b",): 1}
    seconds: dict[Labels, Histogram] = {}
    observe(seconds, ("a",), (1.0,), 0.5)
    observe(seconds, ("a",), (1.0,), 2.0)
    assert seconds["a",].counts == [1, 1]
