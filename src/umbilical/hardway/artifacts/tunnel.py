"""The tunnel's artifacts: its spec, the server's static pod with its flags explained, and its objects.

Its Secret is not here: the bootstrap node makes the certificates in it.
"""

import posixpath
from collections.abc import Callable
from typing import Any, Final

from umbilical.bootstrap.names import EGRESS_FILE, SERVER_NAME
from umbilical.bootstrap.render.kube_apiserver import egress_selector
from umbilical.bootstrap.render.objects import agent_daemon_set, namespace, server_pod
from umbilical.bootstrap.spec import Shape, TunnelSpec, for_shape
from umbilical.fault import RenderError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import TUNNEL_IMAGE, Inputs
from umbilical.hardway.artifacts.static_pods.placement import FlagRow, PodPlacement, ProgramFlags
from umbilical.manifests.objects import Object
from umbilical.manifests.static_pod import HostFile

KUBERNETES_NAMESPACE: Final = "bootstrap-konnectivity"
"""A separate namespace, so that one delete removes the agents after the pivot."""


def tunnel_spec(inputs: Inputs) -> TunnelSpec:
    """Return the tunnel's spec. Raises RenderError: UMB716, the release has no image for it."""
    image = inputs.payload.images.get(TUNNEL_IMAGE)
    if image is None:
        why = f"konnectivity is on in cluster.yaml, but the release has no image {TUNNEL_IMAGE}"
        raise RenderError("UMB716", "the tunnel was not rendered", why, "set konnectivity: off or auto in cluster.yaml")
    node_ip = inputs.cluster.bootstrap.address
    if inputs.cluster.is_openshift:
        return for_shape(Shape.OPENSHIFT, image=image, node_ip=node_ip)
    # Agents use the host network: outside the cluster no router has a route back to pod addresses.
    return for_shape(Shape.KUBERNETES, image=image, node_ip=node_ip, namespace=KUBERNETES_NAMESPACE)


SERVER_PKI: Final = posixpath.join(layout.TUNNEL_PKI, "server")
AGENT_PKI: Final = posixpath.join(layout.TUNNEL_PKI, "agent")
"""Both get ca.crt, tls.crt and tls.key when the certificate script runs with TUNNEL_PKI as its directory."""
EGRESS_IN_POD: Final = posixpath.join(layout.POD_CONFIGS, EGRESS_FILE)


def konnectivity_server_pod(placement: PodPlacement) -> dict[str, Any]:
    return server_pod(tunnel_spec(placement.inputs), SERVER_PKI, is_made_once=True)


def egress_selector_config(placement: PodPlacement) -> dict[str, Any]:
    return egress_selector(tunnel_spec(placement.inputs))


def config_files(placement: PodPlacement) -> tuple[HostFile, ...]:
    """Return kube-apiserver's mounts for the egress selector and the socket; it writes to neither."""
    config = HostFile("config", layout.NODE_CONFIGS, "DirectoryOrCreate", mount_path=layout.POD_CONFIGS)
    spec = tunnel_spec(placement.inputs)
    if spec.socket_directory == layout.NODE_CONFIGS:
        return (config,)
    socket = HostFile(
        "socket", spec.socket_directory, "DirectoryOrCreate", mount_path=spec.socket_directory_in_kube_apiserver
    )
    return (config, socket)


def _pod_value(name: str) -> Callable[[PodPlacement], str]:
    """Return a function that reads the flag's value from the pod."""

    def value(placement: PodPlacement) -> str:
        words = konnectivity_server_pod(placement)["spec"]["containers"][0]["args"]
        return next(str(word).partition("=")[2] for word in words if str(word).startswith(f"--{name}="))

    return value


def _row(name: str, why: str, without: str) -> FlagRow:
    return FlagRow(name, _pod_value(name), why, without)


KONNECTIVITY_SERVER: Final = ProgramFlags(
    SERVER_NAME,
    (
        _row("logtostderr", "write the log to stderr, where the container runtime collects it", "logs go into files"),
        _row(
            "cluster-cert",
            "serving certificate for agents; it contains the bootstrap node's address, which they dial",
            "agents log: x509: certificate is valid for ..., not ...",
        ),
        _row("cluster-key", "key of --cluster-cert", "the server exits: failed to load X509 key pair"),
        _row(
            "cluster-ca-cert",
            "CA of the agents' client certificates; its key was deleted after it signed two certificates",
            "anyone who reaches the port can act as an agent and read requests to webhooks",
        ),
        _row(
            "uds-name",
            "socket on which kube-apiserver requests connections; only the two pods mount its directory",
            "kube-apiserver logs: dial unix ...: connect: no such file or directory",
        ),
        _row(
            "delete-existing-uds-file",
            "remove the socket file that a killed server leaves behind",
            "the next server exits: bind: address already in use",
        ),
        _row("server-port", "0: no TCP port for clients, only the socket", "the server exits if both are set"),
        _row("agent-port", "port for agents; the firewall must allow it for all nodes", "agents: connection refused"),
        _row("health-port", "port of /healthz for the kubelet's probe", "a stuck server is never restarted"),
        _row("admin-port", "port of metrics and profiles, on loopback", "the default port is used and may be taken"),
        _row(
            "mode",
            "protocol of kube-apiserver on the socket; it must match the egress selector",
            "both ends report protocol errors",
        ),
        _row(
            "proxy-strategies",
            "how an agent is chosen: one on the dialled node, else one with a default route",
            "`No agent available` for addresses of pods",
        ),
        _row("keepalive-time", "how long an agent may be silent before it is pinged", "dead agents are still chosen"),
        _row(
            "frontend-keepalive-time",
            "how long kube-apiserver may be silent before it is pinged",
            "streams of an API server that died stay open",
        ),
    ),
    "bootkube.sh writes the same pod if a feature gate is on",
)


def tunnel_objects(inputs: Inputs) -> list[Object]:
    if not inputs.has_tunnel:
        return []
    spec = tunnel_spec(inputs)
    return [namespace(spec), agent_daemon_set(spec)]
