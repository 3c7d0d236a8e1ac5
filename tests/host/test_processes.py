"""Programs are started, watched and stopped for real: small Python scripts play them."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from umbilical.host.errors import HostError
from umbilical.host.processes import Child, children, run, start, stop_pid

SECONDS = 60.0
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


def _start(script: str, folder: Path, **environment: str) -> Child:
    return start([sys.executable, "-c", script], folder / "log", name="program", environment=environment)


def _up(child: Child) -> Child:
    child.wait_ready(lambda: "up" in child.log_text(), SECONDS)
    return child


def test_output_of_both_kinds_lands_in_a_secret_log(tmp_path: Path) -> None:
    script = "import os, sys; print(os.environ['WHO']); print('trouble', file=sys.stderr)"
    with _start(script, tmp_path, WHO="me") as child:
        assert child.wait(SECONDS) == 0
    assert sorted(child.log_text().split()) == ["me", "trouble"]
    assert stat.S_IMODE(child.log.stat().st_mode) == 0o600


def test_leaving_the_block_stops_the_program(tmp_path: Path) -> None:
    with _up(_start(SLEEP, tmp_path)) as child:
        assert child.is_running
    assert child.exit_code == -signal.SIGTERM
    assert child.stop() == -signal.SIGTERM


def test_a_program_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    child = _up(_start(STUBBORN, tmp_path))
    assert child.stop(timeout_seconds=0.2) == -signal.SIGKILL


def test_a_program_that_ends_early_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with _start("print('cannot bind'); raise SystemExit(3)", tmp_path) as child, pytest.raises(HostError) as caught:
        child.wait_ready(lambda: False, SECONDS)
    assert "ended with 3 before it was ready" in caught.value.what
    assert caught.value.why == "cannot bind"


def test_a_program_that_never_gets_ready_is_reported_after_the_timeout(tmp_path: Path) -> None:
    def refused() -> bool:
        raise ConnectionRefusedError

    with _up(_start(SLEEP, tmp_path)) as child, pytest.raises(HostError, match=r"not ready after 0\.1 s"):
        child.wait_ready(refused, 0.1)


def test_waiting_for_the_end_of_one_that_runs_on_is_an_error(tmp_path: Path) -> None:
    with _up(_start(SLEEP, tmp_path)) as child, pytest.raises(HostError, match="did not end within"):
        child.wait(0.05)


def test_a_signal_reaches_the_program(tmp_path: Path) -> None:
    with _up(_start(SLEEP, tmp_path)) as child:
        child.send_signal(signal.SIGINT)
        assert child.wait(SECONDS) != 0


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="UMB803 cannot start no-such-program"):
        start(["no-such-program"], tmp_path / "log")


def test_all_children_are_stopped_last_started_first(tmp_path: Path) -> None:
    with children() as started:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            started.append(_up(_start(SLEEP, tmp_path / name)))
    assert [child.is_running for child in started] == [False, False]


def test_a_program_runs_to_its_end_and_its_output_is_returned() -> None:
    assert run([sys.executable, "-c", "print(input())"], SECONDS, stdin=b"hello\n") == "hello\n"


def test_a_failing_program_is_an_error_with_its_words() -> None:
    with pytest.raises(HostError) as caught:
        run([sys.executable, "-c", "raise SystemExit('no luck')"], SECONDS)
    assert (caught.value.code, caught.value.why) == ("UMB804", "no luck")


def test_a_program_without_end_is_an_error() -> None:
    with pytest.raises(HostError, match="no end after"):
        run([sys.executable, "-c", SLEEP], 0.2)


@pytest.mark.parametrize(
    ("script", "patience", "expected"),
    [(SLEEP, SECONDS, signal.SIGTERM), (STUBBORN, 0.5, signal.SIGKILL)],
    ids=["polite", "stubborn"],
)
def test_a_process_is_stopped_by_its_pid(
    tmp_path: Path, script: str, patience: float, expected: signal.Signals
) -> None:
    child = _up(_start(script, tmp_path))
    stop_pid(child.pid, timeout_seconds=patience)
    assert child.wait(SECONDS) == -expected


def test_stopping_a_pid_that_is_gone_is_fine() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(SECONDS)
    stop_pid(gone.pid)
    assert not os.path.exists(f"/proc/{gone.pid}")
