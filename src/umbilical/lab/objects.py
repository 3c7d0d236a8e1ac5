"""The Kubernetes objects of the lab's service: its pod, webhook, APIService and CRD.

The pod has a fixed node, so that scenarios know where it runs.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from umbilical.lab.images import UMBILICAL
from umbilical.lab.service_answers import GROUP, LETTER_GROUP, VERDICT_LABEL, VERSION
from umbilical.lab.topology import LabNodeRole, Topology
from umbilical.manifests.static_pod import UNPRIVILEGED
from umbilical.pki.authority import Authority
from umbilical.pki.pem import KeyPair
from umbilical.pki.profiles import KeyType, server_profile

NAMESPACE: Final = "lab"
NAME: Final = "lab-service"
PORT: Final = 8443
PLAIN_PORT: Final = 8080
SERVICE_PORT: Final = 443
WEBHOOK: Final = "verdict.lab.umbilical.dev"
VALIDATE_PATH: Final = "/validate"
CONVERT_PATH: Final = "/convert"
WEBHOOK_SECONDS: Final = 5
API_SERVICE: Final = f"{VERSION}.{GROUP}"
LETTERS: Final = f"letters.{LETTER_GROUP}"
LIFETIME: Final = timedelta(days=1)
_MOUNT: Final = "/etc/lab-service"
_LABELS: Final = {"app": NAME}
# The image's user is in root's group, as on OpenShift, where an SCC also sets an fsGroup.
_KEY_MODE: Final = 0o440


@dataclass(frozen=True)
class ServiceObjects:
    """The service on one node, with the CA that kube-apiserver trusts."""

    node: str
    authority: bytes
    pair: KeyPair
    closes_connections: bool = False
    """Makes each call a new connection and tunnel; otherwise kube-apiserver reuses one connection."""
    has_plain_port: bool = False
    """Whether the pod also serves without TLS."""
    families: tuple[int, ...] = ()
    """A Service for each of these IP versions, the first for calls; empty: one, of the cluster's first family."""

    @property
    def objects(self) -> tuple[dict[str, Any], ...]:
        """In the order of their dependencies; without what makes kube-apiserver call the service."""
        return (namespace(), service_account(), self.secret, self.pod, *map(service, self.families or (None,)))

    @property
    def called(self) -> str:
        """Name of the Service that kube-apiserver calls."""
        return service_name(self.families[0] if self.families else None)

    @property
    def secret(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": _metadata(),
            "type": "Opaque",
            "data": {"tls.crt": _base64(self.pair.certificate), "tls.key": _base64(self.pair.key)},
        }

    @property
    def pod(self) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(), "spec": self.pod_spec}

    @property
    def pod_spec(self) -> dict[str, Any]:
        return {
            "nodeName": self.node,
            # Not `default`, which a controller creates only later.
            "serviceAccountName": NAME,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 5,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                _container(self.node, closes_connections=self.closes_connections),
                *(
                    [_plain_container(self.node, closes_connections=self.closes_connections)]
                    if self.has_plain_port
                    else []
                ),
            ],
            "volumes": [{"name": "pki", "secret": {"secretName": NAME, "defaultMode": _KEY_MODE}}],
        }

    @property
    def webhook(self) -> dict[str, Any]:
        """Applies only to labelled ConfigMaps of the namespace; the rest of the cluster does not depend on it."""
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
        webhook = {
            "name": WEBHOOK,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": WEBHOOK_SECONDS,
            "clientConfig": self._client_config(VALIDATE_PATH),
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
            "objectSelector": {"matchExpressions": [{"key": VERDICT_LABEL, "operator": "Exists"}]},
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": WEBHOOK},
            "webhooks": [webhook],
        }

    @property
    def api_service(self) -> dict[str, Any]:
        return {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": API_SERVICE},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 1000,
                "versionPriority": 10,
                "caBundle": _base64(self.authority),
                "service": {"namespace": NAMESPACE, "name": self.called, "port": SERVICE_PORT},
            },
        }

    @property
    def letters(self) -> dict[str, Any]:
        """A CRD that is stored as v1 and needs the service to be read as v2."""
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": self._client_config(CONVERT_PATH)}
        names = {"plural": "letters", "singular": "letter", "kind": "Letter", "listKind": "LetterList"}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": LETTERS},
            "spec": {
                "group": LETTER_GROUP,
                "scope": "Namespaced",
                "names": names,
                "versions": [_version("v1", "text", is_stored=True), _version("v2", "greeting", "name")],
                "conversion": {"strategy": "Webhook", "webhook": webhook},
            },
        }

    def _client_config(self, path: str) -> dict[str, Any]:
        place = {"namespace": NAMESPACE, "name": self.called, "port": SERVICE_PORT, "path": path}
        return {"service": place, "caBundle": _base64(self.authority)}


def make_service(topology: Topology, now: datetime | None = None) -> ServiceObjects:
    """Return the service on a node, with new certificates."""
    return service_on(service_node(topology), now or datetime.now(UTC))


def service_on(node: str, moment: datetime, families: tuple[int, ...] = ()) -> ServiceObjects:
    authority = Authority.create("lab-service-ca", moment, LIFETIME, KeyType.ECDSA_P256)
    called = [service_name(version) for version in families or (None,)]
    names = [f"{name}.{NAMESPACE}.{suffix}" for name in called for suffix in ("svc", "svc.cluster.local")]
    pair = authority.issue(server_profile(NAME, names, KeyType.ECDSA_P256), moment, LIFETIME)
    return ServiceObjects(node, authority.certificate_pem, pair, families=families)


def service_node(topology: Topology) -> str:
    """Return the service's node: the first worker, or without workers the last master."""
    workers = [node.name for node in topology.nodes if node.role is LabNodeRole.WORKER]
    masters = [node.name for node in topology.nodes if node.role is LabNodeRole.MASTER]
    return workers[0] if workers else masters[-1]


def namespace() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def service_account() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata()}


def service_name(version: int | None) -> str:
    return NAME if version is None else f"{NAME}-ipv{version}"


def service(version: int | None = None) -> dict[str, Any]:
    """Return the Service of one IP version; None: of the cluster's first family."""
    families = {} if version is None else {"ipFamilyPolicy": "SingleStack", "ipFamilies": [f"IPv{version}"]}
    port = {"name": "https", "port": SERVICE_PORT, "targetPort": PORT, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**_metadata(), "name": service_name(version)},
        "spec": {"selector": _LABELS, "ports": [port], **families},
    }


def judged(verdict: str) -> dict[str, Any]:
    """Return an object that the webhook allows (`allow`) or denies (`deny`)."""
    metadata = {"name": f"judged-{verdict}", "namespace": NAMESPACE, "labels": {VERDICT_LABEL: verdict}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"asked": "may this be?"}}


def letter(name: str, text: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{LETTER_GROUP}/v1",
        "kind": "Letter",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"text": text},
    }


def ready_endpoints(slices: Mapping[str, Any]) -> list[str]:
    """Return the ready addresses of a list of EndpointSlices."""
    endpoints = [one for item in slices.get("items") or [] for one in item.get("endpoints") or []]
    # A missing condition means ready (EndpointSlice API).
    ready = [one for one in endpoints if (one.get("conditions") or {}).get("ready") is not False]
    return [address for one in ready for address in one["addresses"]]


def _container(node: str, *, closes_connections: bool) -> dict[str, Any]:
    health = {"httpGet": {"scheme": "HTTPS", "port": PORT, "path": "/healthz"}, "periodSeconds": 1, "timeoutSeconds": 5}
    return {
        "name": NAME,
        "image": UMBILICAL,
        "imagePullPolicy": "IfNotPresent",
        "command": [NAME],
        "args": [
            f"--listen=:{PORT}",
            f"--certificate={_MOUNT}/tls.crt",
            f"--key={_MOUNT}/tls.key",
            f"--node-name={node}",
            *(["--close-connections"] if closes_connections else []),
        ],
        "ports": [{"name": "https", "containerPort": PORT}],
        "readinessProbe": health,
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": UNPRIVILEGED,
        "volumeMounts": [{"name": "pki", "mountPath": _MOUNT, "readOnly": True}],
    }


def _plain_container(node: str, *, closes_connections: bool) -> dict[str, Any]:
    closing = ["--close-connections"] if closes_connections else []
    return {
        "name": f"{NAME}-plain",
        "image": UMBILICAL,
        "imagePullPolicy": "IfNotPresent",
        "command": [NAME],
        "args": [f"--listen=:{PLAIN_PORT}", "--plain", f"--node-name={node}", *closing],
        "ports": [{"name": "http", "containerPort": PLAIN_PORT}],
        "readinessProbe": {"httpGet": {"port": PLAIN_PORT, "path": "/healthz"}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": UNPRIVILEGED,
    }


def _version(name: str, *fields: str, is_stored: bool = False) -> dict[str, Any]:
    spec = {"type": "object", "properties": {field: {"type": "string"} for field in fields}}
    columns = [{"name": field.capitalize(), "type": "string", "jsonPath": f".spec.{field}"} for field in fields]
    return {
        "name": name,
        "served": True,
        "storage": is_stored,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
        "additionalPrinterColumns": columns,
    }


def _metadata() -> dict[str, Any]:
    return {"name": NAME, "namespace": NAMESPACE, "labels": dict(_LABELS)}


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
