"""What the agents on nodes and those beside the control plane have in common: flags, probes, mounts, no privilege."""

from collections.abc import Mapping, Sequence
from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.monitoring import METRICS_PORT
from umbilical.hosted.objects.objects import UNPRIVILEGED, config_map_volume, mount, probe, requests, secret_volume
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.manifests.objects import Object

PROGRAM: Final = "/usr/bin/proxy-agent"
LABELS: Final[Mapping[str, str]] = {"app": names.AGENT}
CERTIFICATES_ANNOTATION: Final = "umbilical.dev/certificates-sha256"
# Agents that go leave once their tunnels have ended; logs that are followed would keep them for hours.
GRACE_SECONDS: Final = 60
LOOPBACK: Final = "127.0.0.1"


def agent_flags(host: str, port: int, identifiers: str, health_host: str = "") -> list[str]:
    pair, ca = names.AGENT_PAIR_DIRECTORY, names.SERVER_CA_DIRECTORY
    return [
        "--logtostderr=true",
        f"--ca-cert={ca}/{names.CA_KEY}",
        f"--agent-cert={pair}/tls.crt",
        f"--agent-key={pair}/tls.key",
        f"--proxy-server-host={host}",
        f"--proxy-server-port={port}",
        *([f"--health-server-host={health_host}"] if health_host else []),
        f"--health-server-port={names.HEALTH_PORT}",
        f"--agent-identifiers={identifiers}",
        "--keepalive-time=30s",
        "--probe-interval=5s",
        # HyperShift's 5 s and 30 s let an agent behind one balancer take half a minute to find three servers.
        "--sync-interval=1s",
        "--sync-interval-cap=10s",
        # Else an agent that had found all servers once looks for no other, and stays at two of three when a pod of
        # kube-apiserver was replaced (OCPBUGS-98467).
        "--sync-forever=true",
        "--v=3",
    ]


def agent_container(spec: HostedSpec, flags: Sequence[str], health_host: str = "") -> Object:
    timing = {"periodSeconds": 30, "timeoutSeconds": 5}
    port = {"name": METRICS_PORT, "containerPort": names.HEALTH_PORT, "protocol": "TCP"}
    return {
        "name": names.AGENT,
        "image": spec.images.agent,
        "imagePullPolicy": "IfNotPresent",
        "command": [PROGRAM],
        "args": list(flags),
        # On the host's network a port that is declared is taken on every node, also from other addresses.
        **({} if health_host == LOOPBACK else {"ports": [port]}),
        "livenessProbe": probe("/healthz", names.HEALTH_PORT, health_host, **timing, failureThreshold=6),
        "readinessProbe": probe("/readyz", names.HEALTH_PORT, health_host, **timing, failureThreshold=1),
        "startupProbe": probe(
            "/healthz", names.HEALTH_PORT, health_host, periodSeconds=5, timeoutSeconds=5, failureThreshold=60
        ),
        "resources": requests("40m", "50Mi"),
        "securityContext": {**UNPRIVILEGED, "runAsNonRoot": True},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            mount("agent-certs", names.AGENT_PAIR_DIRECTORY),
            mount("konnectivity-ca", names.SERVER_CA_DIRECTORY),
        ],
    }


def agent_volumes(secret_name: str, ca_key: str) -> list[Object]:
    """The authority is seen as `ca.crt`, under whichever key it is kept, and nothing else of that ConfigMap is."""
    return [
        secret_volume("agent-certs", secret_name),
        config_map_volume("konnectivity-ca", names.CA_BUNDLE, {ca_key: names.CA_KEY}),
    ]


def pod_template(spec: HostedSpec, pod: Object, fingerprint: str) -> Object:
    """Name the certificates in it where the program reads them only once, as upstream's does: then pods roll."""
    head: Object = {"labels": {**LABELS, **spec.labels}}
    if not spec.is_ours:
        head["annotations"] = {CERTIFICATES_ANNOTATION: fingerprint}
    return {"metadata": head, "spec": pod}
