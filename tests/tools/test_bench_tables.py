import pytest
from tests.support.bench_samples import CONDITIONS, DOWNLOAD, ECHO, both, rate

import bench_run
import bench_tables
from bench_rows import BESIDE, CROWD, LIMIT, OUR_SERVER, OURS, STUCK, UPSTREAM, Results
from bench_tables import Table


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.123, "0.12"),
        (9.994, "9.99"),
        (45.67, "45.7"),
        (262.4, "262"),
        (34900.0, "34,900"),
        (-12.3, "-12.3"),
    ],
)
def test_numbers_have_three_or_four_digits(value: float | None, shown: str) -> None:
    assert bench_tables.number(value) == shown


def _table(results: Results, name: str) -> Table:
    (found,) = (table for table in bench_tables.tables(results, CONDITIONS) if table.title.startswith(name))
    return found


def _line(table: Table, number: int = 0) -> dict[str, str]:
    return dict(zip(table.header, table.lines[number], strict=True))


def test_the_limit_stands_beside_the_rows_that_it_was_measured_in() -> None:
    results = both([100.0], [300.0], DOWNLOAD)
    results.add(DOWNLOAD, LIMIT, 1, rate(600.0))
    table = _table(results, "Limit")
    assert len(table.lines) == 1
    assert _line(table) | {"haproxy": "600", "ours to haproxy": "0.50"} == _line(table)


def test_a_mixed_pair_is_shown_as_a_ratio_to_upstream() -> None:
    results = both([100.0], [300.0])
    results.add(ECHO, OUR_SERVER, 1, rate(90.0))
    assert _line(_table(results, "Mixed"))["our server, their agent"] == "0.90"
    assert _line(_table(results, "Mixed"))["their server, our agent"] == "-"


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


def test_each_bar_says_what_was_measured_and_whether_that_is_enough() -> None:
    lines = _table(both([100.0], [160.0]), "Bars").lines
    assert lines[:2] == [
        ["http-connect echo 16", "ours", "rate", "1.60", ">= 1.5", "yes"],
        ["http-connect echo 16", "ours", "CPU", "1.00", "<= 0.55", "NO"],
    ]
    assert {line[-1] for line in lines[2:]} == {"not measured"}
