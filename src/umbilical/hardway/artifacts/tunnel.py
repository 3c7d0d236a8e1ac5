"""The tunnel's part in the artifacts: its spec, its server on the bootstrap node with its flags explained, its objects.

Not its Secret: the certificates in it are made on the bootstrap node.
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
"""One of its own, so that one delete removes the agents after the pivot."""


def tunnel_spec(inputs: Inputs) -> TunnelSpec:
    """Say what the tunnel is made from. Raises RenderError: UMB716, the release has no programs for it."""
    image = inputs.payload.images.get(TUNNEL_IMAGE)
    if image is None:
        why = f"konnectivity is on, and the release has no image {TUNNEL_IMAGE}"
        raise RenderError("UMB716", "there are no programs for the tunnel", why, "set konnectivity: off, or auto")
    node_ip = inputs.cluster.bootstrap.address
    if inputs.cluster.is_openshift:
        return for_shape(Shape.OPENSHIFT, image=image, node_ip=node_ip)
    # In the nodes' own network: pods' addresses are known to no router outside, so answers would not find back.
    return for_shape(Shape.KUBERNETES, image=image, node_ip=node_ip, namespace=KUBERNETES_NAMESPACE)


SERVER_PKI: Final = posixpath.join(layout.TUNNEL_PKI, "server")
AGENT_PKI: Final = posixpath.join(layout.TUNNEL_PKI, "agent")
"""Both hold ca.crt, tls.crt and tls.key, once the certificate script has run with TUNNEL_PKI as its directory."""
EGRESS_IN_POD: Final = posixpath.join(layout.POD_CONFIGS, EGRESS_FILE)


def konnectivity_server_pod(placement: PodPlacement) -> dict[str, Any]:
    return server_pod(tunnel_spec(placement.inputs), SERVER_PKI, is_made_once=True)


def egress_selector_config(placement: PodPlacement) -> dict[str, Any]:
    return egress_selector(tunnel_spec(placement.inputs))


def config_files(placement: PodPlacement) -> tuple[HostFile, ...]:
    """Where kube-apiserver finds egress selector and socket; it connects to the socket, and writes nothing."""
    config = HostFile("config", layout.NODE_CONFIGS, "DirectoryOrCreate", mount_path=layout.POD_CONFIGS)
    spec = tunnel_spec(placement.inputs)
    if spec.socket_directory == layout.NODE_CONFIGS:
        return (config,)
    socket = HostFile(
        "socket", spec.socket_directory, "DirectoryOrCreate", mount_path=spec.socket_directory_in_kube_apiserver
    )
    return (config, socket)


def _told(name: str) -> Callable[[PodPlacement], str]:
    """Look the value up in the pod."""

    def value(placement: PodPlacement) -> str:
        words = konnectivity_server_pod(placement)["spec"]["containers"][0]["args"]
        return next(str(word).partition("=")[2] for word in words if str(word).startswith(f"--{name}="))

    return value


def _row(name: str, why: str, without: str) -> FlagRow:
    return FlagRow(name, _told(name), why, without)


KONNECTIVITY_SERVER: Final = ProgramFlags(
    SERVER_NAME,
    (
        _row("logtostderr", "the log goes where the container runtime collects it", "it goes into files of the image"),
        _row(
            "cluster-cert",
            "shown to agents; for the bootstrap node's address, which they dial",
            "agents: x509: certificate is valid for ..., not ...",
        ),
        _row("cluster-key", "the key of --cluster-cert", "the server exits: failed to load X509 key pair"),
        _row(
            "cluster-ca-cert",
            "who signs for agents: a signer whose key was thrown away after two certificates",
            "whoever reaches the port could be an agent, and see what webhooks are sent",
        ),
        _row(
            "uds-name",
            "the socket on which kube-apiserver asks for connections; nobody else sees its directory",
            "kube-apiserver: dial unix ...: connect: no such file or directory",
        ),
        _row(
            "delete-existing-uds-file",
            "a server that was killed leaves its socket file behind",
            "the next one exits: bind: address already in use",
        ),
        _row("server-port", "0: no port for clients beside the socket", "the server refuses to start with both"),
        _row("agent-port", "where agents connect; the firewall must let nodes in", "agents: connection refused"),
        _row("health-port", "where the kubelet asks /healthz", "a stuck server is never restarted"),
        _row("admin-port", "metrics and profiles on loopback", "the default is taken, which others may want too"),
        _row(
            "mode",
            "how kube-apiserver speaks on the socket; the same as in the egress selector",
            "both ends see nothing but violations of protocol",
        ),
        _row(
            "proxy-strategies",
            "which agent gets a connection: one on the very node that is dialled, else one with a default route",
            "`No agent available` for addresses of pods",
        ),
        _row("keepalive-time", "silence after which an agent is asked for a sign of life", "dead agents stay chosen"),
        _row(
            "frontend-keepalive-time",
            "the same towards kube-apiserver",
            "streams of an API server that died stay open",
        ),
    ),
    "the same pod, written by bootkube.sh when a feature gate asks for it",
)


def tunnel_objects(inputs: Inputs) -> list[Object]:
    if not inputs.has_tunnel:
        return []
    spec = tunnel_spec(inputs)
    return [namespace(spec), agent_daemon_set(spec)]
