"""A unit is run as systemd would: condition, directory, environment, restarts on failure, and a clean stop."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.tunnel_pair import wait_until

from umbilical.lab.bootkube_script import BOOTKUBE_UNIT
from umbilical.lab.unit_runner import Runner, Service, read_service, read_unit, seconds


def script(folder: Path, text: str) -> list[str]:
    path = folder / "script.sh"
    path.write_text(f"#!/bin/bash\n{text}")
    path.chmod(0o755)
    return [str(path)]


def test_a_bootstrap_node_s_unit_is_understood() -> None:
    service = read_service([BOOTKUBE_UNIT])

    assert service.commands == [["/usr/local/bin/bootkube.sh"]]
    assert service.conditions == ["!/opt/openshift/.bootkube.done"]
    assert service.directory == "/opt/openshift"
    assert (service.restarts_on_failure, service.restart_seconds) == (True, 5.0)


def test_drop_ins_come_behind_the_unit_and_may_replace_its_command(tmp_path: Path) -> None:
    (tmp_path / "a.service").write_text(
        "[Service]\nExecStart=/bin/old \\\n  --flag\nEnvironment=A=1\n# ExecStart=/no\n"
    )
    (tmp_path / "a.service.d").mkdir()
    (tmp_path / "a.service.d/20-b.conf").write_text("[Service]\nEnvironment=A=3\n")
    (tmp_path / "a.service.d/10-a.conf").write_text(
        '[Service]\nExecStart=\nExecStart=/bin/new "two words"\nEnvironment=A=2 B=x\n'
    )
    service = read_unit("a.service", tmp_path)

    assert service.commands == [["/bin/new", "two words"]]
    assert service.environment == {"A": "3", "B": "x"}


@pytest.mark.parametrize(("text", "expected"), [("5s", 5.0), ("500ms", 0.5), ("2min", 120.0), ("7", 7.0), ("1 s", 1.0)])
def test_systemd_s_times_are_read(text: str, expected: float) -> None:
    assert seconds(text) == expected


def test_preparations_run_first_in_the_unit_s_directory_and_environment(tmp_path: Path) -> None:
    text = "[Service]\nExecStart=/bin/sh -c 'cat pre; echo $WORD >>out'\nExecStartPre=/bin/sh -c 'echo x >pre'\n"
    service = read_service([text + f"WorkingDirectory={tmp_path}\nEnvironment=WORD=hello\n"])

    assert Runner(service).run() == 0
    assert (tmp_path / "out").read_text() == "hello\n"


def test_a_condition_that_does_not_hold_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "done").touch()
    started = tmp_path / "started"
    for conditions in ([f"!{tmp_path / 'done'}"], [str(tmp_path / "missing")]):
        assert Runner(Service([["touch", str(started)]], conditions)).run() == 0
    assert not started.exists()
    assert Runner(Service([["touch", str(started)]], [str(tmp_path / "done"), f"!{tmp_path / 'missing'}"])).run() == 0
    assert started.exists()


def test_a_failure_is_repeated_until_it_succeeds(tmp_path: Path) -> None:
    command = script(tmp_path, f'echo x >>{tmp_path}/runs\n[ "$(wc -l <{tmp_path}/runs)" -ge 3 ]\n')
    assert Runner(Service([command], restarts_on_failure=True, restart_seconds=0.01)).run() == 0
    assert len((tmp_path / "runs").read_text().splitlines()) == 3


def test_restarts_have_an_end_and_nothing_is_repeated_unasked(tmp_path: Path) -> None:
    command = script(tmp_path, f"echo x >>{tmp_path}/runs\nexit 3\n")
    assert Runner(Service([command], restarts_on_failure=True, restart_seconds=0.0), max_restarts=2).run() == 3
    assert len((tmp_path / "runs").read_text().splitlines()) == 3
    assert Runner(Service([command])).run() == 3
    assert len((tmp_path / "runs").read_text().splitlines()) == 4


def test_a_unit_that_is_always_restarted_is_whatever_it_ended_with_until_it_is_stopped(tmp_path: Path) -> None:
    command = script(tmp_path, f'echo x >>{tmp_path}/runs\n[ "$(wc -l <{tmp_path}/runs)" -ge 2 ]\n')
    service = read_service([f"[Service]\nExecStart={command[0]}\nRestart=always\nRestartSec=10ms\n"])
    runner = Runner(service, max_restarts=0)
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(runner.run)
        try:
            wait_until(lambda: len(_lines(tmp_path / "runs")) >= 5, "it was started five times")
        finally:
            runner.stop(signal.SIGTERM, None)
        assert ended.result(20) in (0, -signal.SIGTERM)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_stop_comes_through_while_a_restart_is_waited_for(tmp_path: Path) -> None:
    runner = Runner(Service([script(tmp_path, f"touch {tmp_path}/ran\n")], restarts_always=True, restart_seconds=600))
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(runner.run)
        wait_until((tmp_path / "ran").exists, "it ran")
        runner.stop(signal.SIGTERM, None)
        ended.result(60)


def test_a_stop_ends_the_command_and_starts_none_again(tmp_path: Path) -> None:
    ready, stopped = tmp_path / "ready", tmp_path / "stopped"
    command = script(tmp_path, f"trap 'touch {stopped}; exit 1' TERM\ntouch {ready}\nsleep 60 >/dev/null & wait $!\n")
    (tmp_path / "a.service").write_text(f"[Service]\nExecStart={command[0]}\nRestart=on-failure\nRestartSec=60\n")
    runner = [sys.executable, "-m", "umbilical.lab.unit_runner", "a.service", str(tmp_path)]
    with subprocess.Popen(runner, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            wait_until(ready.exists, "the command runs")
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 1
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert stopped.exists()
