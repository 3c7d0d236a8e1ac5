"""A forwarded port: kubectl's line is waited for, its words are told when it fails, and it ends with us."""

import os
import socket
import sys
from pathlib import Path

import pytest
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.tls_listener import listener, plain_text

import peers
from umbilical.hosted.errors import HostedError
from umbilical.hosted.port_forward import port_forward

# Forwards for real, as kubectl does behind the same line; the real one needs a kubelet for it.
FORWARDER = """#!{python}
import os, socket, sys, threading
assert sys.argv[1] == "port-forward", sys.argv
port = int(sys.argv[-1].lstrip(":"))
server = socket.create_server(("127.0.0.1", 0))
with open({told!r}, "w") as told:
    told.write("%d %s" % (os.getpid(), " ".join(sys.argv[2:])))
print("Forwarding from 127.0.0.1:%d -> %d" % (server.getsockname()[1], port), flush=True)
def copy(source, sink):
    while octets := source.recv(4096):
        sink.sendall(octets)
    sink.shutdown(socket.SHUT_WR)
while True:
    client = server.accept()[0]
    behind = socket.create_connection(("127.0.0.1", port))
    for pair in ((client, behind), (behind, client)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl on PATH that writes its pid and arguments here."""
    told = tmp_path / "told"
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(FORWARDER.format(python=sys.executable, told=str(told)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return told


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_port_leads_there_and_the_child_ends_with_the_block(told: Path, tmp_path: Path) -> None:
    with (
        listener(plain_text) as behind,
        port_forward(
            tmp_path / "kubeconfig", "clusters-a", "svc/konnectivity-server-local", behind, tmp_path / "l"
        ) as port,
    ):
        with socket.create_connection(("127.0.0.1", port), 60) as client:
            assert client.recv(100).startswith(b"220")
        pid, _, arguments = told.read_text().partition(" ")
        assert is_alive(int(pid))
    assert not is_alive(int(pid))
    assert arguments == (
        f"--kubeconfig={tmp_path / 'kubeconfig'} --namespace=clusters-a --address=127.0.0.1 "
        f"svc/konnectivity-server-local :{behind}"
    )


def test_without_a_program_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostedError) as fault, port_forward(tmp_path / "k", "n", "svc/s", 8090, tmp_path / "log"):
        raise AssertionError("there is no port")
    assert fault.value.code == "UMB571"
    assert "--server" in fault.value.remedy


def test_a_program_that_cannot_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kubectl").write_text("#!/no/such/interpreter\n")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostedError) as fault, port_forward(tmp_path / "k", "n", "svc/s", 8090, tmp_path / "log"):
        raise AssertionError("there is no port")
    assert fault.value.code == "UMB572"


@pytest.mark.real(*PROGRAMS)
def test_the_real_kubectls_own_words_are_told(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = peers.binary("kubectl")
    assert kubectl is not None
    monkeypatch.setenv("PATH", str(kubectl.parent))
    with (
        pytest.raises(HostedError) as fault,
        port_forward(plane.kubeconfig, "default", "svc/konnectivity-server-local", 8090, tmp_path / "log"),
    ):
        raise AssertionError("there is no port")
    assert fault.value.code == "UMB572"
    assert "konnectivity-server-local" in fault.value.why
    assert "not found" in fault.value.why
