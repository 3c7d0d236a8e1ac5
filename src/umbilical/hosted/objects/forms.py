"""Parts that all manifests here share: metadata with our labels, volumes, probes."""

from collections.abc import Mapping
from typing import Any, Final

from umbilical.hosted.objects.spec import HostedSpec
from umbilical.manifests.objects import Object

UNPRIVILEGED: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
KEY_MODE: Final = 0o640
"""Mode of mounted keys: owner and the pod's group."""
PUBLIC_MODE: Final = 0o644


def metadata(
    spec: HostedSpec,
    name: str,
    namespace: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    found: Object = {"name": name, "namespace": namespace, "labels": {**(labels or {}), **spec.labels}}
    return {**found, "annotations": dict(annotations)} if annotations else found


def secret_volume(name: str, secret_name: str) -> Object:
    return {"name": name, "secret": {"secretName": secret_name, "defaultMode": KEY_MODE}}


def config_map_volume(name: str, config_map_name: str, items: Mapping[str, str] | None = None) -> Object:
    """`items` are the keys to mount, with their file names; None: all keys."""
    source: Object = {"name": config_map_name, "defaultMode": PUBLIC_MODE}
    if items:
        source["items"] = [{"key": key, "path": path} for key, path in items.items()]
    return {"name": name, "configMap": source}


def mount(name: str, path: str) -> Object:
    return {"name": name, "mountPath": path, "readOnly": True}


def probe(path: str, port: int, host: str = "", **timing: int) -> Object:
    action: Object = {"path": path, "port": port, "scheme": "HTTP"}
    return {"httpGet": {**action, "host": host} if host else action, **timing}


def requests(cpu: str, memory: str) -> Object:
    """Return requests without limits: CPU throttling would stall all traffic of the tunnel."""
    return {"requests": {"cpu": cpu, "memory": memory}}
