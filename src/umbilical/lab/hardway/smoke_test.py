"""The test service for a hard-way cluster: the lab's service as webhook and as workload."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from umbilical.lab import objects
from umbilical.lab.images import UMBILICAL
from umbilical.manifests.static_pod import UNPRIVILEGED

WORKLOAD: Final = "trial"
_LABELS: Final = {"app": WORKLOAD}


class LabSmokeTest:
    """Implements `hardway.site.SmokeTest`."""

    @property
    def namespace(self) -> str:
        return objects.NAMESPACE

    @property
    def pod(self) -> str:
        return objects.NAME

    @property
    def webhook_name(self) -> str:
        return objects.WEBHOOK

    @property
    def workload_name(self) -> str:
        return WORKLOAD

    @property
    def workload_port(self) -> int:
        return objects.PLAIN_PORT

    def webhook_objects(self, node_name: str) -> Sequence[dict[str, Any]]:
        service = objects.service_on(node_name, datetime.now(UTC))
        return (*service.objects, service.webhook)

    def review_object(self, verdict: str) -> dict[str, Any]:
        return objects.judged(verdict)

    def workload(self, replicas: int) -> Sequence[dict[str, Any]]:
        port = {"name": "http", "port": objects.PLAIN_PORT, "protocol": "TCP"}
        service = {"selector": _LABELS, "ports": [port]}
        return (
            objects.namespace(),
            objects.service_account(),
            _object("apps/v1", "Deployment", _deployment(replicas)),
            _object("v1", "Service", service),
        )

    def fetch_command(self, url: str) -> Sequence[str]:
        return ("lab-fetch", url)


def _object(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": WORKLOAD, "namespace": objects.NAMESPACE, "labels": dict(_LABELS)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _deployment(replicas: int) -> dict[str, Any]:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _LABELS},
    }
    pod = {
        "serviceAccountName": objects.NAME,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 2,
        "topologySpreadConstraints": [spread],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container()],
    }
    template = {"metadata": {"labels": dict(_LABELS)}, "spec": pod}
    return {"replicas": replicas, "selector": {"matchLabels": dict(_LABELS)}, "template": template}


def _container() -> dict[str, Any]:
    return {
        "name": WORKLOAD,
        "image": UMBILICAL,
        "imagePullPolicy": "IfNotPresent",
        "command": [objects.NAME],
        "args": [f"--listen=:{objects.PLAIN_PORT}", "--plain", "--node-name=trial"],
        "ports": [{"name": "http", "containerPort": objects.PLAIN_PORT}],
        "readinessProbe": {"httpGet": {"port": objects.PLAIN_PORT, "path": "/healthz"}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": UNPRIVILEGED,
    }
