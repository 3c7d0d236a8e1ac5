"""What the benchmark measures, each in its smoke form."""

import os
import sys
import time
from pathlib import Path

import pytest
from tests.support.fixture_types import Captured, Patch

import bench_agents
import bench_bootstrap
import bench_hardway
import bench_processes
import bench_python
import choice_cost
from bench_bootstrap import CommandTimes, TimedCommand, line, measure
from bench_crowd import CrowdSize, share
from bench_haproxy import Relay
from bench_tunnel import Pki, free_port
from umbilical.fault import Fault


def test_no_port_is_given_twice_though_nothing_listens_on_it_yet() -> None:
    ports = [free_port() for _ in range(300)]
    assert len(set(ports)) == len(ports)


def test_the_agents_of_a_process_differ_by_their_ids_alone() -> None:
    flags = ["--ca-cert=/ca.crt", "--proxy-server-port=22", "--health-server-port=0"]
    one, two = bench_agents.settings_of(2, "crowd", flags)
    assert (one.agent_id, two.agent_id) == ("crowd-0", "crowd-1")
    assert one.tls == two.tls
    assert one.health_listen.port == 0


def test_the_shares_of_a_crowd_make_up_the_whole() -> None:
    for whole, parts in ((200, 4), (10_000, 4), (7, 3), (1, 1), (2, 5)):
        shares = [share(whole, parts, number) for number in range(parts)]
        assert sum(shares) == whole
        assert max(shares) - min(shares) <= 1
    assert str(CrowdSize(agents=200, tunnels=10_000, processes=4)) == "10,000 idle tunnels over 200 agent connections"


def test_every_case_has_an_agent_to_choose_and_leaves_the_loads_as_they_were() -> None:
    for strategies, address in choice_cost.CASES:
        yard = choice_cost.crowded_yard(4, 8, strategies)
        assert choice_cost.choice_seconds(yard, address, [1, 2, 3]) > 0
        assert choice_cost.dial_seconds(yard, address, [1, 2, 3]) > 0
        chosen = {yard.choose(address, draw) for draw in range(8)}
        assert {link.load() for link in chosen if link is not None} == {2}


def test_the_clocks_of_the_machine_and_of_a_process_run() -> None:
    before, machine = bench_processes.cpu_seconds(os.getpid()), bench_processes.machine_cpu_seconds()
    deadline = time.process_time() + 0.1
    while time.process_time() < deadline:
        pass
    assert bench_processes.cpu_seconds(os.getpid()) > before
    assert bench_processes.machine_cpu_seconds() > machine
    assert bench_processes.bench_cpu_seconds() > 0
    assert bench_processes.resident_bytes(os.getpid()) > 1_000_000


def test_rounds_share_one_authority_and_each_writes_its_files_again(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki")
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        relay = Relay(Path("haproxy"), pki, folder)
        assert "haproxy-client.pem" in relay._near()
        assert "haproxy-server.pem" in relay._far()
    for name, pair in (("client", pki.agent), ("server", pki.server)):
        written = tmp_path / "pki" / f"haproxy-{name}.pem"
        assert written.read_bytes() == pair[0].read_bytes() + pair[1].read_bytes()
        assert written.stat().st_mode & 0o077 == 0


def test_both_profiles_are_rendered_for_six_nodes(capsys: Captured) -> None:
    assert bench_hardway.main(["--smoke"]) == 0
    told = capsys.readouterr().out
    assert "stage plan, openshift, six nodes" in told
    assert "stage plan, kubernetes, six nodes" in told
    assert "goal 3 s" in told


def test_a_cluster_that_cannot_be_made_has_no_times(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(bench_hardway, "NODES", {"nodes__masters__count": "many"})
    with pytest.raises(Fault, match="UMB700"):
        bench_hardway.make_cluster(tmp_path, "kubernetes")


def test_a_median_above_the_goal_is_reported_and_a_reference_has_no_goal() -> None:
    told = line(CommandTimes(TimedCommand("patch", ()), (0.5, 1.5, 1.2)))
    assert "1.200 s" in told
    assert "0.500..1.500" in told
    assert told.endswith("MISSED")
    assert "goal" not in line(CommandTimes(TimedCommand("jq", (), goal_seconds=None), (9.0,)))


def test_a_command_that_fails_has_no_time() -> None:
    row = TimedCommand("broken", (sys.executable, "-c", "import sys; sys.exit('no such file')"))
    with pytest.raises(RuntimeError, match="no such file"):
        measure(row, 1)


def test_what_a_command_would_not_overwrite_is_taken_away_first(tmp_path: Path) -> None:
    made = tmp_path / "made"
    row = TimedCommand("make", (sys.executable, "-c", f"open({str(made)!r}, 'x')"), makes=made)
    assert len(measure(row, 2).seconds) == 2


def test_every_row_runs_on_a_small_config(monkeypatch: Patch, capsys: Captured) -> None:
    monkeypatch.setattr(bench_bootstrap, "CONFIG_BYTES", 100_000)
    assert bench_bootstrap.main(["--smoke"]) == 0
    assert "bootstrap verify, patched" in capsys.readouterr().out


def program(folder: Path, name: str, line: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def test_the_sample_runs_on_this_interpreter() -> None:
    seconds = bench_python.seconds_of(Path(sys.executable))
    assert seconds is not None
    assert seconds > 0


@pytest.mark.parametrize("line", ["exit 1", "echo nonsense"])
def test_an_interpreter_that_cannot_run_the_sample_has_no_time(tmp_path: Path, line: str) -> None:
    assert bench_python.seconds_of(program(tmp_path, "odd", line)) is None
    assert bench_python.seconds_of(tmp_path / "missing") is None


def test_the_fastest_is_taken_and_at_about_equal_speed_the_systems_own(tmp_path: Path) -> None:
    here = program(tmp_path, "here", "echo 1.00")
    slow, same, fast, faster = (
        program(tmp_path, name, f"echo {seconds}")
        for name, seconds in (("a", 1.06), ("b", 1.01), ("c", 0.8), ("d", 0.7))
    )
    assert bench_python.fastest(here, (slow, tmp_path / "missing")) == here
    assert bench_python.fastest(here, (slow, same)) == same
    assert bench_python.fastest(here, (same, fast, faster)) == faster


def test_a_faster_one_that_cannot_make_an_environment_is_named_and_skipped(tmp_path: Path, capfd: Captured) -> None:
    here = program(tmp_path, "here", "echo 1.00")
    broken = program(tmp_path, "broken", 'case "$1" in -c) echo 0.5;; *) exit 3;; esac')
    assert bench_python.choose(here, (broken,), tmp_path / "environment") == here
    assert "broken is faster, but its environment failed" in capfd.readouterr().err


def test_a_faster_one_gets_an_environment_of_its_own(tmp_path: Path) -> None:
    here = program(tmp_path, "here", "echo 1.00")
    better = program(tmp_path, "better", "echo 0.5")
    assert bench_python.choose(here, (better,), tmp_path / "environment") == tmp_path / "environment" / "bin" / "python"
