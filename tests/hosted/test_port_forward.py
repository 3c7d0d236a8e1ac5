"""Access to a namespace: port forwards to its pods."""

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.fixture_types import Patch
from tests.support.tls_listener import listener, plain_text

import peers
from umbilical.dialer.settings import Protocol, TcpServer, UnixServer
from umbilical.fault import HostedError
from umbilical.hosted.access import AccessRequest, TunnelAccess, open_access, port_forward, server_title
from umbilical.tunnel.settings import TlsFiles

# Forwards for real and prints kubectl's line; kubectl itself needs a kubelet.
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
def told(tmp_path: Path, monkeypatch: Patch) -> Path:
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


def test_a_program_that_is_missing_or_cannot_run_is_told(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostedError) as fault, port_forward(tmp_path / "k", "n", "svc/s", 8090, tmp_path / "log"):
        raise AssertionError("there is no port")
    assert fault.value.code == "UMB571"
    assert "--server" in fault.value.remedy
    (tmp_path / "kubectl").write_text("#!/no/such/interpreter\n")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostedError, match="UMB572"), port_forward(tmp_path / "k", "n", "svc/s", 8090, tmp_path / "log"):
        raise AssertionError("there is no port")


@pytest.mark.real(*PROGRAMS)
def test_the_real_kubectls_own_words_are_told(plane: ControlPlane, tmp_path: Path, monkeypatch: Patch) -> None:
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


FILES = TlsFiles(Path("c"), Path("k"), Path("ca"))
SERVER = TcpServer("server", 8090)


def item(kind: str, name: str, **content: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "clusters-b"}, **content}


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    client = {"tls.crt": "client certificate", "tls.key": "client key"}
    kubelet = {"tls.crt": "kubelet certificate", "tls.key": "kubelet key"}
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "clusters-b"}},
        item("Secret", "konnectivity-client", stringData=client),
        item("ConfigMap", "konnectivity-ca-bundle", data={"ca.crt": "frontend CA"}),
        item("Secret", "kas-kubelet-client-crt", stringData=kubelet),
        item("ConfigMap", "kubelet-client-ca", data={"ca.crt": "kubelet CA"}),
    )
    return "clusters-b"


def test_given_files_are_used_as_they_are_and_a_unix_socket_needs_none() -> None:
    with open_access(AccessRequest(SERVER, FILES, protocol=Protocol.GRPC)) as access:
        assert access == TunnelAccess(SERVER, FILES, Protocol.GRPC)
    settings = access.dialer_settings(7.0)
    assert (settings.servers, settings.tls, settings.protocol) == ((SERVER,), FILES, Protocol.GRPC)
    assert (settings.connect_seconds, settings.tls_seconds, settings.reply_seconds) == (7.0, 7.0, 7.0)
    with open_access(AccessRequest(UnixServer(Path("/run/k.sock")))) as access:
        assert access.tls == TlsFiles()
        assert access.title == "unix:/run/k.sock"
    assert server_title(TcpServer("::1", 8090)) == "[::1]:8090"
    assert server_title(TcpServer("127.0.0.1", 8090, "konnectivity-server-local")) == (
        "127.0.0.1:8090 (konnectivity-server-local)"
    )
    assert server_title(TcpServer("s", 1, "s")) == "s:1"


def test_a_way_that_leads_nowhere_is_refused() -> None:
    for request_ in (AccessRequest(), AccessRequest(tls=FILES), AccessRequest(SERVER)):
        with pytest.raises(HostedError, match="UMB573"), open_access(request_):
            raise AssertionError("there is no way")


@pytest.mark.real(*PROGRAMS)
def test_credentials_come_from_the_namespace_unless_given_and_are_gone_afterwards(
    plane: ControlPlane, namespace: str
) -> None:
    request = AccessRequest(SERVER, namespace=namespace, kubeconfig=plane.kubeconfig, needs_kubelet=True)
    with open_access(request) as access:
        assert access.server == SERVER
        key, authority = access.tls.key, access.kubelet and access.kubelet.authority
        assert [path and path.read_text() for path in (key, authority)] == ["client key", "kubelet CA"]
    assert key is not None
    assert not key.parent.exists()
    with open_access(AccessRequest(SERVER, FILES, namespace=namespace, kubeconfig=plane.kubeconfig)) as access:
        assert (access.tls, access.kubelet) == (FILES, None)


@pytest.mark.real(*PROGRAMS)
def test_without_a_server_a_port_is_forwarded_and_its_service_verified(
    plane: ControlPlane, namespace: str, told: Path
) -> None:
    request = AccessRequest(namespace=namespace, kubeconfig=plane.kubeconfig)
    with open_access(request) as access:
        assert isinstance(access.server, TcpServer)
        assert access.server.host == "127.0.0.1"
        assert access.server.server_name == "konnectivity-server-local"
        assert "svc/konnectivity-server-local :8090" in told.read_text()
    named = AccessRequest(namespace=namespace, kubeconfig=plane.kubeconfig, server_name="frontend")
    with open_access(named) as access:
        assert isinstance(access.server, TcpServer)
        assert access.server.server_name == "frontend"
