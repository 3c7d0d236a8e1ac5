import pytest
from tests.support.bench_samples import DOWNLOAD, ECHO, both, rate

import bench_rows
from bench_rows import (
    BARS,
    CROWD,
    LIMIT,
    OUR_AGENT,
    OUR_SERVER,
    OURS,
    PAIRS,
    RATES,
    ROWS,
    STUCK,
    TUNNELS,
    UPSTREAM,
    Bar,
    Cpu,
    Results,
    Row,
)


def test_rows_have_names_of_their_own() -> None:
    names = {row.name for row in ROWS}
    assert len(names) == len(ROWS)
    assert {"http-connect echo 64", "grpc dial 16", "memory grpc tunnels", "start agent"} <= names
    assert {"echo beside 8 downloads", "echo beside 8 uploads", "stuck 64+64", "idle 10000 dial 16"} <= names


def test_each_row_is_for_the_pairs_that_can_run_it() -> None:
    assert bench_rows.measured_by(DOWNLOAD) == PAIRS
    assert bench_rows.measured_by(Row("rate", "http-connect", "dial", 1)) == TUNNELS
    assert bench_rows.measured_by(STUCK) == (UPSTREAM, OURS)
    assert bench_rows.measured_by(CROWD[0]) == (OURS,)
    assert [row.subject for row in RATES if LIMIT in bench_rows.measured_by(row)] == ["http-connect"] * 7


def test_the_cost_of_an_operation_is_in_microseconds_of_both_processes() -> None:
    load = {"ops": 1000.0, "rate": 500.0, "p50_us": 30.0, "p99_us": 80.0, "cpu_seconds": 0.01}
    sample = bench_rows.rate_sample(ECHO, load, Cpu(server=0.02, agent=0.03, bench=0.01, machine=0.07), 2.0)
    assert sample["value"] == 500.0
    assert sample["cost"] == pytest.approx(50.0)
    assert sample["server"] == pytest.approx(20.0)
    assert sample["agent"] == pytest.approx(30.0)
    assert sample["generator"] == pytest.approx(10.0)
    assert sample["p99_us"] == 80.0


def test_the_cost_of_a_transfer_is_in_milliseconds_per_megabyte() -> None:
    load = {"bytes": 200e6, "mb_per_second": 100.0, "cpu_seconds": 0.1}
    sample = bench_rows.rate_sample(DOWNLOAD, load, Cpu(0.4, 0.6, 0.1, 1.1), 2.0)
    assert sample["value"] == 100.0
    assert sample["cost"] == pytest.approx(5.0)
    assert sample["generator"] == pytest.approx(0.5)
    assert "p50_us" not in sample


def test_others_are_what_the_machine_used_beside_us_in_cores() -> None:
    assert Cpu(0.5, 0.5, 0.5, 2.5).others_in(2.0) == pytest.approx(0.5)
    assert Cpu(0.5, 0.5, 0.5, 1.4).others_in(2.0) == 0.0


@pytest.mark.parametrize("row", [ECHO, DOWNLOAD], ids=lambda row: row.name)
def test_a_row_in_which_nothing_moved_is_no_sample(row: Row) -> None:
    with pytest.raises(ValueError, match="nothing went through"):
        bench_rows.rate_sample(row, {"ops": 0.0, "cpu_seconds": 0.0}, Cpu(0.0, 0.0, 0.0, 0.0), 2.0)


def test_cpu_since_subtracts_each_clock() -> None:
    assert Cpu(5.0, 6.0, 7.0, 30.0).since(Cpu(1.0, 2.0, 3.0, 10.0)) == Cpu(4.0, 4.0, 4.0, 20.0)


def test_the_ratio_is_that_of_the_medians() -> None:
    results = both(upstream=[100.0, 50.0, 120.0], ours=[300.0, 200.0, 10.0])
    assert results.median(ECHO, OURS) == 200.0
    assert results.ratio(ECHO, OURS) == 2.0
    assert results.ratio_range(ECHO, OURS) == (10.0 / 120.0, 4.0)


def test_a_round_without_upstream_has_no_ratio() -> None:
    results = both(upstream=[100.0], ours=[150.0, 900.0])
    assert results.ratio_range(ECHO, OURS) == (1.5, 1.5)
    assert Results().ratio(ECHO, OURS) is None
    assert Results().ratio_range(ECHO, OURS) is None


def test_a_generator_as_costly_as_upstreams_tunnel_is_named() -> None:
    results = Results()
    results.add(ECHO, UPSTREAM, 1, rate(100.0, cost=10.0, generator=9.9))
    results.add(ECHO, OURS, 1, rate(100.0, cost=3.0, generator=10.0))
    assert bench_rows.generator_bound(results, ECHO) == [OURS]


def _bar(row: str, metric: str = "value", pair: str = "ours") -> Bar:
    (found,) = (bar for bar in BARS if (bar.row.name, bar.metric, bar.pair.name) == (row, metric, pair))
    return found


def test_no_number_has_two_bars_and_every_bar_is_for_a_pair_that_its_row_measures() -> None:
    assert len({(bar.row, bar.pair, bar.metric) for bar in BARS}) == len(BARS)
    assert all(bar.row in ROWS and bar.pair in bench_rows.measured_by(bar.row) for bar in BARS)


@pytest.mark.parametrize(
    ("row", "metric", "shown"),
    [
        ("http-connect download 1", "value", ">= 3"),
        ("http-connect upload 8", "value", ">= 2.2"),
        ("http-connect upload 8", "cost", "<= 0.4"),
        ("http-connect echo 1", "value", ">= 1.1"),
        ("http-connect echo 1", "p50_us", "<= 0.9"),
        ("http-connect echo 64", "value", ">= 1.5"),
        ("http-connect echo 64", "cost", "<= 0.55"),
        ("http-connect dial 1", "value", ">= 1.3"),
        ("http-connect dial 16", "value", ">= 1.5"),
        ("http-connect dial 16", "cost", "<= 0.5"),
        ("grpc dial 16", "value", ">= 1.1"),
        ("echo beside 8 uploads", "p99_us", "<= 1"),
        ("stuck 64+64", "times_alone", "<= 2"),
        ("stuck 64+64", "of_bound", "<= 1"),
        ("idle 10000 echo 1", "times_alone", ">= 0.8"),
        ("memory grpc idle", "value", "<= 0.85"),
        ("memory grpc tunnels", "value", "<= 0.5"),
        ("start server", "value", "<= 10"),
    ],
)
def test_the_bars_are_those_of_the_project(row: str, metric: str, shown: str) -> None:
    assert _bar(row, metric).shown == shown


def test_the_mixed_pairs_may_be_slower_than_upstream_in_no_rate() -> None:
    for pair in (OUR_SERVER, OUR_AGENT):
        bars = [bar for bar in BARS if bar.pair == pair]
        assert len(bars) == 11
        assert {bar.shown for bar in bars} == {">= 1"}


@pytest.mark.parametrize(("ours", "is_met"), [(149.0, False), (150.0, True), (151.0, True)])
def test_a_floor_is_met_at_its_limit(ours: float, is_met: bool) -> None:
    (judgement,) = bench_rows.judge(both([100.0], [ours]), [_bar("http-connect echo 16")])
    assert judgement.is_met is is_met


@pytest.mark.parametrize(("ours", "is_met"), [(84.0, True), (85.0, True), (86.0, False)])
def test_a_ceiling_is_met_at_its_limit(ours: float, is_met: bool) -> None:
    results = both([100.0], [ours], Row("memory", "grpc", "idle"))
    (judgement,) = bench_rows.judge(results, [_bar("memory grpc idle")])
    assert judgement.is_met is is_met


def test_a_bar_against_itself_reads_the_number_and_not_a_ratio_to_upstream() -> None:
    results = Results()
    results.add(CROWD[0], OURS, 1, {"value": 7.0, "times_alone": 0.9})
    (judgement,) = bench_rows.judge(results, [_bar("idle 10000 echo 1", "times_alone")])
    assert (judgement.measured, judgement.is_met) == (0.9, True)


def test_what_was_not_measured_is_not_judged() -> None:
    results = both([], [150.0])
    assert [judgement.is_met for judgement in bench_rows.judge(results)] == [None] * 4
    assert bench_rows.judge(Results()) == []
