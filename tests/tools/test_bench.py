"""The bench's arithmetic and tables, from samples made up here; and a short run against upstream's programs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

import bench
import bench_report
import bench_rows
import bench_tunnel
import peers
from bench_report import Conditions
from bench_rows import OUR_AGENT, OUR_SERVER, OURS, PAIRS, ROWS, UPSTREAM, Cpu, Results, Row

ECHO: Final = Row("rate", "http-connect", "echo", 16)
DOWNLOAD: Final = Row("rate", "http-connect", "download", 8)
IDLE: Final = Row("memory", "http-connect", "idle")
CONDITIONS: Final = Conditions({"date": "today"}, rounds=5, seconds=2.0, rest_seconds=5.0, tunnels=1000)
DEADLINE_SECONDS: Final = 60.0


def _rate(value: float, cost: float = 10.0, generator: float = 1.0, others: float = 0.0) -> dict[str, float]:
    return {"value": value, "cost": cost, "generator": generator, "others": others, "p50_us": 5.0, "p99_us": 9.0}


def _results(upstream: list[float], ours: list[float], row: Row = ECHO) -> Results:
    results = Results()
    for pair, values in ((UPSTREAM, upstream), (OURS, ours)):
        for round_number, value in enumerate(values, 1):
            results.add(row, pair, round_number, _rate(value))
    return results


def _options(*arguments: str) -> bench.Plan:
    return bench.plan_of(bench._parser().parse_args(arguments))


def test_rows_have_names_of_their_own() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {"http-connect echo 64", "grpc dial 16", "memory grpc tunnels", "start agent"} <= {row.name for row in ROWS}


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
    load = {"ops": 1.0, "rate": 1.0, "p50_us": 1.0, "p99_us": 1.0, "cpu_seconds": 0.5}
    assert bench_rows.rate_sample(ECHO, load, Cpu(0.5, 0.5, 0.5, 2.5), 2.0)["others"] == pytest.approx(0.5)
    assert bench_rows.rate_sample(ECHO, load, Cpu(0.5, 0.5, 0.5, 1.4), 2.0)["others"] == 0.0


@pytest.mark.parametrize("row", [ECHO, DOWNLOAD], ids=lambda row: row.name)
def test_a_row_in_which_nothing_moved_is_no_sample(row: Row) -> None:
    with pytest.raises(ValueError, match="nothing went through"):
        bench_rows.rate_sample(row, {"ops": 0.0, "cpu_seconds": 0.0}, Cpu(0.0, 0.0, 0.0, 0.0), 2.0)


def test_cpu_since_subtracts_each_clock() -> None:
    assert Cpu(5.0, 6.0, 7.0, 30.0).since(Cpu(1.0, 2.0, 3.0, 10.0)) == Cpu(4.0, 4.0, 4.0, 20.0)


def test_the_ratio_is_that_of_the_medians() -> None:
    results = _results(upstream=[100.0, 50.0, 120.0], ours=[300.0, 200.0, 10.0])
    assert results.median(ECHO, OURS) == 200.0
    assert results.ratio(ECHO, OURS) == 2.0
    assert results.ratio_range(ECHO, OURS) == (10.0 / 120.0, 4.0)


def test_a_round_without_upstream_has_no_ratio() -> None:
    results = _results(upstream=[100.0], ours=[150.0, 900.0])
    assert results.ratio_range(ECHO, OURS) == (1.5, 1.5)
    assert Results().ratio(ECHO, OURS) is None
    assert Results().ratio_range(ECHO, OURS) is None


def test_a_generator_as_costly_as_upstreams_tunnel_is_marked() -> None:
    results = Results()
    results.add(ECHO, UPSTREAM, 1, _rate(100.0, cost=10.0, generator=9.9))
    results.add(ECHO, OURS, 1, _rate(100.0, cost=3.0, generator=10.0))
    assert bench_rows.generator_bound(results, ECHO) == [OURS]
    assert "10.0!" in bench_report.text(results, CONDITIONS)
    assert any(note.startswith("! the generator") for note in bench_report.remarks(results))


def test_a_rate_below_its_bar_is_named_and_memory_has_no_bar() -> None:
    results = Results()
    for pair, value in ((UPSTREAM, 100.0), (OURS, 99.0), (OUR_SERVER, 81.0), (OUR_AGENT, 79.0)):
        results.add(ECHO, pair, 1, _rate(value))
        results.add(IDLE, pair, 1, {"value": value})
    assert bench_rows.below_bar(results, ECHO) == [(OURS, 0.99), (OUR_AGENT, 0.79)]
    assert bench_rows.below_bar(results, IDLE) == []
    assert bench_report.remarks(results) == [
        "below 1.0, ours: http-connect echo 16 0.99",
        "below 0.8, upstream-ours: http-connect echo 16 0.79",
    ]


def test_a_busy_machine_is_named() -> None:
    results = Results()
    results.add(ECHO, UPSTREAM, 1, _rate(100.0, others=0.7))
    assert bench_report.remarks(results) == [
        "the machine was not quiet; cores used by others: http-connect echo 16 0.70"
    ]


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
    assert bench_report.number(value) == shown


def test_the_text_table_is_aligned_and_leaves_out_what_was_not_measured() -> None:
    shown = bench_report.text(_results([100.0], [150.0]), CONDITIONS)
    header, rule, line = next(
        lines for lines in zip(*[shown.splitlines()[i:] for i in range(3)], strict=False) if lines[1].startswith("---")
    )
    assert len(header) == len(rule) == len(line)
    assert line.split()[:7] == ["http-connect", "echo", "16", "100", "150", "/s", "1.50"]
    assert "Mixed pairs" not in shown
    assert "Memory" not in shown


def test_the_markdown_table_has_as_many_cells_in_each_line() -> None:
    lines = bench_report.markdown(_results([100.0], [150.0], DOWNLOAD), CONDITIONS).splitlines()
    cells = {line.count("|") for line in lines if line.startswith("|")}
    assert len(cells) == 1
    assert any(line.startswith("| http-connect download 8 | 100 | 150 | MB/s | 1.50 |") for line in lines)


def test_the_json_holds_medians_ratios_and_every_sample() -> None:
    results = _results([100.0, 110.0, 120.0], [220.0, 110.0, 330.0])
    results.fail([DOWNLOAD], OURS, 2, "it broke")
    document = json.loads(bench_report.as_json(results, CONDITIONS))
    ours = document["rows"]["http-connect echo 16"]["pairs"]["ours"]
    assert (ours["median"]["value"], ours["ratio"]["value"]) == (220.0, 2.0)
    assert [sample["round"] for sample in ours["samples"]] == [1, 2, 3]
    assert document["failures"] == [{"row": "http-connect download 8", "pair": "ours", "round": 2, "why": "it broke"}]


def test_every_pair_is_the_first_in_some_round() -> None:
    plan = _options()
    assert (plan.rounds, plan.seconds, plan.rest_seconds, plan.tunnels) == (5, 2.0, 5.0, 1000)
    assert {plan.turn(number)[0] for number in range(1, 6)} == set(PAIRS)
    assert all(set(plan.turn(number)) == set(PAIRS) for number in range(1, 6))


def test_rows_and_pairs_can_be_chosen() -> None:
    plan = _options("--quick", "--rows", "echo (1|16)$", "--pairs", "ours,upstream")
    assert [row.name for row in plan.rows] == ["http-connect echo 1", "http-connect echo 16"]
    assert plan.pairs == (UPSTREAM, OURS)
    assert (plan.rounds, plan.seconds) == (1, 1.0)


@pytest.mark.parametrize("arguments", [("--rows", "nonsense"), ("--rows", "("), ("--pairs", "theirs")])
def test_a_choice_that_names_nothing_is_refused(arguments: tuple[str, str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        _options(*arguments)


def test_the_clocks_of_the_machine_and_of_a_process_run() -> None:
    before, machine = bench_tunnel.cpu_seconds(os.getpid()), bench_tunnel.machine_cpu_seconds()
    deadline = time.process_time() + 0.1
    while time.process_time() < deadline:
        pass
    assert bench_tunnel.cpu_seconds(os.getpid()) > before
    assert bench_tunnel.machine_cpu_seconds() > machine
    assert bench_tunnel.resident_bytes(os.getpid()) > 1_000_000


def test_what_go_did_not_build_has_no_go_version() -> None:
    assert bench.go_version(Path(sys.executable).resolve()) == "not built by Go"


def _start(repository: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(repository / "tools" / "bench.py"), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _run(repository: Path, *arguments: str) -> tuple[int, str, str]:
    with _start(repository, *arguments) as process:
        output, progress = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, output, progress


@pytest.mark.real("proxy-server", "proxy-agent", "umbilical-load")
def test_a_short_run_measures_upstream_in_every_kind_of_row(repository: Path, tmp_path: Path) -> None:
    files = (f"--json={tmp_path / 'bench.json'}", f"--markdown={tmp_path / 'bench.md'}")
    rows = "--rows=connect echo 1$|download 8|grpc dial 1$|memory grpc|start"
    code, output, progress = _run(repository, "--smoke", "--pairs=upstream", rows, *files)
    assert code == 0, progress
    document = json.loads((tmp_path / "bench.json").read_text())
    assert list(document["rows"]) == [
        *("http-connect echo 1", "http-connect download 8", "grpc dial 1"),
        *("memory grpc idle", "memory grpc tunnels", "start server", "start agent"),
    ]
    assert document["rows"]["http-connect echo 1"]["pairs"]["upstream"]["median"]["cost"] > 0
    assert "v0.36.0, go1." in output
    assert "| http-connect download 8 |" in (tmp_path / "bench.md").read_text()


@pytest.mark.real("proxy-server", "proxy-agent", "umbilical-load")
def test_a_pair_that_cannot_start_fails_the_run_and_the_others_are_measured(repository: Path) -> None:
    agent = peers.binary("proxy-agent")
    false = ("--ours-server=/bin/false", f"--ours-agent={agent}")
    code, output, progress = _run(repository, "--smoke", "--pairs=upstream,ours", "--rows=connect echo 1$", *false)
    logs = Path(progress.rstrip().rpartition(" ")[2])
    kept = {path.name for path in logs.iterdir()}
    shutil.rmtree(logs)
    assert code == 1
    assert kept == {"tunnel-1", "tunnel-2"}
    assert "FAILED: http-connect echo 1, ours, round 1: UMB802 ours server" in " ".join(output.split())
    assert "\nhttp-connect echo 1  " in output


@pytest.mark.real("proxy-server", "proxy-agent", "umbilical-load")
def test_an_interrupt_leaves_no_child_behind(repository: Path) -> None:
    with _start(repository, "--pairs=upstream", "--rows=connect echo 1$", "--seconds=50") as process:
        children = _wait_for_children(process.pid, 3)
        process.send_signal(signal.SIGINT)
        _, progress = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == bench.INTERRUPTED
    assert "interrupted" in progress
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []


def _wait_for_children(pid: int, count: int) -> list[str]:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if len(children) == count:
            return children
        time.sleep(0.01)
    raise AssertionError(f"not {count} children after {DEADLINE_SECONDS:g} s")
