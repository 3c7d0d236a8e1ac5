"""Manifests of kube-apiserver: a Deployment of a hosted control plane, a static pod."""

import copy
from typing import Any, Final

from umbilical.manifests.tree import yaml_bytes

_CONTAINER: Final[dict[str, Any]] = {
    "name": "kube-apiserver",
    "image": "registry.example/kube-apiserver:1",
    "command": ["kube-apiserver"],
    "args": ["--etcd-servers=https://etcd-client:2379", "--v=2"],
    "volumeMounts": [{"name": "certs", "mountPath": "/etc/kubernetes/certs/server"}],
}
_POD: Final[dict[str, Any]] = {
    "containers": [_CONTAINER, {"name": "apply-bootstrap", "image": "registry.example/cli:1"}],
    "volumes": [{"name": "certs", "secret": {"secretName": "kas-server-crt"}}],
    "terminationGracePeriodSeconds": 30,
}
_LABELS: Final = {"app": "kube-apiserver"}


def deployment(**of_pod: Any) -> dict[str, Any]:
    return copy.deepcopy(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "kube-apiserver", "namespace": "clusters-guest"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": _LABELS},
                "template": {"metadata": {"labels": _LABELS}, "spec": {**_POD, **of_pod}},
            },
        }
    )


def static_pod() -> dict[str, Any]:
    return copy.deepcopy(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "kube-apiserver", "namespace": "kube-system", "labels": _LABELS},
            "spec": {
                "hostNetwork": True,
                "containers": [{**_CONTAINER, "command": ["kube-apiserver", *_CONTAINER["args"]], "args": None}],
                "volumes": [{"name": "certs", "hostPath": {"path": "/etc/kubernetes/pki"}}],
            },
        }
    )


def container(document: dict[str, Any], name: str = "kube-apiserver") -> dict[str, Any]:
    spec = document["spec"]
    pod = spec["template"]["spec"] if "template" in spec else spec
    found: dict[str, Any] = next(one for one in pod["containers"] if one["name"] == name)
    return found


def as_bytes(document: dict[str, Any]) -> bytes:
    return yaml_bytes(document)
