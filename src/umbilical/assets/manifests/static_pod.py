"""What the static pods of a control plane have in common: the host's network, no privilege, files of the host.

Each runs as root without a single capability: as owner it reads keys of mode 0600, and overrides nobody's permissions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from umbilical.assets.manifests.container import UNPRIVILEGED

NAMESPACE: Final = "kube-system"


@dataclass(frozen=True)
class HostFile:
    """A file or directory of the host, seen in the pod under the same path."""

    name: str
    path: str
    kind: str = "File"
    """A hostPath type of Kubernetes'."""
    is_writable: bool = False


@dataclass(frozen=True)
class Component:
    name: str
    """Of the pod, its container and its program."""
    image: str
    flags: tuple[str, ...]
    files: tuple[HostFile, ...]
    probes: dict[str, dict[str, Any]]
    cpu: str
    memory: str
    grace_seconds: int


def static_pod(component: Component) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": component.name,
            "namespace": NAMESPACE,
            "labels": {"component": component.name, "tier": "control-plane"},
        },
        "spec": {
            "hostNetwork": True,
            "priorityClassName": "system-node-critical",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": component.grace_seconds,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [_container(component)],
            "volumes": [
                {"name": file.name, "hostPath": {"path": file.path, "type": file.kind}} for file in component.files
            ],
        },
    }


def probe(scheme: str, host: str, port: int, path: str, *, period: int, failures: int, timeout: int) -> dict[str, Any]:
    """`host` is named, because some listen on loopback alone and the kubelet would ask at the node's address."""
    return {
        "httpGet": {"scheme": scheme, "host": host, "port": port, "path": path},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": timeout,
    }


def _container(component: Component) -> dict[str, Any]:
    return {
        "name": component.name,
        "image": component.image,
        "imagePullPolicy": "IfNotPresent",
        # By the image's PATH: images put their programs into different directories.
        "command": [component.name],
        "args": list(component.flags),
        **component.probes,
        "resources": {"requests": {"cpu": component.cpu, "memory": component.memory}},
        "securityContext": {**UNPRIVILEGED, "runAsUser": 0},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(component.files),
    }


def _mounts(files: Sequence[HostFile]) -> list[dict[str, Any]]:
    return [{"name": file.name, "mountPath": file.path, "readOnly": not file.is_writable} for file in files]
