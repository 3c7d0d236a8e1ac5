"""Processes: started, interrupted, spoken to."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.fault import HostError
from umbilical.host.commands import faults, parse_stats, syntax_complaint
from umbilical.host.machine_records import BackendServer
from umbilical.host.processes import SIGNALS, Child, Interrupts, run, start

SECONDS = 60.0
SLEEP = "import time; print('up', flush=True); time.sleep(600)"


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


def test_leaving_the_block_stops_the_program_and_so_does_a_signal(tmp_path: Path) -> None:
    with _up(_start(SLEEP, tmp_path)) as child:
        assert child.is_running
    assert child.exit_code == -signal.SIGTERM
    assert child.stop() == -signal.SIGTERM
    with _up(_start(SLEEP, tmp_path)) as child:
        child.send_signal(signal.SIGINT)
        assert child.wait(SECONDS) != 0


def test_a_program_that_ends_early_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with _start("print('cannot bind'); raise SystemExit(3)", tmp_path) as child, pytest.raises(HostError) as caught:
        child.wait_ready(lambda: False, SECONDS)
    assert "exited with 3 before it was ready" in caught.value.what
    assert caught.value.why == "cannot bind"


def test_one_that_ends_early_or_runs_on_is_an_error(tmp_path: Path) -> None:
    def refused() -> bool:
        raise ConnectionRefusedError

    with _up(_start(SLEEP, tmp_path)) as child, pytest.raises(HostError, match=r"not ready after 0\.1 s"):
        child.wait_ready(refused, 0.1)
    with _up(_start(SLEEP, tmp_path)) as child, pytest.raises(HostError, match="did not exit within"):
        child.wait(0.05)


def test_a_program_runs_to_its_end_or_is_an_error_with_its_words() -> None:
    assert run([sys.executable, "-c", "print(input())"], SECONDS, stdin=b"hello\n") == "hello\n"
    with pytest.raises(HostError) as caught:
        run([sys.executable, "-c", "raise SystemExit('no luck')"], SECONDS)
    assert (caught.value.code, caught.value.why) == ("UMB804", "no luck")
    with pytest.raises(HostError, match="it still ran after"):
        run([sys.executable, "-c", SLEEP], 0.2)


def test_a_program_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="UMB803 could not start no-such-program"):
        start(["no-such-program"], tmp_path / "log")


def _send(number: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_one_is_heard_and_no_other_disturbs_the_cleaning_up(number: signal.Signals) -> None:
    events: list[str] = []

    def work() -> None:
        with Interrupts() as interrupts:
            try:
                with interrupts.heard():
                    _send(number)
                    events.append("not reached")
            finally:
                _send(number)
                _send()
                events.append("cleaned")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert events == ["cleaned"]


def test_one_that_comes_before_is_remembered_until_somebody_hears() -> None:
    events: list[str] = []

    def work() -> None:
        with Interrupts() as interrupts:
            _send()
            events.append("made")
            with interrupts.heard():
                events.append("not reached")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert events == ["made"]


def test_one_that_comes_after_the_work_is_raised_when_all_is_clean() -> None:
    events: list[str] = []

    def work() -> None:
        with Interrupts() as interrupts:
            with interrupts.heard():
                events.append("worked")
            _send()
            events.append("cleaned")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert events == ["worked", "cleaned"]


def test_an_error_of_the_work_is_not_hidden_by_a_late_one() -> None:
    def work() -> None:
        with Interrupts() as interrupts:
            try:
                with interrupts.heard():
                    raise ValueError("work")
            finally:
                _send()

    with pytest.raises(ValueError, match="work"):
        work()


def test_handlers_are_given_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_thread_that_has_no_signals_just_works() -> None:
    done: list[bool] = []

    def work() -> None:
        with Interrupts() as interrupts, interrupts.heard():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=10)
    assert done == [True]


def test_a_complaint_of_bash_is_one_line_and_nothing_of_the_script_is_run(tmp_path: Path) -> None:
    assert syntax_complaint(b"if true\nthen\n    echo yes\nfi\n") is None
    complaint = syntax_complaint(b"if true\nthen\n")
    assert complaint is not None
    assert "line 3" in complaint
    assert "\n" not in complaint
    trace = tmp_path / "trace"
    assert syntax_complaint(f"touch {trace}\n".encode()) is None
    assert not trace.exists()


HEAD = "# pxname,svname,status,check_status\n"


def test_servers_are_told_from_frontends_and_are_up_once_checked() -> None:
    rows = "api,FRONTEND,OPEN,\napi,bootstrap,UP,L7OK\napi,master-0,no check,\napi,BACKEND,UP,\n"
    assert parse_stats(HEAD + rows) == [
        BackendServer("api", "bootstrap", True, "L7OK"),
        BackendServer("api", "master-0", False, ""),
    ]
    assert not parse_stats(HEAD + "api,a,UP,INI\n")[0].is_up
    assert parse_stats(HEAD + "api,a,UP,* L7OK\n")[0].check == "L7OK"
    assert faults(0, "Configuration file is valid\n") == ""
    assert faults(1, "") == "it exited with 1"


@given(st.text(max_size=200))
def test_whatever_it_says_is_servers_or_a_told_fault(text: str) -> None:
    with contextlib.suppress(HostError):
        assert all(isinstance(one, BackendServer) for one in parse_stats(text))


@pytest.mark.real("haproxy")
def test_a_real_haproxy_warns_and_refuses_in_these_words(tmp_path: Path) -> None:
    config = tmp_path / "haproxy.cfg"
    texts = {
        "defaults\n mode tcp\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n": False,
        "defaults\n mode tcp\nfrontend x\n bind 127.0.0.1:1\n": True,
        "defaults\n mode nonsense\n": True,
    }
    for text, is_wrong in texts.items():
        config.write_text(f"{text}frontend f\n bind 127.0.0.1:3\n")
        command = ["haproxy", "-c", "-f", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        found = faults(done.returncode, done.stdout + done.stderr)
        assert bool(found) == is_wrong, done.stderr
