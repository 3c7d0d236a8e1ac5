"""`umbilical lab shell`: a terminal on a node, or one command there, as root and in a user namespace."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.fixture_types import Captured
from tests.support.labs import SECRET, WAYS, isolated, running

from umbilical.cli import main
from umbilical.lab.isolation import Isolation
from umbilical.lab.lab import Lab

PROMPT = "root@master-0:/# "
pytestmark = pytest.mark.real("unshare", "nsenter", "nft", "ps")


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


def test_a_command_runs_on_the_node_with_our_input_and_its_exit_status_is_ours(lab: Lab) -> None:
    done = run(lab, "master-0", "--", "sh", "-c", "hostname; id -u; pwd; echo problem >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "master-0\n0\n/\n", "problem\n")
    assert run(lab, "master-0", "--", "tr", "a-z", "A-Z", stdin="hello").stdout == "HELLO"
    assert run(lab, "master-0", "--", "echo", "--name", "-o", "--help").stdout == "--name -o --help\n"
    seen = run(lab, "master-0", "--", "env").stdout
    assert SECRET not in seen
    assert "HOSTNAME=master-0\n" in seen


def test_the_shell_sees_what_other_programs_on_the_node_see(lab: Lab) -> None:
    networks = {run(lab, "master-0", "--", "readlink", "/proc/self/ns/net").stdout}
    assert networks == {lab.exec("master-0", ["readlink", "/proc/self/ns/net"]).text}
    assert run(lab, "master-0", "--", "umbilical", "version").returncode == 0
    assert "sleep infinity" in run(lab, "master-0", "--", "ps", "-A", "-o", "args=").stdout


def test_a_terminal_is_a_terminal_there(lab: Lab) -> None:
    pid, terminal = pty.fork()
    if not pid:
        # Whoever runs the tests in the background has it ignored, and with it every program below.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execve(sys.executable, command(lab, "master-0"), {**os.environ, "TERM": "dumb"})
    screen = Screen(terminal)
    try:
        screen.wait_for(PROMPT)
        os.write(terminal, b"test -t 0 && echo it is $((6 * 7))\n")
        screen.wait_for("it is 42")
        screen.wait_for(PROMPT)
        # Said by the program itself: only then does it have the terminal, and not the shell.
        os.write(terminal, b"sh -c 'echo st\"\"arted; exec sleep 1000'\n")
        screen.wait_for("started")
        os.write(terminal, b"\x03")
        screen.wait_for(PROMPT)
        os.write(terminal, b"exit 5\n")
        assert ended(pid) == 5
    finally:
        os.close(terminal)


def test_an_unknown_node_and_a_lab_that_is_not_up_are_told(lab: Lab, capfd: Captured, tmp_path: Path) -> None:
    assert main.run(["lab", "shell", "--dir", str(lab.directory.path), "boostrap"]) == 3
    assert capfd.readouterr().err.endswith("next: did you mean bootstrap?\n")
    assert main.run(["lab", "shell", "--dir", str(tmp_path / "absent"), "bootstrap"]) == 4
    assert capfd.readouterr().err.startswith("UMB815 ")


class Screen:
    """What a terminal has shown and nobody has looked at yet."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._seen = ""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 30
        while text not in self._seen:
            readable, _, _ = select.select([self._terminal], [], [], max(deadline - time.monotonic(), 0))
            assert readable, f"{text!r} did not come; {self._seen!r} did"
            self._seen += os.read(self._terminal, 4096).decode()
        self._seen = self._seen.partition(text)[2]


def ended(pid: int) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    raise AssertionError("the shell did not end")
