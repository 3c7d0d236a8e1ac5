"""A real kube-apiserver calls a webhook that it has no route to, through server and agent.

    control  10.90.0.1   etcd, kube-apiserver, proxy-server; routes to its own link only
    node     10.90.0.2   proxy-agent
    pod      10.91.1.2   the webhook, behind the node
Set UMBILICAL_FAULTS_OF=upstream to see the same story with upstream's programs.
"""

import base64
import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.interop.admission_webhook import DENIAL
from tests.interop.conftest import FAULTY
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.netns import Namespace, Network
from tests.support.tunnel_pair import Daemon, program, wait_until
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

from umbilical.fault import HostError

pytestmark = [pytest.mark.real(*PROGRAMS), pytest.mark.timeout(300)]

POD: Final = "10.91.1.2"
SERVER: Final = "10.90.0.1"
FRONTEND_PORT: Final = 8131
NO_AGENT: Final = {"grpc": "No agent available", "http-connect": "500 Internal Server Error"}
_numbers: Final = itertools.count()


@dataclass(frozen=True)
class Place:
    """The namespaces, the running API server without a tunnel, and the webhook."""

    control: Namespace
    node: Namespace
    plane: ControlPlane
    pki: TunnelPki
    folder: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("webhook")
    with ExitStack() as stack:
        network = stack.enter_context(Network("umb"))
        control, node, pod = (network.create(label) for label in ("control", "node", "pod"))
        network.link(control, f"{SERVER}/24", node, "10.90.0.2/24")
        network.link(node, "10.91.1.1/24", pod, f"{POD}/24")
        pki = make_tunnel_pki(folder, [SERVER, "127.0.0.1"])
        plane = ControlPlane(folder / "plane", control)
        stack.callback(plane.stop)
        plane.start()
        webhook = _webhook(pki, pod, folder)
        stack.callback(webhook.kill)
        webhook.start()
        wait_until(lambda: "ready" in webhook.log_tail(), "the webhook serves")
        plane.apply(*_webhook_objects(pki))
        yield Place(control, node, plane, pki, folder)


def _webhook(pki: TunnelPki, pod: Namespace, folder: Path) -> Daemon:
    pair = pki.authority.serving("webhook", ["webhook.default.svc"])
    module = [sys.executable, "-m", "tests.interop.admission_webhook"]
    command = pod.command(*module, POD, "8443", pair.certificate, pair.key)
    return Daemon(command, folder / "webhook.log")


def _webhook_objects(pki: TunnelPki) -> list[dict[str, Any]]:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "webhook", "namespace": "default"},
        "spec": {"ports": [{"port": 443, "targetPort": 8443}]},
    }
    slice_of_it = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "webhook-1",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "webhook"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8443, "protocol": "TCP"}],
        "endpoints": [{"addresses": [POD], "conditions": {"ready": True}}],
    }
    webhook = {
        "name": "test.umbilical.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
        "clientConfig": {
            "service": {"namespace": "default", "name": "webhook", "path": "/validate"},
            "caBundle": base64.b64encode(pki.authority.certificate_file.read_bytes()).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "objectSelector": {"matchExpressions": [{"key": "verdict", "operator": "Exists"}]},
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "test.umbilical.dev"},
        "webhooks": [webhook],
    }
    return [service, slice_of_it, configuration]


def _create(plane: ControlPlane, verdict: str) -> str:
    """Create an object that the webhook must judge; return "created" or why not."""
    labels = {"verdict": verdict}
    metadata = {"name": f"judged-{next(_numbers)}", "namespace": "default", "labels": labels}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    try:
        plane.kubectl("create", "-f", "-", stdin=json.dumps(manifest))
    except HostError as error:
        return error.why
    return "created"


class Tunnel:
    """Server and agent in their namespaces, and the API server told to use them."""

    def __init__(self, place: Place, mode: str, frontend: str) -> None:
        self.place = place
        self.mode = mode
        self.frontend = frontend
        self.folder = place.folder / f"{mode}-{frontend}"
        self.folder.mkdir()
        self.socket_path = self.folder / "frontend.sock"
        server = place.control.command(program(FAULTY, "proxy-server"), *self._server_flags())
        agent = place.node.command(program(FAULTY, "proxy-agent"), *self._agent_flags())
        self.server = Daemon(server, self.folder / "server.log")
        self.agent = Daemon(agent, self.folder / "agent.log")

    def start(self) -> None:
        self.server.start()
        self.agent.start()
        self.place.plane.stop_apiserver()
        self.place.plane.start_apiserver(f"--egress-selector-config-file={self._write_egress_selector()}")
        self.wait_until_it_serves()

    def stop(self) -> None:
        self.agent.kill()
        self.server.kill()

    def wait_until_it_serves(self) -> None:
        wait_until(lambda: _create(self.place.plane, "allow") == "created", "the webhook is reached", 60)

    def _server_flags(self) -> Iterator[str]:
        pki = self.place.pki
        yield from ("--v=0", f"--mode={self.mode}", f"--agent-bind-address={SERVER}")
        yield f"--cluster-ca-cert={pki.authority.certificate_file}"
        yield from (f"--cluster-cert={pki.server.certificate}", f"--cluster-key={pki.server.key}")
        if self.frontend == "uds":
            yield from (f"--uds-name={self.socket_path}", "--server-port=0")
            return
        yield from ("--server-bind-address=127.0.0.1", f"--server-port={FRONTEND_PORT}")
        yield f"--server-ca-cert={pki.authority.certificate_file}"
        yield from (f"--server-cert={pki.server.certificate}", f"--server-key={pki.server.key}")

    def _agent_flags(self) -> Iterator[str]:
        pki = self.place.pki
        yield from ("--v=0", f"--proxy-server-host={SERVER}", f"--ca-cert={pki.authority.certificate_file}")
        yield from (f"--agent-cert={pki.agent.certificate}", f"--agent-key={pki.agent.key}")
        yield from ("--sync-interval=100ms", "--sync-interval-cap=500ms", "--probe-interval=100ms")

    def _write_egress_selector(self) -> Path:
        protocol = {"grpc": "GRPC", "http-connect": "HTTPConnect"}[self.mode]
        connection = {"proxyProtocol": protocol, "transport": self._transport()}
        content = {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": connection}],
        }
        path = self.folder / "egress.json"
        path.write_text(json.dumps(content))
        return path

    def _transport(self) -> dict[str, Any]:
        if self.frontend == "uds":
            return {"uds": {"udsName": str(self.socket_path)}}
        pki = self.place.pki
        tls = {
            "caBundle": str(pki.authority.certificate_file),
            "clientCert": str(pki.client.certificate),
            "clientKey": str(pki.client.key),
        }
        return {"tcp": {"url": f"https://127.0.0.1:{FRONTEND_PORT}", "tlsConfig": tls}}


def test_without_a_tunnel_the_webhook_cannot_be_reached(place: Place) -> None:
    # The API server learns of the webhook by its own watches, a moment after it was told.
    wait_until(lambda: _create(place.plane, "allow") != "created", "the API server knows of the webhook")
    wait_until(lambda: "network is unreachable" in _create(place.plane, "allow"), "the API server says why")


@pytest.fixture(scope="module", params=["grpc/uds", "http-connect/uds", "http-connect/tcp-mtls"])
def tunnel(place: Place, request: pytest.FixtureRequest) -> Iterator[Tunnel]:
    mode, frontend = request.param.split("/")
    running = Tunnel(place, mode, frontend)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        print(running.server.log_tail(), running.agent.log_tail())


def test_the_webhook_allows_and_denies_through_the_tunnel(tunnel: Tunnel) -> None:
    plane = tunnel.place.plane
    for _ in range(10):
        assert _create(plane, "allow") == "created"
        assert DENIAL in _create(plane, "deny")


def test_without_its_agent_the_webhook_fails_clearly_and_comes_back(tunnel: Tunnel) -> None:
    tunnel.agent.kill()
    plane = tunnel.place.plane
    wait_until(lambda: NO_AGENT[tunnel.mode] in _create(plane, "allow"), "the API server names the lack of an agent")
    tunnel.agent.start()
    tunnel.wait_until_it_serves()
    assert DENIAL in _create(plane, "deny")


def test_without_its_server_the_webhook_fails_and_comes_back(tunnel: Tunnel) -> None:
    tunnel.server.kill()
    plane = tunnel.place.plane
    wait_until(lambda: "failed calling webhook" in _create(plane, "allow"), "the API server cannot call the webhook")
    tunnel.server.start()
    tunnel.wait_until_it_serves()
    assert DENIAL in _create(plane, "deny")
