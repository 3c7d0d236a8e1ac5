"""Get, list and delete API objects by kind, with or without their content; and discovery of the kinds that a cluster
serves."""

from dataclasses import dataclass
from typing import Any, Final

from umbilical.cluster.client import ApiClient, Json
from umbilical.fault import ApiRefused

# Bounds a list from a broken server: real lists have dozens of objects.
PAGE: Final = 250
MAX_PAGES: Final = 40
_META: Final = "g=meta.k8s.io;v=v1"


@dataclass(frozen=True)
class ApiKind:
    """A kind of API objects and its path."""

    name: str
    group_path: str
    plural: str
    is_namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Without a namespace: all namespaces; without a name: the list."""
        place = f"/namespaces/{namespace}" if self.is_namespaced and namespace else ""
        return f"{self.group_path}{place}/{self.plural}" + (f"/{name}" if name else "")


NAMESPACE: Final = ApiKind("Namespace", "/api/v1", "namespaces", is_namespaced=False)
SECRET: Final = ApiKind("Secret", "/api/v1", "secrets")
CONFIG_MAP: Final = ApiKind("ConfigMap", "/api/v1", "configmaps")
POD: Final = ApiKind("Pod", "/api/v1", "pods")
WEBHOOK_CONFIGURATION: Final = ApiKind(
    "ValidatingWebhookConfiguration",
    "/apis/admissionregistration.k8s.io/v1",
    "validatingwebhookconfigurations",
    is_namespaced=False,
)
DAEMON_SET: Final = ApiKind("DaemonSet", "/apis/apps/v1", "daemonsets")
OPENSHIFT_KUBE_APISERVER: Final = ApiKind(
    "KubeAPIServer", "/apis/operator.openshift.io/v1", "kubeapiservers", is_namespaced=False
)


async def get(client: ApiClient, kind: ApiKind, name: str, namespace: str | None = None) -> Json | None:
    """Fetch one object; None if it, or its kind, does not exist."""
    return await _get(client, kind.path(namespace, name), None)


async def get_metadata(client: ApiClient, kind: ApiKind, name: str, namespace: str | None = None) -> Json | None:
    """Fetch an object without its content, e.g. a Secret without its keys."""
    return await _get(client, kind.path(namespace, name), f"application/json;as=PartialObjectMetadata;{_META}")


async def list_objects(client: ApiClient, kind: ApiKind, namespace: str | None = None, labels: str = "") -> list[Json]:
    return await _list(client, kind.path(namespace), labels, None)


async def list_metadata(client: ApiClient, kind: ApiKind, namespace: str | None = None, labels: str = "") -> list[Json]:
    """List objects without their content."""
    return await _list(client, kind.path(namespace), labels, f"application/json;as=PartialObjectMetadataList;{_META}")


async def delete(
    client: ApiClient, kind: ApiKind, name: str, namespace: str | None, uid: str, *, dry_run: bool = False
) -> None:
    """Delete the object with this uid; its dependents are deleted in the background.

    Raises ApiRefused: 404 if it is gone, 409 if another object now has its name, or another error.
    """
    options: Json = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": uid},
    }
    if dry_run:
        options["dryRun"] = ["All"]
    await client.request("DELETE", kind.path(namespace, name), body=options)


_DENIED: Final = "denied the request"


async def config_map_verdict(client: ApiClient, config_map: Json) -> str:
    """Send a ConfigMap as a dry run: `allowed`, `denied` by a webhook, or the error."""
    path = CONFIG_MAP.path(metadata(config_map)["namespace"])
    try:
        await client.request("POST", path, query={"dryRun": "All"}, body=config_map)
    except ApiRefused as refusal:
        return "denied" if _DENIED in refusal.message else refusal.message
    return "allowed"


def metadata(item: Json) -> Json:
    found = item.get("metadata")
    return found if isinstance(found, dict) else {}


def field(item: Json, *path: str) -> Any:
    """Return the value at a path of keys; None if one is missing."""
    value: Any = item
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def items(value: Any) -> list[Json]:
    """Return the objects in a list; empty for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


async def _get(client: ApiClient, path: str, accept: str | None) -> Json | None:
    try:
        return await client.request("GET", path, accept=accept)
    except ApiRefused as refusal:
        if refusal.status == 404:
            return None
        raise


async def _list(client: ApiClient, path: str, labels: str, accept: str | None) -> list[Json]:
    found: list[Json] = []
    query = {"limit": str(PAGE)} | ({"labelSelector": labels} if labels else {})
    for _ in range(MAX_PAGES):
        page = await client.request("GET", path, query=query, accept=accept)
        found += items(page.get("items"))
        following = metadata(page).get("continue")
        if not following:
            break
        query = {**query, "continue": str(following)}
    return found


class Discovery:
    """Finds the kinds that a cluster serves; caches the answer per API version."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._served: dict[str, dict[str, ApiKind]] = {}

    async def find(self, api_version: str, kind: str) -> ApiKind | None:
        """Find a kind; None if the cluster does not serve it. Raises ApiRefused, ApiUnreachable."""
        if api_version not in self._served:
            self._served[api_version] = await self._discover(api_version)
        return self._served[api_version].get(kind)

    def forget(self, api_version: str) -> None:
        """Drop the cached answer: a CRD may have been added."""
        self._served.pop(api_version, None)

    async def _discover(self, api_version: str) -> dict[str, ApiKind]:
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            answer = await self._client.request("GET", path)
        except ApiRefused as refusal:
            if refusal.status == 404:
                return {}
            raise
        served = items(answer.get("resources"))
        # A name with a slash is a subresource, e.g. deployments/scale.
        whole = [item for item in served if "/" not in str(item.get("name"))]
        return {
            str(item["kind"]): ApiKind(str(item["kind"]), path, str(item["name"]), bool(item.get("namespaced")))
            for item in whole
        }
