"""The benchmark: its runs and rows."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest
from tests.support.bench_samples import DOWNLOAD, ECHO, both, rate

import bench
import bench_report
import bench_rows
import peers
from bench_rows import (
    BARS,
    CROWD,
    LIMIT,
    OURS,
    PAIRS,
    RATES,
    RELAY,
    ROWS,
    STUCK,
    TUNNELS,
    UPSTREAM,
    Bar,
    BenchRow,
    Cpu,
    Results,
)
from bench_run import Plan
from bench_tunnel import TunnelPrograms

DEADLINE_SECONDS: Final = 100.0


def _options(*arguments: str, has_haproxy: bool = True) -> Plan:
    return bench.plan_of(bench._parser().parse_args(arguments), has_haproxy=has_haproxy)


def test_the_plan_is_that_of_the_project_by_default() -> None:
    plan = _options()
    assert (plan.rounds, plan.seconds, plan.rest_seconds, plan.tunnels) == (5, 2.0, 5.0, 1000)
    assert plan.rounds * plan.starts == 20
    assert (plan.crowd.agents, plan.crowd.tunnels) == (200, 10_000)
    assert (plan.far.rounds, plan.far.stall_seconds, plan.far.divisor) == (3, 2.0, 1.0)
    assert plan.rows == ROWS


def test_every_pair_is_the_first_in_some_round_and_rows_and_pairs_can_be_chosen() -> None:
    plan = _options()
    rounds = range(1, len(PAIRS) + 1)
    assert {plan.turn(number)[0] for number in rounds} == set(PAIRS)
    assert all(set(plan.turn(number)) == set(PAIRS) for number in rounds)
    plan = _options("--quick", "--rows", "connect echo (1|16)$", "--pairs", "ours,upstream")
    assert [row.name for row in plan.rows] == ["http-connect echo 1", "http-connect echo 16"]
    assert (plan.pairs, plan.rounds, plan.seconds) == ((UPSTREAM, OURS), 1, 1.0)


def test_a_row_is_measured_for_the_pairs_that_it_is_for() -> None:
    plan = _options("--pairs", "ours,upstream,haproxy")
    assert plan.takes(STUCK, UPSTREAM)
    assert not plan.takes(STUCK, LIMIT)
    assert not plan.takes(CROWD[0], UPSTREAM)
    assert not _options("--pairs", "upstream").takes(STUCK, OURS)
    assert not _options("--rows", "echo").takes(STUCK, OURS)


def test_what_cannot_be_had_is_left_out_and_a_choice_that_names_nothing_refused() -> None:
    assert _options(has_haproxy=False).pairs == (*TUNNELS, RELAY)
    plan = _options("--ours-server", "/old/proxy-server", "--ours-agent", "/old/proxy-agent")
    assert not set(CROWD) & set(plan.rows)
    for arguments in (("--rows", "nonsense"), ("--rows", "("), ("--pairs", "theirs")):
        with pytest.raises(SystemExit, match="2"):
            _options(*arguments)


def test_what_go_did_not_build_has_no_go_version() -> None:
    assert bench.go_version(Path(sys.executable).resolve()) == "not built by Go"


def test_the_form_is_the_one_that_the_interpreter_finds(tmp_path: Path) -> None:
    def asked(environment: dict[str, str]) -> str:
        return bench.form(TunnelPrograms(Path("server"), Path("agent"), logs_to_file=True, environment=environment))

    package = tmp_path / "umbilical" / "wire"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "packets.py").write_text("__file__ = 'packets.cpython-311-x86_64-linux-gnu.so'\n")
    assert asked({"PYTHONPATH": str(tmp_path)}) == "compiled"
    (package / "packets.py").write_text("x = 1\n")
    assert asked({"PYTHONPATH": str(tmp_path)}) == "pure Python"
    (package / "packets.py").write_text("raise ImportError\n")
    assert asked({"PYTHONPATH": str(tmp_path)}) == "of unknown form"


def test_the_interpreter_reports_how_it_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_config_var", lambda name: "'--enable-shared'")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert bench.interpreter_build(on_debian=True) == "Debian's python3, built with PGO"
    assert bench.interpreter_build(on_debian=False) == "built without PGO"
    monkeypatch.setattr("sysconfig.get_config_var", lambda name: "'--enable-optimizations' '--with-lto'")
    assert bench.interpreter_build(on_debian=False) == "built with PGO"


def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--json", "--markdown", "--svg", "--round-trips-svg"):
        assert bench.main([f"{option}={tmp_path / 'missing' / 'file'}"]) == 1
        assert "UMB931 cannot write" in capsys.readouterr().err
    document = tmp_path / "document.md"
    document.write_text("no markers here\n")
    assert bench.main([f"--into={document}"]) == 1
    assert "UMB931 cannot write tables into" in capsys.readouterr().err
    assert document.read_text() == "no markers here\n"


def test_a_document_shows_the_picture_by_its_place(tmp_path: Path) -> None:
    assert bench.picture(None, tmp_path / "benchmarks.md") == ""
    shown = bench.picture(tmp_path / "pictures" / "b.svg", tmp_path / "docs" / "benchmarks.md")
    assert shown.endswith("](../pictures/b.svg)\n\n")


def _start(repository: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(repository / "tools" / "bench.py"), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _run(repository: Path, *arguments: str) -> tuple[int, str, str]:
    with _start(repository, *arguments) as process:
        output, progress = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, output, progress


@pytest.mark.alone
@pytest.mark.real("proxy-server", "proxy-agent", "umbilical-load", "umbilical-relay")
def test_a_short_run_measures_upstream_in_every_kind_of_row(repository: Path, tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text(f"before\n\n{bench_report.BEGIN}\nold\n{bench_report.END}\n\nafter\n")
    files = (f"--json={tmp_path / 'bench.json'}", f"--markdown={tmp_path / 'bench.md'}", f"--into={document}")
    rows = "--rows=connect (echo 1|download 8)$|beside 8 uploads|stuck|grpc dial 1$|memory grpc|start"
    code, output, progress = _run(
        repository, "--smoke", "--pairs=upstream", rows, *files, f"--svg={tmp_path / 'b.svg'}"
    )
    assert code == 0, progress
    told = json.loads((tmp_path / "bench.json").read_text())
    assert list(told["rows"]) == [
        *("http-connect echo 1", "http-connect download 8", "grpc dial 1", "echo beside 8 uploads", "stuck 64+64"),
        *("memory grpc idle", "memory grpc tunnels", "start server", "start agent"),
    ]
    assert told["rows"]["http-connect echo 1"]["pairs"]["upstream"]["median"]["value"] > 0
    assert "bulk" in told["rows"]["echo beside 8 uploads"]["pairs"]["upstream"]["median"]
    assert "v0.36.0, go1." in output
    assert "| http-connect download 8 |" in (tmp_path / "bench.md").read_text()
    assert (tmp_path / "bench.md").read_text() in document.read_text()
    assert "](b.svg)" in document.read_text()
    assert "old" not in document.read_text()
    assert (tmp_path / "b.svg").read_text().startswith("<svg ")


@pytest.mark.alone
@pytest.mark.real("proxy-server", "proxy-agent", "umbilical-load", "umbilical-relay")
def test_ours_goes_on_beside_tunnels_that_are_stuck_and_with_a_crowd(repository: Path, tmp_path: Path) -> None:
    rows = "--rows=stuck|idle 10000 echo|idle 10000 dial 1$"
    code, _, progress = _run(repository, "--smoke", "--pairs=ours", rows, f"--json={tmp_path / 'bench.json'}")
    assert code == 0, progress
    told = json.loads((tmp_path / "bench.json").read_text())
    medians = {name: row["pairs"]["ours"]["median"] for name, row in told["rows"].items()}
    assert list(medians) == ["stuck 64+64", "idle 10000 echo 1", "idle 10000 dial 1"]
    assert medians["stuck 64+64"]["taken"] > 0
    assert medians["idle 10000 dial 1"]["alone"] > 0


@pytest.mark.alone
@pytest.mark.real("haproxy", "proxy-server", "umbilical-load", "umbilical-relay")
def test_the_limit_is_measured_in_the_bulk_rows(repository: Path, tmp_path: Path) -> None:
    rows = "--rows=connect (echo 1|download 1|upload 8|dial 1)$"
    code, output, progress = _run(repository, "--smoke", "--pairs=haproxy", rows, f"--json={tmp_path / 'bench.json'}")
    assert code == 0, progress
    rows_told = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert list(rows_told) == ["http-connect echo 1", "http-connect download 1", "http-connect upload 8"]
    assert all(row["pairs"]["haproxy"]["median"]["value"] > 0 for row in rows_told.values())
    assert "HAProxy version" in output


@pytest.mark.alone
@pytest.mark.real("proxy-server", "proxy-agent", "umbilical-load", "umbilical-relay")
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


@pytest.mark.alone
@pytest.mark.real("proxy-server", "proxy-agent", "umbilical-load", "umbilical-relay")
def test_an_interrupt_leaves_no_child_behind(repository: Path) -> None:
    long = ("--pure", "--pairs=upstream", "--rows=connect echo 1$", "--seconds=50")
    with _start(repository, *long) as process:
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


def test_rows_and_bars_are_each_once_and_for_pairs_that_are_measured() -> None:
    names = {row.name for row in ROWS}
    assert len(names) == len(ROWS)
    assert {"http-connect echo 64", "grpc dial 16", "memory grpc tunnels", "start agent"} <= names
    assert {"echo beside 8 downloads", "echo beside 8 uploads", "stuck 64+64", "idle 10000 dial 16"} <= names
    assert len({(bar.row, bar.pair, bar.metric) for bar in BARS}) == len(BARS)
    assert all(bar.row in ROWS and bar.pair in bench_rows.measured_by(bar.row) for bar in BARS)


def test_each_row_is_for_the_pairs_that_can_run_it() -> None:
    assert bench_rows.measured_by(DOWNLOAD) == (*TUNNELS, LIMIT)
    assert bench_rows.measured_by(BenchRow("rate", "http-connect", "dial", 1)) == TUNNELS
    assert bench_rows.measured_by(STUCK) == (UPSTREAM, OURS)
    assert bench_rows.measured_by(CROWD[0]) == (OURS,)
    assert [row.subject for row in RATES if LIMIT in bench_rows.measured_by(row)] == ["http-connect"] * 7


def test_the_cost_of_an_operation_is_in_microseconds_and_of_a_transfer_in_milliseconds_per_megabyte() -> None:
    load = {"ops": 1000.0, "rate": 500.0, "p50_us": 30.0, "p99_us": 80.0, "cpu_seconds": 0.01}
    sample = bench_rows.rate_sample(ECHO, load, Cpu(server=0.02, agent=0.03, bench=0.01, machine=0.07), 2.0)
    costs = {"cost": 50.0, "server": 20.0, "agent": 30.0, "generator": 10.0}
    expected = {**costs, "value": 500.0, "p99_us": 80.0}
    assert {name: sample[name] for name in expected} == pytest.approx(expected)
    load = {"bytes": 200e6, "mb_per_second": 100.0, "cpu_seconds": 0.1}
    sample = bench_rows.rate_sample(DOWNLOAD, load, Cpu(0.4, 0.6, 0.1, 1.1), 2.0)
    expected = {"value": 100.0, "cost": 5.0, "generator": 0.5}
    assert {name: sample[name] for name in expected} == pytest.approx(expected)
    assert "p50_us" not in sample


def test_others_are_what_the_machine_used_beside_us_and_nothing_moved_is_not_a_sample() -> None:
    assert Cpu(0.5, 0.5, 0.5, 2.5).others_in(2.0) == pytest.approx(0.5)
    assert Cpu(0.5, 0.5, 0.5, 1.4).others_in(2.0) == 0.0
    for row in (ECHO, DOWNLOAD):
        with pytest.raises(ValueError, match="no data passed"):
            bench_rows.rate_sample(row, {"ops": 0.0, "cpu_seconds": 0.0}, Cpu(0.0, 0.0, 0.0, 0.0), 2.0)


def test_the_ratio_is_that_of_the_medians_where_upstream_ran() -> None:
    results = both(upstream=[100.0, 50.0, 120.0], ours=[300.0, 200.0, 10.0])
    assert results.median(ECHO, OURS) == 200.0
    assert results.ratio(ECHO, OURS) == 2.0
    assert results.ratio_range(ECHO, OURS) == (10.0 / 120.0, 4.0)
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


def test_floors_and_ceilings_are_met_at_their_limit() -> None:
    for ours, is_met in ((149.0, False), (150.0, True), (151.0, True)):
        (checked,) = bench_rows.check_bars(both([100.0], [ours]), [_bar("http-connect echo 16")])
        assert checked.is_met is is_met
    for ours, is_met in ((84.0, True), (85.0, True), (86.0, False)):
        results = both([100.0], [ours], BenchRow("memory", "grpc", "idle"))
        (checked,) = bench_rows.check_bars(results, [_bar("memory grpc idle")])
        assert checked.is_met is is_met


def test_a_bar_against_itself_reads_the_number_and_what_was_not_measured_is_not_compared() -> None:
    results = Results()
    results.add(CROWD[0], OURS, 1, {"value": 7.0, "times_alone": 0.9})
    (checked,) = bench_rows.check_bars(results, [_bar("idle 10000 echo 1", "times_alone")])
    assert (checked.measured, checked.is_met) == (0.9, True)
    results = both([], [150.0])
    assert [checked.is_met for checked in bench_rows.check_bars(results)] == [None] * 4
    assert bench_rows.check_bars(Results()) == []
