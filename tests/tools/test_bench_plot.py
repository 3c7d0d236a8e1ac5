from xml.etree import ElementTree

import pytest
from tests.support.bench_samples import CONDITIONS, IDLE, both

import bench_plot
from bench_rows import Results

SVG = "{http://www.w3.org/2000/svg}"


def _drawn(results: Results) -> ElementTree.Element:
    return ElementTree.fromstring(bench_plot.svg(results, CONDITIONS))


def test_the_picture_has_a_title_and_a_description_that_tells_the_numbers() -> None:
    root = _drawn(both([100.0], [160.0]))
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title")
    assert "http-connect echo 16 1.60 (bar >= 1.5)" in (root.findtext(f"{SVG}desc") or "")


def test_each_bar_has_a_length_a_mark_and_a_number() -> None:
    root = _drawn(both([100.0], [160.0]))
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") in {"met", "missed"}]
    marks = [line for line in root.iter(f"{SVG}line") if line.get("class") == "mark"]
    assert [bar.get("class") for bar in bars] == ["met", "missed"]
    assert len(marks) == 2
    assert float(bars[0].get("x", "0")) == bench_plot.x_of(1.0)
    assert float(bars[0].get("width", "0")) == pytest.approx(bench_plot.x_of(1.6) - bench_plot.x_of(1.0), abs=0.2)
    assert {"1.60", "1.00"} <= {text.text for text in root.iter(f"{SVG}text")}


def test_what_is_better_when_smaller_goes_to_the_left() -> None:
    root = _drawn(both([100.0], [50.0], IDLE))
    (bar,) = (rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "met")
    assert float(bar.get("x", "0")) == bench_plot.x_of(0.5) < bench_plot.x_of(1.0)


def test_a_doubling_is_as_long_everywhere_and_what_is_off_the_scale_stands_at_its_end() -> None:
    step = bench_plot.x_of(2.0) - bench_plot.x_of(1.0)
    assert bench_plot.x_of(8.0) - bench_plot.x_of(4.0) == pytest.approx(step, abs=0.2)
    assert bench_plot.x_of(1000.0) == bench_plot.x_of(bench_plot.HIGHEST)
    assert bench_plot.x_of(0.0) == bench_plot.x_of(bench_plot.LOWEST)


def test_it_is_readable_in_light_and_dark_and_without_anything_measured() -> None:
    shown = bench_plot.svg(Results(), CONDITIONS)
    assert "prefers-color-scheme: dark" in shown
    assert "v0 &amp; more" in shown
    ElementTree.fromstring(shown)
