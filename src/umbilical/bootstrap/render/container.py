"""What server and agent have in common as containers: image, program, health, requests, no privilege."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from umbilical.bootstrap.render import placeholders
from umbilical.bootstrap.spec import TunnelSpec
from umbilical.manifests.static_pod import UNPRIVILEGED

PKI_MOUNT: Final = "/etc/konnectivity"


def container(
    spec: TunnelSpec,
    name: str,
    program: str,
    flags: Sequence[str],
    *,
    security: Mapping[str, Any] | None = None,
    mounts: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """`security` and `mounts` are what one has beyond the other; the certificates are mounted in both."""
    return {
        "name": name,
        "image": spec.image or placeholders.IMAGE,
        "imagePullPolicy": "IfNotPresent",
        # An image of one's own keeps its programs wherever its PATH leads.
        "command": [f"/usr/bin/{program}" if spec.image is None else program],
        "args": list(flags),
        # No readiness probe: the server's /readyz looks at the first strategy only, and stays 500 under destHost
        # although agents are connected.
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": spec.health_port},
            "initialDelaySeconds": 10,
            "periodSeconds": 10,
        },
        "resources": {"requests": {"cpu": spec.resources.cpu, "memory": spec.resources.memory}},
        "securityContext": {**UNPRIVILEGED, **(security or {})},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*mounts, {"name": "pki", "mountPath": PKI_MOUNT, "readOnly": True}],
    }
