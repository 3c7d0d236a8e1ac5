"""A real kube-apiserver calls a webhook that it has no route to, through server and agent.

    control  10.90.0.1   etcd, kube-apiserver, proxy-server; routes to its own link only
    node     10.90.0.2   proxy-agent
    pod      10.91.1.2   the webhook, behind the node
Set UMBILICAL_FAULTS_OF=upstream to see the same story with upstream's programs.
"""

import base64
import itertools
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.interop.admission_webhook import DENIAL
from tests.interop.conftest import FAULTY
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.netns import Namespace, Network
from tests.support.tunnel_pair import Daemon, program, wait_until
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

from umbilical.bootstrap.analyze.signatures import SIGNATURES, search
from umbilical.bootstrap.render.trial_webhook import NAME, REMOVAL
from umbilical.fault import HostError
from umbilical.host import processes

pytestmark = [pytest.mark.real(*PROGRAMS), pytest.mark.timeout(300)]

POD: Final = "10.91.1.2"
NODE: Final = "10.91.1.1"
"""The node's address in the network of its pod, which the API server has no route to."""
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
        network.link(node, f"{NODE}/24", pod, f"{POD}/24")
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
    return [service, *_addresses("webhook", "default", POD), configuration]


def _addresses(service: str, namespace: str, address: str) -> Iterator[dict[str, Any]]:
    """What controllers would write: kube-apiserver 1.33 reads Endpoints for webhooks, newer ones EndpointSlices."""
    labels = {"kubernetes.io/service-name": service}
    yield {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{service}-1", "namespace": namespace, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8443, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
    }
    yield {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": service, "namespace": namespace},
        "subsets": [{"addresses": [{"ip": address}], "ports": [{"port": 8443, "protocol": "TCP"}]}],
    }


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
    said = BytesIO((place.plane.folder / "kube-apiserver.log").read_bytes())
    found = {(name, evidence.address) for name, evidence in search("kube-apiserver.log", said, SIGNATURES)}
    assert found == {("call without route", POD)}


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


@pytest.mark.parametrize("tunnel", ["grpc/uds"], indirect=True)
def test_the_rendered_test_webhook_is_reached_and_the_live_check_says_so(tunnel: Tunnel, tmp_path: Path) -> None:
    plane, control = tunnel.place.plane, tunnel.place.control
    umbilical = [str(Path(sys.executable).parent / "umbilical"), "bootstrap"]
    rendered = tmp_path / "webhook"
    processes.run([*umbilical, "render", "--test-webhook", "python:3", "--out", str(rendered)], 60)
    live = [*umbilical, "verify", "--live", "--kubeconfig", str(plane.kubeconfig), "--only", "L15", "-o", "json"]

    def finding() -> tuple[str, str]:
        done = subprocess.run(control.command(*live), capture_output=True, text=True, timeout=60, check=False)
        (found,) = json.loads(done.stdout)["findings"]
        return found["outcome"], found["evidence"]

    assert finding()[0] == "skipped"
    plane.kubectl("apply", "-f", str(rendered))
    # No kubelet runs here: the pod's program runs on the node, with the files of its volumes.
    values = {one["kind"]: one for one in (yaml.safe_load(path.read_bytes()) for path in rendered.iterdir())}
    plane.apply(*_addresses(NAME, NAME, NODE))
    for name, content in values["Secret"]["data"].items():
        (tmp_path / name).write_bytes(base64.b64decode(content))
    (tmp_path / "webhook.py").write_text(values["ConfigMap"]["data"]["webhook.py"])
    wait_until(lambda: "refused" in finding()[1], "the API server reaches the pod, where nothing listens yet")
    program = Daemon(tunnel.place.node.command(sys.executable, tmp_path / "webhook.py", tmp_path), tmp_path / "log")
    program.start()
    try:
        wait_until(lambda: finding() == ("passed", "allow: allowed; deny: denied"), "the webhook answers")
    finally:
        program.kill()
        plane.kubectl(*shlex.split(REMOVAL)[1:], "--wait=false")


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
