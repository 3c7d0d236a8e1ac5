"""A smoke test without nodes: its webhook is called by URL, its pod is only an object in the API."""

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support import api_stock
from tests.support.tunnel_pki import FolderAuthority
from tests.support.webhook_listener import webhook_listener

from umbilical.lab.hardway.smoke_test import LabSmokeTest

NAMESPACE: Final = "trial-of-a-test"
WEBHOOK: Final = "verdict.test.umbilical.dev"


class MadeUpSmokeTest(LabSmokeTest):
    """The lab's smoke test with another route to its webhook."""

    def __init__(self, authority: Path, port: int) -> None:
        self._authority = authority
        self.port = port

    @property
    def namespace(self) -> str:
        return NAMESPACE

    @property
    def webhook_name(self) -> str:
        return WEBHOOK

    def webhook_objects(self, node_name: str) -> Sequence[dict[str, Any]]:
        pod = api_stock.pod(self.pod, NAMESPACE, node_name=node_name)
        del pod["status"]
        return (api_stock.namespace(NAMESPACE), pod, self._configuration())

    def review_object(self, verdict: str) -> dict[str, Any]:
        made = api_stock.config_map(f"judged-{verdict}", NAMESPACE)
        made["metadata"]["labels"] = {"verdict": verdict}
        return made

    def workload(self, replicas: int) -> Sequence[dict[str, Any]]:
        made = [dict(one) for one in super().workload(replicas)]
        for one in made:
            one["metadata"] = {**one["metadata"], "namespace": NAMESPACE}
        made[0] = api_stock.namespace(NAMESPACE)
        return made

    def _configuration(self) -> dict[str, Any]:
        trust = base64.b64encode(self._authority.read_bytes()).decode()
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
        webhook = {
            "name": WEBHOOK,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 5,
            "clientConfig": {"url": f"https://127.0.0.1:{self.port}/validate", "caBundle": trust},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
            "objectSelector": {"matchExpressions": [{"key": "verdict", "operator": "Exists"}]},
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": WEBHOOK},
            "webhooks": [webhook],
        }


@contextmanager
def made_up_smoke_test(folder: Path) -> Iterator[MadeUpSmokeTest]:
    """Have the webhook listen on loopback, where kube-apiserver is too."""
    authority = FolderAuthority(folder, "webhook-ca")
    with webhook_listener(authority, authority.serving("webhook")) as port:
        yield MadeUpSmokeTest(authority.certificate_file, port)
