"""Programs by their ports, on this machine: whoever listens is found, and ended by its port alone."""

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from tests.support.recording_machines import RecordingMachines

from umbilical.hardway import node_programs
from umbilical.hardway.machines import Done
from umbilical.hardway.node_programs import is_listening, kill

LISTEN = "import socket, sys, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"


class Here(RecordingMachines):
    """One machine, which is this."""

    def run(
        self, node_id: str, command: Sequence[str], *, stdin: bytes | None = None, timeout_seconds: float = 60.0
    ) -> Done:
        done = subprocess.run(command, capture_output=True, timeout=timeout_seconds, check=False)
        return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def listening() -> Iterator[tuple[subprocess.Popen[str], int]]:
    with subprocess.Popen([sys.executable, "-c", LISTEN + "time.sleep(120)"], stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        yield one, int(one.stdout.readline())
        one.kill()


def test_a_program_listens_or_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setitem(node_programs.PORTS, "etcd", server.getsockname()[1])
        assert is_listening(Here(), "master-0", "etcd")
    assert not is_listening(Here(), "master-0", "etcd")


@pytest.mark.real("ss")
def test_who_listens_is_ended_without_a_warning(
    monkeypatch: pytest.MonkeyPatch, listening: tuple[subprocess.Popen[str], int]
) -> None:
    process, port = listening
    monkeypatch.setitem(node_programs.PORTS, "kube-apiserver", port)
    assert kill(Here(), "master-0", "kube-apiserver")
    assert process.wait(60) == -9
    assert not kill(Here(), "master-0", "kube-apiserver")


def test_the_programs_of_a_control_plane_are_known_by_their_usual_ports() -> None:
    ports = {"etcd": 2379, "kube-apiserver": 6443, "kube-controller-manager": 10257, "kube-scheduler": 10259}
    assert ports == node_programs.PORTS
