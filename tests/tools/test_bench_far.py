"""The far rows of the benchmark: rows, bars, samples, tables and the chart, and a short run of each kind."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest
from tests.support.bench_samples import CONDITIONS, rate

import bench_far_plot
import bench_load
import bench_report
import bench_rows
import bench_tables
from bench_far import FarPlan, slow_sample
from bench_rows import (
    BARS,
    FAR,
    OURS,
    RELAY,
    ROUND_TRIPS_MS,
    SLOW,
    TUNNELS,
    UPSTREAM,
    BenchRow,
    Cpu,
    Results,
    far_rows,
)

DEADLINE_SECONDS: Final = 100.0
QUIET: Final = Cpu(0.1, 0.1, 0.1, 0.3)
SVG: Final = "{http://www.w3.org/2000/svg}"


def _row(name: str) -> BenchRow:
    (found,) = (row for row in (*FAR, *SLOW) if row.name == name)
    return found


def _bars(row: str, pair: str = "ours") -> dict[str, str]:
    return {bar.metric: bar.shown for bar in BARS if (bar.row.name, bar.pair.name) == (row, pair)}


def test_every_round_trip_has_its_bars() -> None:
    for name, limit in (
        *(("10 ms download 1", ">= 1.5"), ("10 ms upload 8", ">= 1.5"), ("50 ms upload 1", ">= 1.4")),
        *(("50 ms download 8", ">= 1.8"), ("200 ms upload 8", ">= 3"), ("200 ms echo 1", ">= 1")),
    ):
        assert _bars(name) == {"value": limit}
    assert _bars("200 ms download 1") == _bars("200 ms upload 1") == {"value": ">= 2.5", "third_second": ">= 40"}
    assert _bars("50 ms dial 1") == {"value": ">= 1", "round_trips": "<= 2.2"}
    assert _bars("50 ms upload 8", "upstream-ours") == _bars("50 ms echo 1", "ours-upstream") == {"value": ">= 1"}
    assert _bars("slow link echo") == {"p99_seconds": "<= 1"}
    assert _bars("slow link stall") == {"ended": "<= 0"}


def test_the_mixed_pairs_run_at_50_ms_and_the_relay_alone_in_downloads() -> None:
    assert bench_rows.measured_by(_row("50 ms download 8")) == (*TUNNELS, RELAY)
    assert bench_rows.measured_by(_row("50 ms dial 1")) == TUNNELS
    assert bench_rows.measured_by(_row("200 ms download 1")) == (UPSTREAM, OURS, RELAY)
    assert bench_rows.measured_by(_row("200 ms upload 1")) == (UPSTREAM, OURS)
    assert bench_rows.measured_by(SLOW[0]) == (UPSTREAM, OURS)
    assert all(far_rows(ms, "download 1", "download 8") for ms in ROUND_TRIPS_MS)


def test_one_transfer_comes_before_eight_so_that_its_windows_are_new() -> None:
    for test in ("download", "upload"):
        names = [row.name for row in FAR if row.test == test and row.round_trip_ms == 200]
        assert names == [f"200 ms {test} 1", f"200 ms {test} 8"]


def test_a_far_transfer_is_measured_longer_and_a_smoke_run_not() -> None:
    plan = FarPlan(rounds=3)
    names = ("0 ms download 1", "50 ms upload 8", "100 ms download 1", "200 ms download 8", "200 ms echo 1")
    assert [plan.ramp_seconds(_row(name)) for name in names] == [0.0, 2.0, 4.0, 4.0, 0.0]
    assert plan.settle_seconds(_row("200 ms echo 1")) == pytest.approx(1.0)
    assert FarPlan(rounds=1, ramp=False).ramp_seconds(_row("200 ms download 8")) == 0.0


def test_the_third_second_is_read_from_a_transfer_of_three_seconds_or_more() -> None:
    def read(*each: float) -> dict[str, float]:
        return bench_load._numbers(json.dumps({"errors": 0, "bytes": 10, "mb_each_second": each}))

    assert read(1.0, 20.0, 41.5, 60.0)["third_second"] == 41.5
    assert "third_second" not in read(1.0, 20.0)
    load = {"bytes": 1e8, "mb_per_second": 30.0, "cpu_seconds": 0.1, "third_second": 41.5}
    sample = bench_rows.rate_sample(_row("200 ms download 1"), load, QUIET, 6.0)
    assert (sample["value"], sample["third_second"]) == (30.0, 41.5)


def test_an_exchange_and_a_dial_are_also_counted_in_round_trips() -> None:
    load = {"ops": 10.0, "rate": 9.0, "p50_us": 105_000.0, "p99_us": 120_000.0, "cpu_seconds": 0.0}
    assert bench_rows.rate_sample(_row("50 ms dial 1"), load, QUIET, 2.0)["round_trips"] == pytest.approx(2.1)
    assert "round_trips" not in bench_rows.rate_sample(BenchRow("rate", "http-connect", "dial", 1), load, QUIET, 2.0)


def test_an_echo_that_failed_and_downloads_that_ended_are_ended_tunnels() -> None:
    exchanged = {"rate": 2.0, "p50_us": 150_000.0, "p99_us": 900_000.0, "longest_us": 950_000.0, "errors": 1.0}
    sample = slow_sample(exchanged, {"ended": 3.0, "mb_per_second": 1.9})
    assert (sample["ended"], sample["p99_seconds"], sample["bulk"]) == (4.0, 0.9, 1.9)
    results = Results()
    results.add(SLOW[1], OURS, 1, sample)
    (checked,) = bench_rows.check_bars(results, [bar for bar in BARS if bar.row == SLOW[1]])
    assert checked.is_met is False
    nothing = slow_sample({"rate": 0.0, "errors": 0.0}, {})
    assert (nothing["ended"], nothing["bulk"]) == (0.0, 0.0)


def test_an_error_fails_a_window_unless_the_caller_counts_it() -> None:
    line = json.dumps({"errors": 2, "first_error": "broken pipe", "rate": 1.0})
    with pytest.raises(bench_load.LoadFailed, match="2 errors, the first: broken pipe"):
        bench_load._numbers(line)
    assert bench_load._numbers(line, errors=True)["errors"] == 2.0


def _measured() -> Results:
    results = Results()
    for row in FAR:
        for pair in bench_rows.measured_by(row):
            value = {RELAY: 1000.0, OURS: 400.0}.get(pair, 100.0)
            results.add(row, pair, 1, {**rate(value), "third_second": value, "round_trips": 2.1})
    for pair in (UPSTREAM, OURS):
        exchanged = {"rate": 2.0, "p50_us": 150_000.0, "p99_us": 900_000.0, "longest_us": 9e5, "unfinished": 1.0}
        results.add(SLOW[0], pair, 1, slow_sample({**exchanged, "errors": 0.0}, {"mb_per_second": 1.9}))
    return results


def test_the_tables_show_ratios_mixed_pairs_the_relay_and_the_third_second() -> None:
    tables = {table.title.partition(":")[0]: table for table in bench_tables.tables(_measured(), CONDITIONS)}
    far = tables["Far"]
    assert "three rounds" in far.title
    lines = {line[0]: dict(zip(far.header[1:], line[1:], strict=True)) for line in far.lines}
    assert list(lines) == [row.name for row in FAR]
    mixed = lines["50 ms download 8"]
    assert (mixed["ratio"], mixed["our server, their agent"], mixed["relay"]) == ("4.00", "1.00", "1,000")
    assert lines["200 ms upload 1"]["third ours"] == "400"
    assert lines["200 ms upload 1"]["their server, our agent"] == lines["200 ms upload 1"]["relay"] == "-"
    assert lines["50 ms dial 1"]["round trips up"] == "2.10"
    assert tables["Slow link"].lines[1][:7] == ["slow link echo", "ours", ">150", ">900", ">900", "1", "1.90"]
    assert {"Rates", "Latency", "Mixed pairs", "Limit"}.isdisjoint(tables), "far rows have a table of their own"


def test_bars_of_far_rows_say_what_is_measured() -> None:
    shown = bench_report.text(_measured(), CONDITIONS)
    for measure in ("MB/s in the third second", "p50 in round trips", "p99 in s"):
        assert measure in shown


def test_the_chart_has_a_line_for_each_pair_and_a_dot_for_each_round_trip() -> None:
    root = ElementTree.fromstring(bench_far_plot.svg(_measured(), CONDITIONS))
    lines = [line.get("class") for line in root.iter(f"{SVG}polyline")]
    assert lines == 2 * ["line relay", "line ours", "line theirs"]
    assert len(list(root.iter(f"{SVG}circle"))) == 6 * len(ROUND_TRIPS_MS)
    assert "One tunnel, ours: 0 ms 400, 10 ms 400" in (root.findtext(f"{SVG}desc") or "")
    assert {"200 ms", "upstream", "relay alone", "1,024"} <= {text.text for text in root.iter(f"{SVG}text")}


def test_more_is_higher_on_the_chart_and_what_was_not_measured_is_not_drawn() -> None:
    assert bench_far_plot.y_of(100.0) < bench_far_plot.y_of(10.0) < bench_far_plot.BOTTOM
    assert bench_far_plot.y_of(0.0) == bench_far_plot.BOTTOM
    assert bench_far_plot.y_of(1e9) == bench_far_plot.TOP
    root = ElementTree.fromstring(bench_far_plot.svg(Results(), CONDITIONS))
    assert not list(root.iter(f"{SVG}polyline"))


@pytest.mark.alone
@pytest.mark.real("proxy-server", "proxy-agent", "umbilical-load", "umbilical-relay")
def test_a_short_run_measures_every_kind_of_far_row(repository: Path, tmp_path: Path) -> None:
    files = (f"--json={tmp_path / 'bench.json'}", f"--round-trips-svg={tmp_path / 'far.svg'}")
    chosen = ("--rows=^50 ms (dial 1|download 8)$|slow link", "--pairs=upstream,ours,upstream-ours,relay")
    command = [sys.executable, str(repository / "tools" / "bench.py"), "--smoke", *chosen, *files]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert ran.returncode == 0, ran.stderr
    told = json.loads((tmp_path / "bench.json").read_text())["rows"]
    pairs = {name: list(row["pairs"]) for name, row in told.items()}
    assert pairs == {
        "50 ms dial 1": ["upstream", "ours", "upstream-ours"],
        "50 ms download 8": ["upstream", "ours", "upstream-ours", "relay"],
        "slow link echo": ["upstream", "ours"],
        "slow link stall": ["upstream", "ours"],
    }
    assert told["50 ms download 8"]["pairs"]["relay"]["median"]["value"] > 0
    assert told["slow link stall"]["pairs"]["ours"]["median"]["ended"] == 0
    assert (tmp_path / "far.svg").read_text().startswith("<svg ")
