"""Objects that a test creates in a real API, with the status of a controller, and deletes again."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from umbilical.cluster import objects
from umbilical.cluster.apply import Applier, ManifestDocument, read_document
from umbilical.cluster.client import ApiClient
from umbilical.cluster.objects import Discovery
from umbilical.fault import ApiRefused
from umbilical.hardway.site import ClusterApi

ResultT = TypeVar("ResultT")
NOW_OR_NEVER = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}


class Stock:
    """Nothing runs behind this API: no controller deletes what belongs to a namespace, and no kubelet ends a pod."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = ClusterApi(kubeconfig)
        self._stored: list[ManifestDocument] = []

    def call(self, ask: Callable[[ApiClient], Awaitable[ResultT]]) -> ResultT:
        return self._api.call(ask)

    def put(self, *manifests: dict[str, Any]) -> None:
        """Make each object so, its status too."""
        documents = [document for one in manifests if (document := read_document(one)) is not None]
        self._stored += documents
        self.call(lambda client: _put(client, documents))

    def take(self, kind: str, name: str, namespace: str | None = None, version: str = "v1") -> None:
        """Remove an object now, whoever made it; one that is not there is fine."""
        document = ManifestDocument(version, kind, name, namespace, {})
        self.call(lambda client: _take(client, document))

    def clear(self) -> None:
        while self._stored:
            one = self._stored.pop()
            self.take(one.kind, one.name, one.namespace, one.api_version)


@contextmanager
def stock(kubeconfig: Path) -> Iterator[Stock]:
    made = Stock(kubeconfig)
    try:
        yield made
    finally:
        made.clear()


async def _put(client: ApiClient, documents: list[ManifestDocument]) -> None:
    applier, discovery = Applier(client, force=True), Discovery(client)
    for document in documents:
        content = {key: value for key, value in document.content.items() if key != "status"}
        stripped = read_document(content)
        assert stripped is not None
        await applier.apply(stripped)
        if "status" in document.content:
            kind = await discovery.find(document.api_version, document.kind)
            assert kind is not None
            path = f"{kind.path(document.namespace, document.name)}/status"
            await client.request("PATCH", path, body={"status": document.content["status"]}, content_type=MERGE)


async def _take(client: ApiClient, document: ManifestDocument) -> None:
    kind = await Discovery(client).find(document.api_version, document.kind)
    if kind is None:
        return
    path = kind.path(document.namespace, document.name)
    try:
        await client.request("DELETE", path, body=NOW_OR_NEVER)
        if kind == objects.NAMESPACE:
            await finalize(client, document.name)
    except ApiRefused as refusal:
        if refusal.status != 404:
            raise


async def finalize(client: ApiClient, name: str) -> None:
    """Do what the namespace controller does when a namespace that is being deleted is empty."""
    found = await objects.get(client, objects.NAMESPACE, name)
    if found is not None:
        path = f"{objects.NAMESPACE.path(None, name)}/finalize"
        await client.request("PUT", path, body={**found, "spec": {"finalizers": []}})


MERGE = "application/merge-patch+json"


def node(name: str, address: str, *, labels: dict[str, str] | None = None, **conditions: str) -> dict[str, Any]:
    """A Node as its kubelet registers it; `conditions` by type, `Ready="True"`."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": [condition(kind, status) for kind, status in conditions.items()],
        },
    }


def condition(kind: str, status: str, message: str = "", since: str = "2026-11-16T07:00:00Z") -> dict[str, str]:
    reason = "AsTheTestSays"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def pod(name: str, namespace: str, *, is_ready: bool = True, node_name: str = "", **labels: str) -> dict[str, Any]:
    container = {"name": "main", "image": "localhost/main:lab"}
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if node_name:
        spec["nodeName"] = node_name
    status = {
        "phase": "Running" if is_ready else "Pending",
        "podIP": "10.128.0.7",
        "conditions": [condition("Ready", str(is_ready))],
    }
    head = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec, "status": status}


def config_map(name: str, namespace: str, **data: str) -> dict[str, Any]:
    head = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "data": data}


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
