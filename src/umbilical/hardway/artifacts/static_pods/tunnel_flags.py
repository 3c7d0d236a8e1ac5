"""The flags of the tunnel's server in words. Their values are those of every tunnel's server pod."""

from collections.abc import Callable
from typing import Final

from umbilical.bootstrap.names import SERVER_NAME
from umbilical.hardway.artifacts.static_pods.rows import Program, Row
from umbilical.hardway.artifacts.static_pods.seat import Seat
from umbilical.hardway.artifacts.static_pods.tunnel import konnectivity_server_pod


def _told(name: str) -> Callable[[Seat], str]:
    """Look the value up in the pod."""

    def value(seat: Seat) -> str:
        words = konnectivity_server_pod(seat)["spec"]["containers"][0]["args"]
        return next(str(word).partition("=")[2] for word in words if str(word).startswith(f"--{name}="))

    return value


def _row(name: str, why: str, without: str) -> Row:
    return Row(name, _told(name), why, without)


KONNECTIVITY_SERVER: Final = Program(
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
