"""`umbilical lab shell`: a terminal on a node, or one command there, as root and in a user namespace."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.labs import SECRET, WAYS, isolated, running

from umbilical.cli import main
from umbilical.lab.isolation import Isolation
from umbilical.lab.lab import Lab

pytestmark = pytest.mark.real("unshare", "nsenter", "nft")


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: way.name)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    way: Isolation = request.param
    with isolated(way), running(tmp_path_factory.mktemp(way.name) / "lab") as lab:
        yield lab


def command(lab: Lab, *words: str) -> list[str]:
    return [sys.executable, "-m", "umbilical", "lab", "shell", "--dir", str(lab.directory.path), *words]


def run(lab: Lab, *words: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, SECRET: "nobody may see this"}
    return subprocess.run(
        command(lab, *words), input=stdin, capture_output=True, text=True, timeout=60, env=environment, check=False
    )


def test_a_command_runs_on_the_node_and_its_exit_status_is_ours(lab: Lab) -> None:
    done = run(lab, "master-0", "--", "sh", "-c", "hostname; id -u; pwd; echo problem >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "master-0\n0\n/\n", "problem\n")


def test_a_command_is_fed_by_our_own_input(lab: Lab) -> None:
    assert run(lab, "master-0", "--", "tr", "a-z", "A-Z", stdin="hello").stdout == "HELLO"


def test_options_after_the_node_are_the_commands(lab: Lab) -> None:
    assert run(lab, "master-0", "--", "echo", "--name", "-o", "--help").stdout == "--name -o --help\n"


def test_the_shell_sees_what_other_programs_on_the_node_see(lab: Lab) -> None:
    networks = {run(lab, "master-0", "--", "readlink", "/proc/self/ns/net").stdout}
    assert networks == {lab.exec("master-0", ["readlink", "/proc/self/ns/net"]).text}
    assert run(lab, "master-0", "--", "umbilical", "version").returncode == 0
    assert "sleep infinity" in run(lab, "master-0", "--", "ps", "-A", "-o", "args=").stdout


def test_nothing_of_the_callers_environment_goes_in_but_the_terminal(lab: Lab) -> None:
    seen = run(lab, "master-0", "--", "env").stdout
    assert SECRET not in seen
    assert "HOSTNAME=master-0\n" in seen


def test_a_terminal_is_a_terminal_there(lab: Lab) -> None:
    pid, terminal = pty.fork()
    if not pid:
        os.execve(sys.executable, command(lab, "master-0"), {**os.environ, "TERM": "dumb"})
    try:
        read_until(terminal, "root@master-0")
        os.write(terminal, b"test -t 0 && echo it is $((6 * 7))\n")
        read_until(terminal, "it is 42")
        os.write(terminal, b"sleep 1000\n")
        read_until(terminal, "sleep 1000")
        os.write(terminal, b"\x03")
        read_until(terminal, "root@master-0")
        os.write(terminal, b"exit 5\n")
        assert ended(pid) == 5
    finally:
        os.close(terminal)


def test_an_unknown_node_is_told(lab: Lab, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["lab", "shell", "--dir", str(lab.directory.path), "boostrap"]) == 4
    assert capfd.readouterr().err.endswith("next: did you mean bootstrap?\n")


def test_a_lab_that_is_not_up_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["lab", "shell", "--dir", str(tmp_path / "absent"), "bootstrap"]) == 4
    assert capfd.readouterr().err.startswith("UMB815 ")


def read_until(terminal: int, text: str) -> None:
    seen = b""
    deadline = time.monotonic() + 30
    while text.encode() not in seen:
        readable, _, _ = select.select([terminal], [], [], max(deadline - time.monotonic(), 0))
        assert readable, f"{text!r} did not come; {seen!r} did"
        seen += os.read(terminal, 4096)


def ended(pid: int) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    raise AssertionError("the shell did not end")
