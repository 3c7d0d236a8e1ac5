"""The static pods of a control plane: host network, no privileges, files of the host.

Each runs as root without capabilities: it can read its own keys of mode 0600, and cannot override other permissions.
Components that change the host set `is_privileged`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

UNPRIVILEGED: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


NAMESPACE: Final = "kube-system"


@dataclass(frozen=True)
class HostFile:
    """A file or directory of the host, mounted at the same path unless `mount_path` is set."""

    name: str
    path: str
    kind: str = "File"
    """A hostPath type of Kubernetes."""
    is_writable: bool = False
    mount_path: str = ""


@dataclass(frozen=True)
class PodComponent:
    name: str
    """Name of the pod, its container and its program."""
    image: str
    flags: tuple[str, ...]
    files: tuple[HostFile, ...]
    probes: dict[str, dict[str, Any]]
    cpu: str
    memory: str
    grace_seconds: int
    command: tuple[str, ...] | None = None
    """None: the program `name`. Empty: the entrypoint of the image."""
    environment: Mapping[str, str] = field(default_factory=dict)
    scratch: tuple[str, ...] = ()
    """Writable directories (emptyDir)."""
    is_privileged: bool = False
    capabilities: tuple[str, ...] = ()
    """Added to none; only without `is_privileged`."""


@dataclass(frozen=True)
class PodMetadata:
    """Name, namespace and labels of a pod; by default named like its program, in kube-system."""

    name: str = ""
    namespace: str = NAMESPACE
    labels: Mapping[str, str] = field(default_factory=dict)
    """Additional labels."""


def static_pod(component: PodComponent, *others: PodComponent, place: PodMetadata | None = None) -> dict[str, Any]:
    """`others` are further containers; the grace period is that of the first."""
    place = place or PodMetadata()
    containers = (component, *others)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": place.name or component.name,
            "namespace": place.namespace,
            "labels": {"component": component.name, "tier": "control-plane", **place.labels},
        },
        "spec": {
            "hostNetwork": True,
            "priorityClassName": "system-node-critical",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": component.grace_seconds,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [_container(one) for one in containers],
            "volumes": _volumes(containers),
        },
    }


def probe(scheme: str, host: str, port: int, path: str, *, period: int, failures: int, timeout: int) -> dict[str, Any]:
    """`host` is explicit: some programs listen on loopback only, and the kubelet would use the node's address."""
    return {
        "httpGet": {"scheme": scheme, "host": host, "port": port, "path": path},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": timeout,
    }


def _container(component: PodComponent) -> dict[str, Any]:
    # Found by the image's PATH: images have their programs in different directories.
    command = [component.name] if component.command is None else list(component.command)
    environment = [{"name": name, "value": value} for name, value in component.environment.items()]
    return {
        "name": component.name,
        "image": component.image,
        "imagePullPolicy": "IfNotPresent",
        **({"command": command} if command else {}),
        "args": list(component.flags),
        **({"env": environment} if environment else {}),
        **component.probes,
        "resources": {"requests": {"cpu": component.cpu, "memory": component.memory}},
        "securityContext": _security(component),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*_mounts(component.files), *_scratch_mounts(component.scratch)],
    }


def _security(component: PodComponent) -> dict[str, Any]:
    if component.is_privileged:
        return {"privileged": True}
    added = {"capabilities": {"drop": ["ALL"], "add": [*component.capabilities]}} if component.capabilities else {}
    return {**UNPRIVILEGED, **added, "runAsUser": 0}


def _mounts(files: Sequence[HostFile]) -> list[dict[str, Any]]:
    return [
        {"name": file.name, "mountPath": file.mount_path or file.path, "readOnly": not file.is_writable}
        for file in files
    ]


def _scratch_mounts(paths: Sequence[str]) -> list[dict[str, Any]]:
    return [{"name": _scratch_name(path), "mountPath": path} for path in paths]


def _volumes(containers: Sequence[PodComponent]) -> list[dict[str, Any]]:
    files = [file for one in containers for file in one.files]
    hosts = [{"name": file.name, "hostPath": {"path": file.path, "type": file.kind}} for file in files]
    scratch = [{"name": _scratch_name(path), "emptyDir": {}} for one in containers for path in one.scratch]
    # Containers share volumes of the same name.
    return list({volume["name"]: volume for volume in [*hosts, *scratch]}.values())


def _scratch_name(path: str) -> str:
    return path.strip("/").replace("/", "-")
