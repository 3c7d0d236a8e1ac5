"""How a command gets into the tunnel: by files, by a namespace with a server, and by a namespace alone."""

from pathlib import Path
from typing import Any

import pytest
from tests.hosted.test_port_forward import told as told_fixture
from tests.support.control_plane import PROGRAMS, ControlPlane

from umbilical.dialer.settings import Protocol, TcpServer, UnixServer
from umbilical.hosted.access import Access, AccessRequest, open_access, server_title
from umbilical.hosted.errors import HostedError
from umbilical.tunnel.settings import TlsFiles

told = told_fixture
FILES = TlsFiles(Path("c"), Path("k"), Path("ca"))
SERVER = TcpServer("server", 8090)


def secret(name: str, **data: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "clusters-b"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data}


def config_map(name: str, **data: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "clusters-b"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "clusters-b"}},
        secret("konnectivity-client", **{"tls.crt": "client certificate", "tls.key": "client key"}),
        config_map("konnectivity-ca-bundle", **{"ca.crt": "frontend CA"}),
        secret("kas-kubelet-client-crt", **{"tls.crt": "kubelet certificate", "tls.key": "kubelet key"}),
        config_map("kubelet-client-ca", **{"ca.crt": "kubelet CA"}),
    )
    return "clusters-b"


def test_given_files_are_used_as_they_are() -> None:
    with open_access(AccessRequest(SERVER, FILES, protocol=Protocol.GRPC)) as access:
        assert access == Access(SERVER, FILES, Protocol.GRPC)
    settings = access.dialer_settings(7.0)
    assert (settings.servers, settings.tls, settings.protocol) == ((SERVER,), FILES, Protocol.GRPC)
    assert (settings.connect_seconds, settings.tls_seconds, settings.reply_seconds) == (7.0, 7.0, 7.0)


def test_a_unix_socket_needs_no_files() -> None:
    with open_access(AccessRequest(UnixServer(Path("/run/k.sock")))) as access:
        assert access.tls == TlsFiles()
        assert access.title == "unix:/run/k.sock"


@pytest.mark.parametrize("request_", [AccessRequest(), AccessRequest(tls=FILES), AccessRequest(SERVER)])
def test_a_way_that_leads_nowhere_is_refused(request_: AccessRequest) -> None:
    with pytest.raises(HostedError) as fault, open_access(request_):
        raise AssertionError("there is no way")
    assert fault.value.code == "UMB573"


def test_servers_are_named_as_they_were_given() -> None:
    assert server_title(TcpServer("::1", 8090)) == "[::1]:8090"
    assert server_title(TcpServer("127.0.0.1", 8090, "konnectivity-server-local")) == (
        "127.0.0.1:8090 (konnectivity-server-local)"
    )
    assert server_title(TcpServer("s", 1, "s")) == "s:1"


@pytest.mark.real(*PROGRAMS)
def test_credentials_come_from_the_namespace_and_are_gone_afterwards(plane: ControlPlane, namespace: str) -> None:
    request = AccessRequest(SERVER, namespace=namespace, kubeconfig=plane.kubeconfig, needs_kubelet=True)
    with open_access(request) as access:
        assert access.server == SERVER
        key, kubelet = access.tls.key, access.kubelet
        assert key is not None
        assert key.read_text() == "client key"
        assert kubelet is not None
        assert kubelet.authority is not None
        assert kubelet.authority.read_text() == "kubelet CA"
    assert not key.parent.exists()


@pytest.mark.real(*PROGRAMS)
def test_given_files_win_over_those_of_the_namespace(plane: ControlPlane, namespace: str) -> None:
    request = AccessRequest(SERVER, FILES, namespace=namespace, kubeconfig=plane.kubeconfig)
    with open_access(request) as access:
        assert access.tls == FILES
        assert access.kubelet is None


@pytest.mark.real(*PROGRAMS)
def test_without_a_server_a_port_is_forwarded_and_the_name_of_the_service_verified(
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
