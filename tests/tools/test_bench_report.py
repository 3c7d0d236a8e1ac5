"""The report of the benchmark: tables and plots."""

import json
from xml.etree import ElementTree

import pytest
from tests.support.bench_samples import CONDITIONS, DOWNLOAD, ECHO, IDLE, both, rate

import bench_plot
import bench_report
import bench_run
import bench_tables
from bench_report import BEGIN, END
from bench_rows import BESIDE, CROWD, GROWTH, LIMIT, OUR_SERVER, OURS, STUCK, UPSTREAM, Results
from bench_tables import Table


def test_a_generator_as_costly_as_upstreams_tunnel_is_marked() -> None:
    results = Results()
    results.add(ECHO, UPSTREAM, 1, rate(100.0, cost=10.0, generator=9.9))
    results.add(ECHO, OURS, 1, rate(100.0, cost=3.0, generator=10.0))
    assert "10.0!" in bench_report.text(results, CONDITIONS)
    assert any(note.startswith("! the generator") for note in bench_report.remarks(results))


def test_the_report_closes_with_how_many_bars_were_met_if_any() -> None:
    results = both([100.0], [160.0])
    results.fail([DOWNLOAD], OURS, 1, "it broke")
    # The rate is met; the cost of ours is upstream's, which is too much; the mixed pairs were not measured.
    assert bench_report.remarks(results)[-1] == "1 of 2 bars met"
    assert bench_report.text(results, CONDITIONS).endswith("* 1 of 2 bars met\n")
    assert bench_report.remarks(Results()) == []


def test_a_busy_machine_is_named() -> None:
    results = Results()
    results.add(ECHO, UPSTREAM, 1, rate(100.0, others=0.7))
    assert bench_report.remarks(results) == [
        "the machine was not idle; cores used by others: http-connect echo 16 0.70"
    ]


def test_the_text_table_is_aligned_and_leaves_out_what_was_not_measured() -> None:
    shown = bench_report.text(both([100.0], [150.0]), CONDITIONS)
    header, rule, line = next(
        lines for lines in zip(*[shown.splitlines()[i:] for i in range(3)], strict=False) if lines[1].startswith("---")
    )
    assert len(header) == len(rule) == len(line)
    assert line.split()[:7] == ["http-connect", "echo", "16", "100", "150", "/s", "1.50"]
    assert "Mixed pairs" not in shown
    assert "Memory" not in shown


def test_cost_and_memory_per_thousand_requests_a_second_follow_from_the_other_rows() -> None:
    results = both([100.0], [150.0])
    assert "Per 1,000 requests" not in bench_report.text(results, CONDITIONS)
    for row, values in ((IDLE, (60.0, 50.0)), (GROWTH[0], (50.0, 8.0))):
        for pair, value in zip((UPSTREAM, OURS), values, strict=True):
            results.add(row, pair, 1, {"value": value})
    [table] = [table for table in bench_tables.tables(results, CONDITIONS) if table.title.startswith("Per 1,000")]
    # 10 us for each of 1,000 exchanges; 16 of the 1,000 tunnels whose growth was measured.
    assert table.lines == [["http-connect echo 16", "0.010", "0.010", "60.8", "50.1"]]


def test_every_markdown_table_has_as_many_cells_in_each_line() -> None:
    shown = bench_report.markdown(both([100.0], [150.0], DOWNLOAD), CONDITIONS)
    tables = [block.splitlines() for block in shown.split("\n\n") if block.startswith("|")]
    assert len(tables) == 2
    assert all(len({line.count("|") for line in table}) == 1 for table in tables)
    assert tables[0][2].startswith("| http-connect download 8 | 100 | 150 | MB/s | 1.50 |")


def test_the_json_holds_medians_ratios_bars_and_every_sample() -> None:
    results = both([100.0, 110.0, 120.0], [220.0, 110.0, 330.0])
    results.fail([DOWNLOAD], OURS, 2, "it broke")
    document = json.loads(bench_report.as_json(results, CONDITIONS))
    ours = document["rows"]["http-connect echo 16"]["pairs"]["ours"]
    assert (ours["median"]["value"], ours["ratio"]["value"]) == (220.0, 2.0)
    assert [sample["round"] for sample in ours["samples"]] == [1, 2, 3]
    assert document["failures"] == [{"row": "http-connect download 8", "pair": "ours", "round": 2, "why": "it broke"}]
    bar = {"row": "http-connect echo 16", "pair": "ours", "measure": "rate"}
    assert document["bars"][0] == {**bar, "measured": 2.0, "bar": ">= 1.5", "met": "yes"}


def test_tables_go_between_both_markers_and_the_rest_stays() -> None:
    first = bench_report.into(f"before\n{BEGIN}\n{END}\nafter\n", "one\n")
    assert first == f"before\n{BEGIN}\n\none\n\n{END}\nafter\n"
    assert bench_report.into(first, "two\n") == first.replace("one", "two")
    begin, end = f"{BEGIN}\n", f"{END}\n"
    for document in ("", begin, end, end + begin, begin + begin + end, begin + end + end):
        with pytest.raises(bench_report.NoMarkers):
            bench_report.into(document, "one\n")


def test_numbers_have_three_or_four_digits() -> None:
    for value, shown in (
        *((None, "-"), (0.123, "0.12"), (9.994, "9.99"), (45.67, "45.7"), (262.4, "262"), (34900.0, "34,900")),
        (-12.3, "-12.3"),
    ):
        assert bench_tables.number(value) == shown


def _table(results: Results, name: str) -> Table:
    (found,) = (table for table in bench_tables.tables(results, CONDITIONS) if table.title.startswith(name))
    return found


def _line(table: Table, number: int = 0) -> dict[str, str]:
    return dict(zip(table.header, table.lines[number], strict=True))


def test_the_limit_is_shown_beside_the_rows_that_it_was_measured_in() -> None:
    results = both([100.0], [300.0], DOWNLOAD)
    results.add(DOWNLOAD, LIMIT, 1, rate(600.0))
    table = _table(results, "Limit")
    assert len(table.lines) == 1
    assert _line(table) | {"haproxy": "600", "ours to haproxy": "0.50"} == _line(table)


def test_a_mixed_pair_is_shown_as_a_ratio_to_upstream() -> None:
    results = both([100.0], [300.0])
    results.add(ECHO, OUR_SERVER, 1, rate(90.0))
    mixed = _line(_table(results, "Mixed"))
    assert (mixed["our server, their agent"], mixed["their server, our agent"]) == ("0.90", "-")


def test_an_echo_beside_bulk_is_shown_with_the_bulk() -> None:
    results = Results()
    for pair, p99 in ((UPSTREAM, 400.0), (OURS, 100.0)):
        results.add(BESIDE[0], pair, 1, {**rate(9.0), "p99_us": p99, "bulk": 700.0})
    line = _table(results, "Beside").lines[0]
    assert line[:7] == ["echo beside 8 downloads", "5.00", "5.00", "1.00", "400", "100", "0.25"]
    assert line[7:9] == ["700", "700"]


def _stuck(unfinished: float) -> dict[str, float]:
    window = {"rate": 100.0, "p50_us": 200.0, "p99_us": 300.0, "longest_us": 400.0}
    beside = {**window, "p99_us": 900.0, "longest_us": 990.0, "unfinished": unfinished}
    growth = {"server": 20.0, "agent": 10.0, "value": 30.0}
    return bench_run.stuck_sample(window, window, beside, growth, 128)


def test_a_stuck_sample_compares_the_echo_with_itself_alone_and_the_memory_with_its_bound() -> None:
    sample = _stuck(0.0)
    assert sample["times_alone"] == 3.0
    assert sample["longest_us"] == 990.0
    assert sample["bound"] == pytest.approx(128 * 2.097152 + 2 * 0.786432)
    assert sample["of_bound"] == pytest.approx(30.0 / sample["bound"])


def test_what_a_window_cut_short_is_shown_as_at_least() -> None:
    results = Results()
    results.add(STUCK, UPSTREAM, 1, _stuck(1.0))
    results.add(STUCK, OURS, 1, _stuck(0.0))
    theirs, ours = (_line(_table(results, "Stuck"), number) for number in (0, 1))
    assert (theirs["p99"], theirs["cut short"], theirs["bound"]) == (">900", "1", "-")
    assert (ours["p99"], ours["cut short"], ours["bound"]) == ("900", "0", "270")


def test_a_crowd_is_compared_with_one_agent() -> None:
    results = Results()
    for number, crowd in enumerate((90.0, 70.0, 80.0), 1):
        against = bench_run.crowd_against(rate(crowd), rate(100.0, cost=8.0))
        results.add(CROWD[0], OURS, number, {**rate(crowd), **against})
    line = _line(_table(results, "Size"))
    assert (line["one agent"], line["crowd"], line["ratio"], line["rounds"]) == ("100", "80.0", "0.80", "0.70..0.90")
    assert (line["cost one"], line["cost crowd"]) == ("8.00", "10.0")


def test_each_bar_reports_what_was_measured_and_whether_that_is_enough() -> None:
    lines = _table(both([100.0], [160.0]), "Bars").lines
    assert lines[:2] == [
        ["http-connect echo 16", "ours", "rate", "1.60", ">= 1.5", "yes"],
        ["http-connect echo 16", "ours", "CPU", "1.00", "<= 0.55", "NO"],
    ]
    assert {line[-1] for line in lines[2:]} == {"not measured"}


def test_a_number_close_to_its_bar_has_the_digits_that_its_verdict_needs() -> None:
    missed = _table(both([1000.0], [1499.0]), "Bars").lines[0]
    assert missed[3:] == ["1.499", ">= 1.5", "NO"]


SVG = "{http://www.w3.org/2000/svg}"


def _drawn(results: Results) -> ElementTree.Element:
    return ElementTree.fromstring(bench_plot.svg(results, CONDITIONS))


def test_each_bar_has_a_length_a_mark_and_a_number_and_the_picture_shows_them() -> None:
    root = _drawn(both([100.0], [160.0]))
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") in {"met", "missed"}]
    marks = [line for line in root.iter(f"{SVG}line") if line.get("class") == "mark"]
    assert [bar.get("class") for bar in bars] == ["met", "missed"]
    assert len(marks) == 2
    assert float(bars[0].get("x", "0")) == bench_plot.x_of(1.0)
    assert float(bars[0].get("width", "0")) == pytest.approx(bench_plot.x_of(1.6) - bench_plot.x_of(1.0), abs=0.2)
    assert {"1.60", "1.00"} <= {text.text for text in root.iter(f"{SVG}text")}
    root = _drawn(both([100.0], [160.0]))
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title")
    assert "http-connect echo 16 1.60 (bar >= 1.5)" in (root.findtext(f"{SVG}desc") or "")


def test_what_is_better_when_smaller_goes_left_and_what_is_off_the_scale_is_drawn_at_its_end() -> None:
    root = _drawn(both([100.0], [50.0], IDLE))
    (bar,) = (rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "met")
    assert float(bar.get("x", "0")) == bench_plot.x_of(0.5) < bench_plot.x_of(1.0)
    doubled = [bench_plot.x_of(2 * value) - bench_plot.x_of(value) for value in (1.0, 4.0)]
    assert doubled[0] == pytest.approx(doubled[1], abs=0.2), "a doubling is as long everywhere"
    assert bench_plot.x_of(1000.0) == bench_plot.x_of(bench_plot.HIGHEST)
    assert bench_plot.x_of(0.0) == bench_plot.x_of(bench_plot.LOWEST)


def test_it_is_readable_in_light_and_dark_and_without_anything_measured() -> None:
    shown = bench_plot.svg(Results(), CONDITIONS)
    assert "prefers-color-scheme: dark" in shown
    assert "v0 &amp; more" in shown
    ElementTree.fromstring(shown)
