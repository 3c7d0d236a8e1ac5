"""A proxy run as its container would be: by the arguments of the rendered patch, behind a real server and agent."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support import kernel_routes
from tests.support.control_plane import PROGRAMS, ControlPlane, control_plane
from tests.support.coroutines import PATIENCE_SECONDS
from tests.support.dialling import closed_port, listening
from tests.support.hosted_queries import SELECTORS
from tests.support.hosted_specs import hosted_spec
from tests.support.promql import label_names
from tests.support.tunnel_pair import Daemon, Shape, TunnelPair, free_port, http_get, program, wait_until

from umbilical.hosted.objects.components import COMPONENTS
from umbilical.hosted.objects.sidecars import (
    ACCOUNT,
    KUBECONFIG_DIRECTORY,
    KUBECONFIG_KEY,
    hosted_access,
    management_access,
    proxy_container,
)

RESOLVES_NOTHING: Final = "cluster-network-operator"
RESOLVES_SERVICES: Final = "olm-operator"
SPEAKS_HTTP: Final = "openshift-apiserver"
CLUSTER_IP: Final = "10.96.7.7"
# Counted when something goes wrong, or when names are resolved here.
NOT_WITHOUT_A_FAULT: Final = {"umbilical_proxy_refused_connections_total", "umbilical_proxy_lookups_total"}


class Sidecar:
    """The container of a component's proxy, with places and ports of this test."""

    def __init__(self, pair: TunnelPair, component: str = RESOLVES_NOTHING, kubeconfig: Path | None = None) -> None:
        (proxy,) = COMPONENTS[component].proxies
        self.container: dict[str, Any] = proxy_container(hosted_spec(), proxy)
        self.port, self.health = free_port(), free_port()
        changes = {
            "--konnectivity-hostname": "127.0.0.1",
            "--konnectivity-port": str(pair.ports.frontend),
            "--ca-cert-path": str(pair.pki.authority.certificate_file),
            "--tls-cert-path": str(pair.pki.client.certificate),
            "--tls-key-path": str(pair.pki.client.key),
            "--serving-port": str(self.port),
            "--health-port": str(self.health),
        }
        flags = dict(argument.split("=", 1) for argument in self.container["args"])
        assert changes.keys() <= flags.keys()
        arguments = [f"{name}={value}" for name, value in (flags | changes).items()]
        path = program("ours", Path(self.container["command"][0]).name)
        variables = {one["name"]: one["value"] for one in self.container.get("env", ())}
        assert set(variables) == ({"KUBECONFIG"} if kubeconfig else set())
        prefix = ["env", f"KUBECONFIG={kubeconfig}"] if kubeconfig else []
        self.daemon = Daemon([str(path), *arguments], pair.folder / "proxy.log", prefix)

    def probe(self, name: str) -> int:
        return http_get(f"http://127.0.0.1:{self.health}{self.container[name]['httpGet']['path']}")[0]

    def metrics(self) -> str:
        return http_get(f"http://127.0.0.1:{self.health}/metrics")[1]

    def ask(self, port: int, host: bytes = b"127.0.0.1") -> int:
        """A SOCKS5 CONNECT by name, which an address may be too; the reply's code."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS) as client:
            client.sendall(b"\x05\x01\x00\x05\x01\x00\x03" + bytes([len(host)]) + host + port.to_bytes(2, "big"))
            answer = b""
            while len(answer) < 4:
                chunk = client.recv(64)
                assert chunk, answer
                answer += chunk
        assert answer[:2] == b"\x05\x00"
        return answer[3]


@pytest.fixture
def sidecar(start_pair: Callable[..., TunnelPair]) -> Iterator[Sidecar]:
    pair = start_pair(Shape(frontend="tcp"))
    found = Sidecar(pair)
    found.daemon.start()
    try:
        wait_until(lambda: found.probe("livenessProbe") == 200 or not found.daemon.is_running(), "the proxy lives")
        assert found.daemon.is_running(), found.daemon.log_tail()
        yield found
    finally:
        found.daemon.kill()


def test_the_proxy_becomes_ready_and_reaches_endpoints_behind_the_tunnel(sidecar: Sidecar) -> None:
    wait_until(lambda: sidecar.probe("readinessProbe") == 200, "the proxy is ready")
    listener, port = listening()
    with listener:
        assert sidecar.ask(port) == 0


def test_the_proxy_listens_on_loopback_alone(sidecar: Sidecar) -> None:
    table = Path("/proc/self/net/tcp").read_text()
    listening_at = [line.split()[1] for line in table.splitlines()[1:] if line.split()[3] == "0A"]
    assert [place.partition(":")[0] for place in listening_at if place.endswith(f":{sidecar.port:04X}")] == ["0100007F"]


def test_the_proxy_shows_what_alerts_and_dashboard_ask_of_it(sidecar: Sidecar) -> None:
    wait_until(lambda: sidecar.probe("readinessProbe") == 200, "the proxy is ready")
    listener, port = listening()
    with listener:
        assert sidecar.ask(port) == 0
    assert sidecar.ask(closed_port()) == 5
    shown = label_names(sidecar.metrics())
    asked = {one.metric for one in SELECTORS if one.metric.startswith("umbilical_proxy_")} - NOT_WITHOUT_A_FAULT
    assert asked - set(shown) == set()
    assert {"umbilical_certificate_expiry_timestamp_seconds"} <= set(shown)
    assert shown["umbilical_proxy_dials_total"] == {"way", "result"}


def test_a_proxy_without_a_server_lives_and_is_not_ready(start_pair: Callable[..., TunnelPair]) -> None:
    pair = start_pair(Shape(frontend="tcp"), agents=False)
    pair.server.kill()
    alone = Sidecar(pair)
    alone.daemon.start()
    try:
        wait_until(lambda: alone.probe("livenessProbe") == 200, "the proxy lives")
        assert alone.probe("readinessProbe") == 503
        assert "umbilical_proxy_tunnel_healthy 0" in alone.metrics()
    finally:
        alone.daemon.kill()


def own_kubeconfig(plane: ControlPlane, folder: Path, *, token: str) -> Path:
    """The rendered kubeconfig with the address and the directory of this test, and its files beside it."""
    (made,) = management_access(hosted_spec())
    text = made["data"][KUBECONFIG_KEY].replace(KUBECONFIG_DIRECTORY, str(folder))
    (folder / "kubeconfig").write_text(text.replace("https://kube-apiserver:6443", plane.url))
    (folder / "ca.crt").write_bytes(plane.authority.certificate_pem)
    if token:
        (folder / "token").write_text(token)
    return folder / "kubeconfig"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A hosted cluster with the sidecars' account, and a Service whose address is one of this machine's."""
    service: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "catalog", "namespace": "default"},
        "spec": {"clusterIP": CLUSTER_IP, "ports": [{"port": 50051}]},
    }
    with control_plane(tmp_path_factory.mktemp("plane")) as plane:
        plane.apply(service, *hosted_access(hosted_spec()))
        kernel_routes.add_to_loopback(CLUSTER_IP)
        try:
            yield plane
        finally:
            kernel_routes.remove_from_loopback(CLUSTER_IP)


@pytest.mark.real(*PROGRAMS, "ip")
def test_the_rendered_account_is_enough_to_find_services(
    start_pair: Callable[..., TunnelPair], plane: ControlPlane, tmp_path: Path
) -> None:
    token = plane.kubectl("-n", "kube-system", "create", "token", ACCOUNT).strip()
    resolving = Sidecar(
        start_pair(Shape(frontend="tcp")), RESOLVES_SERVICES, own_kubeconfig(plane, tmp_path, token=token)
    )
    resolving.daemon.start()
    try:
        wait_until(lambda: resolving.probe("readinessProbe") == 200, "the proxy is ready")
        with socket.create_server((CLUSTER_IP, 0)) as listener:
            port = listener.getsockname()[1]
            assert resolving.ask(port, b"catalog.default.svc.cluster.local") == 0, resolving.daemon.log_tail()
        assert 'umbilical_proxy_lookups_total{way="service",result="ok"} 1' in resolving.metrics()
    finally:
        resolving.daemon.kill()


def connect_status(proxy_port: int, target: str) -> int:
    """The status of a CONNECT."""
    with socket.create_connection(("127.0.0.1", proxy_port), PATIENCE_SECONDS) as client:
        client.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = b""
        while b"\r\n" not in head:
            chunk = client.recv(4096)
            assert chunk, head
            head += chunk
    return int(head.split(b" ")[1])


@pytest.mark.real(*PROGRAMS, "ip")
def test_the_http_proxy_runs_by_its_rendered_arguments_too(
    start_pair: Callable[..., TunnelPair], plane: ControlPlane, tmp_path: Path
) -> None:
    token = plane.kubectl("-n", "kube-system", "create", "token", ACCOUNT).strip()
    kubeconfig = own_kubeconfig(plane, tmp_path, token=token)
    web = Sidecar(start_pair(Shape(frontend="tcp")), SPEAKS_HTTP, kubeconfig)
    web.daemon.start()
    try:
        wait_until(lambda: web.probe("readinessProbe") == 200, "the proxy is ready")
        with socket.create_server((CLUSTER_IP, 0)) as listener:
            port = listener.getsockname()[1]
            assert connect_status(web.port, f"catalog.default.svc:{port}") == 200, web.daemon.log_tail()
        assert connect_status(web.port, f"127.0.0.1:{closed_port()}") == 502
        asked = {one.metric for one in SELECTORS if one.metric.startswith("umbilical_proxy_")}
        assert asked - set(label_names(web.metrics())) == {"umbilical_proxy_refused_connections_total"}
    finally:
        web.daemon.kill()


@pytest.mark.real(*PROGRAMS, "ip")
def test_a_proxy_whose_token_is_not_there_yet_lives_and_takes_it_when_it_comes(
    start_pair: Callable[..., TunnelPair], plane: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig = own_kubeconfig(plane, tmp_path, token="")
    waiting = Sidecar(start_pair(Shape(frontend="tcp")), RESOLVES_SERVICES, kubeconfig)
    waiting.daemon.start()
    try:
        wait_until(lambda: waiting.probe("livenessProbe") == 200, "the proxy lives")
        with socket.create_server((CLUSTER_IP, 0)) as listener:
            port = listener.getsockname()[1]
            assert waiting.ask(port, b"catalog.default.svc") != 0
            assert waiting.ask(port, CLUSTER_IP.encode()) == 0
            (tmp_path / "token").write_text(plane.kubectl("-n", "kube-system", "create", "token", ACCOUNT).strip())
            wait_until(lambda: waiting.ask(port, b"catalog.default.svc") == 0, "the token is used")
    finally:
        waiting.daemon.kill()
