"""A hosted control plane in small: two real kube-apiservers, two servers with an agent each, a kubelet's stand-in.

The management cluster's API knows the servers' pods; the hosted cluster's API reaches its one node by the tunnel alone.
"""

import base64
import json
import ssl
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.interop.conftest import print_logs
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.tunnel_pair import Shape, TunnelPair
from tests.support.tunnel_pki import FolderAuthority, Pair, TunnelPki
from tests.support.web_server import Handler, serving

NODE: Final = "198.18.0.1"
"""Of the namespace that the tests run in. kube-apiserver's proxy refuses loopback addresses of pods."""
NAMESPACE: Final = "clusters-guest"
Object = dict[str, Any]


class _Kubelet(Handler):
    """Health, and the log of any container."""

    protocol_version = "HTTP/1.1"
    timeout = 1.0  # a connection that nobody uses any more ends within the test that made it

    def do_GET(self) -> None:
        is_log = self.path.startswith("/containerLogs/kube-system/konnectivity-agent-1/konnectivity-agent")
        body = b"connected to a server\n" if is_log else b"ok"
        self.answer(200 if is_log or self.path == "/healthz" else 404, body)


@dataclass
class HostedTestbed:
    management: ControlPlane
    hosted: ControlPlane
    pairs: list[TunnelPair]
    kubelet_port: int

    @property
    def options(self) -> list[str]:
        """For `umbilical hosted check`."""
        servers = [word for pair in self.pairs for word in ("--server", f"127.0.0.1:{pair.ports.frontend}")]
        clusters = ["--kubeconfig", str(self.hosted.kubeconfig)]
        clusters += ["--management-kubeconfig", str(self.management.kubeconfig), "-n", NAMESPACE]
        return [*clusters, *servers, "--timeout", "60s"]


@dataclass(frozen=True)
class _Authorities:
    serving: FolderAuthority
    clients: FolderAuthority
    agents: FolderAuthority
    kubelets: FolderAuthority


@contextmanager
def hosted_testbed(implementation: str, folder: Path) -> Iterator[HostedTestbed]:
    """Start everything, without a fault."""
    names = ("serving", "clients", "agents", "kubelets")
    for name in (*names, "management", "hosted", "pair-0", "pair-1"):
        (folder / name).mkdir()
    by = _Authorities(*(FolderAuthority(folder / name, f"{name}-ca") for name in names))
    pki = TunnelPki(
        by.serving,
        by.serving.serving("konnectivity-server", ("127.0.0.1", "localhost")),
        by.agents.client("konnectivity-agent"),
        by.clients.client("konnectivity-client"),
    )
    kubelet_client = by.kubelets.client("kube-apiserver")
    with ExitStack() as stack:
        pairs = [_pair(implementation, pki, by, folder / f"pair-{number}") for number in range(2)]
        for pair in pairs:
            stack.callback(print_logs, pair)
            stack.callback(pair.stop)
            pair.start()
        port = stack.enter_context(_kubelet(by.kubelets))
        stack.enter_context(serving(_Kubelet, host=NODE, port=443))
        egress = _egress_selector(folder / "egress.yaml", pairs[0], pki)
        arguments = _kubelet_arguments(by.kubelets, kubelet_client)
        management = stack.enter_context(control_plane(folder / "management"))
        hosted = stack.enter_context(
            control_plane(folder / "hosted", egress_selector_config=egress, apiserver_arguments=arguments)
        )
        _fill_management(management, pairs, pki, by, kubelet_client)
        _fill_hosted(hosted, pki, port)
        yield HostedTestbed(management, hosted, pairs, port)


def _pair(implementation: str, pki: TunnelPki, by: _Authorities, folder: Path) -> TunnelPair:
    flags = [
        f"--server-ca-cert={by.clients.certificate_file}",
        f"--cluster-ca-cert={by.agents.certificate_file}",
        "--health-bind-address=0.0.0.0",
    ]
    shape = Shape(implementation, implementation, "http-connect", "tcp-mtls")
    return TunnelPair(shape, pki, folder, server_flags=flags)


def _kubelet(authority: FolderAuthority) -> AbstractContextManager[int]:
    context = authority.server_context(authority.serving("kubelet", (NODE,)))
    context.load_verify_locations(authority.certificate_file)
    context.verify_mode = ssl.CERT_REQUIRED
    return serving(_Kubelet, context, NODE, 10250)


def _egress_selector(path: Path, pair: TunnelPair, pki: TunnelPki) -> Path:
    tls = {
        "caBundle": str(pki.authority.certificate_file),
        "clientCert": str(pki.client.certificate),
        "clientKey": str(pki.client.key),
    }
    transport = {"tcp": {"url": f"https://127.0.0.1:{pair.ports.frontend}", "tlsConfig": tls}}
    connection = {"proxyProtocol": "HTTPConnect", "transport": transport}
    content = {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }
    path.write_text(json.dumps(content))
    return path


def _kubelet_arguments(authority: FolderAuthority, client: Pair) -> list[str]:
    return [
        f"--kubelet-client-certificate={client.certificate}",
        f"--kubelet-client-key={client.key}",
        f"--kubelet-certificate-authority={authority.certificate_file}",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def item(version: str, kind: str, name: str, namespace: str | None = NAMESPACE, **content: Any) -> Object:
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, **place, **content.pop("metadata", {})},
        **content,
    }


def _secret(name: str, pair: Pair, namespace: str = NAMESPACE) -> Object:
    files = {"tls.crt": pair.certificate, "tls.key": pair.key}
    data = {key: base64.b64encode(path.read_bytes()).decode() for key, path in files.items()}
    return item("v1", "Secret", name, namespace, data=data)


def _service(name: str, port: int, **spec: Any) -> Object:
    return item("v1", "Service", name, spec={"selector": {"app": "kube-apiserver"}, "ports": [{"port": port}], **spec})


def policy(name: str, *ports: int) -> Object:
    rules = [{"ports": [{"port": port, "protocol": "TCP"}]} for port in ports]
    spec = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": rules}
    return item("networking.k8s.io/v1", "NetworkPolicy", name, spec=spec)


def _server_pod(number: int, pair: TunnelPair) -> Object:
    container = {"name": "konnectivity-server", "image": "i", "args": [f"--health-port={pair.ports.server_health}"]}
    labels = {"labels": {"app": "kube-apiserver"}}
    return item("v1", "Pod", f"kube-apiserver-{number}", metadata=labels, spec={"containers": [container]})


def _control_plane_agent() -> Object:
    container = {"name": "konnectivity-agent", "image": "i", "args": [f"--agent-identifiers=ipv4={NODE}"]}
    labels = {"app": "konnectivity-agent"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return item("apps/v1", "Deployment", "konnectivity-agent", spec=spec)


def _fill_management(
    plane: ControlPlane, pairs: list[TunnelPair], pki: TunnelPki, by: _Authorities, kubelet_client: Pair
) -> None:
    bundle = {
        "ca.crt": by.serving,
        "cluster-ca.crt": by.serving,
        "server-client-ca.crt": by.clients,
        "cluster-client-ca.crt": by.agents,
    }
    trusted = {key: authority.certificate_file.read_text() for key, authority in bundle.items()}
    plane.apply(
        item("v1", "Namespace", NAMESPACE, None),
        _service("konnectivity-server", 8091, publishNotReadyAddresses=True),
        _service("konnectivity-server-local", 8090),
        item("v1", "ConfigMap", "konnectivity-ca-bundle", data=trusted),
        item("v1", "ConfigMap", "kubelet-client-ca", data={"ca.crt": by.kubelets.certificate_file.read_text()}),
        _secret("konnectivity-server", pki.server),
        _secret("konnectivity-cluster", pki.server),
        _secret("konnectivity-client", pki.client),
        _secret("kas-kubelet-client-crt", kubelet_client),
        policy("konnectivity-agents", 8091),
        _control_plane_agent(),
        *(_server_pod(number, pair) for number, pair in enumerate(pairs)),
    )
    for number in range(len(pairs)):
        _set_status(plane, NAMESPACE, "pod", f"kube-apiserver-{number}", podIP=NODE, podIPs=[{"ip": NODE}])
    counts = {"replicas": 1, "readyReplicas": 1}
    _set_status(plane, NAMESPACE, "deployment", "konnectivity-agent", **counts)


def _fill_hosted(plane: ControlPlane, pki: TunnelPki, kubelet_port: int) -> None:
    labels = {"app": "konnectivity-agent"}
    spec = {"containers": [{"name": "konnectivity-agent", "image": "i"}]}
    daemon_set = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}
    plane.apply(
        item("v1", "Node", "worker-1", None),
        _secret("konnectivity-agent", pki.agent, "kube-system"),
        item("apps/v1", "DaemonSet", "konnectivity-agent", "kube-system", spec=daemon_set),
        item(
            "v1",
            "Pod",
            "konnectivity-agent-1",
            "kube-system",
            metadata={"labels": labels},
            spec={**spec, "nodeName": "worker-1"},
        ),
    )
    ready = [{"type": "Ready", "status": "True"}]
    _set_status(
        plane,
        None,
        "node",
        "worker-1",
        addresses=[{"type": "InternalIP", "address": NODE}],
        conditions=ready,
        daemonEndpoints={"kubeletEndpoint": {"Port": kubelet_port}},
    )
    _set_status(plane, "kube-system", "pod", "konnectivity-agent-1", phase="Running", conditions=ready)


def _set_status(plane: ControlPlane, namespace: str | None, kind: str, name: str, **status: Any) -> None:
    place = [] if namespace is None else ["-n", namespace]
    patch = json.dumps({"status": status})
    plane.kubectl(*place, "patch", kind, name, "--subresource=status", "--type=merge", "-p", patch)
