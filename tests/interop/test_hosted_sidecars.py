"""A proxy run as its container would be: by the arguments of the rendered patch, behind a real server and agent."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.daemons import PATIENCE_SECONDS
from tests.support.dialling import closed_port, listening
from tests.support.hosted_queries import SELECTORS
from tests.support.hosted_specs import hosted_spec
from tests.support.promql import label_names
from tests.support.tunnel_pair import Daemon, Shape, TunnelPair, free_port, http_get, program, wait_until

from umbilical.assets.hosted.components import COMPONENTS
from umbilical.assets.hosted.sidecars import proxy_container

# Counted when something goes wrong, or when names are resolved here.
NOT_WITHOUT_A_FAULT: Final = {"umbilical_proxy_refused_connections_total", "umbilical_proxy_lookups_total"}


class Sidecar:
    """The container of the component that leaves names to agents, with places and ports of this test."""

    def __init__(self, pair: TunnelPair) -> None:
        (proxy,) = COMPONENTS["cluster-network-operator"].proxies
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
        self.daemon = Daemon([str(path), *arguments], pair.folder / "proxy.log")

    def probe(self, name: str) -> int:
        return http_get(f"http://127.0.0.1:{self.health}{self.container[name]['httpGet']['path']}")[0]

    def metrics(self) -> str:
        return http_get(f"http://127.0.0.1:{self.health}/metrics")[1]

    def ask(self, port: int) -> int:
        """A SOCKS5 CONNECT to loopback behind the tunnel; the reply's code."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS) as client:
            client.sendall(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01" + port.to_bytes(2, "big"))
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
