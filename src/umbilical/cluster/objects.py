"""Objects of the API by kind: one, many by label, and gone; metadata alone where the rest is nobody's business. Which
kinds a cluster serves, and where, is asked of the API itself."""

from dataclasses import dataclass
from typing import Any, Final

from umbilical.cluster.client import ApiClient, Json
from umbilical.fault import ApiRefused

# Any of these kinds comes in dozens; a list that never ends is a broken server's.
PAGE: Final = 250
MAX_PAGES: Final = 40
_META: Final = "g=meta.k8s.io;v=v1"


@dataclass(frozen=True)
class Kind:
    """How the API calls a kind of objects, and where it keeps them."""

    name: str
    group_path: str
    plural: str
    is_namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Without a namespace: all of them; without a name: the whole list."""
        place = f"/namespaces/{namespace}" if self.is_namespaced and namespace else ""
        return f"{self.group_path}{place}/{self.plural}" + (f"/{name}" if name else "")


NAMESPACE: Final = Kind("Namespace", "/api/v1", "namespaces", is_namespaced=False)
SECRET: Final = Kind("Secret", "/api/v1", "secrets")
CONFIG_MAP: Final = Kind("ConfigMap", "/api/v1", "configmaps")
POD: Final = Kind("Pod", "/api/v1", "pods")
DAEMON_SET: Final = Kind("DaemonSet", "/apis/apps/v1", "daemonsets")
OPENSHIFT_KUBE_APISERVER: Final = Kind(
    "KubeAPIServer", "/apis/operator.openshift.io/v1", "kubeapiservers", is_namespaced=False
)


async def get(client: ApiClient, kind: Kind, name: str, namespace: str | None = None) -> Json | None:
    """Fetch one object; None when there is none, or no such kind."""
    return await _get(client, kind.path(namespace, name), None)


async def get_metadata(client: ApiClient, kind: Kind, name: str, namespace: str | None = None) -> Json | None:
    """Fetch an object without its content: a Secret's keys do not travel."""
    return await _get(client, kind.path(namespace, name), f"application/json;as=PartialObjectMetadata;{_META}")


async def list_objects(client: ApiClient, kind: Kind, namespace: str | None = None, labels: str = "") -> list[Json]:
    return await _list(client, kind.path(namespace), labels, None)


async def list_metadata(client: ApiClient, kind: Kind, namespace: str | None = None, labels: str = "") -> list[Json]:
    """List objects without their content."""
    return await _list(client, kind.path(namespace), labels, f"application/json;as=PartialObjectMetadataList;{_META}")


async def delete(
    client: ApiClient, kind: Kind, name: str, namespace: str | None, uid: str, *, dry_run: bool = False
) -> None:
    """Ask for the deletion of exactly this object, and of what belongs to it later on (background).

    Raises ApiRefused: 404 when it is gone, 409 when another object has its name by now, or what else is in the way.
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


def metadata(item: Json) -> Json:
    found = item.get("metadata")
    return found if isinstance(found, dict) else {}


def field(item: Json, *path: str) -> Any:
    """Walk down a path of keys; None as soon as one is missing."""
    value: Any = item
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def items(value: Any) -> list[Json]:
    """Take the objects out of what should be a list of them."""
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
    """Asks once for each version of an API group, and again for one that was forgotten."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._served: dict[str, dict[str, Kind]] = {}

    async def find(self, api_version: str, kind: str) -> Kind | None:
        """Find a kind; None where the cluster serves none. Raises ApiRefused, ApiUnreachable."""
        if api_version not in self._served:
            self._served[api_version] = await self._ask(api_version)
        return self._served[api_version].get(kind)

    def forget(self, api_version: str) -> None:
        """Ask anew the next time: a CRD may have come since."""
        self._served.pop(api_version, None)

    async def _ask(self, api_version: str) -> dict[str, Kind]:
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            answer = await self._client.request("GET", path)
        except ApiRefused as refusal:
            if refusal.status == 404:
                return {}
            raise
        served = items(answer.get("resources"))
        # A name with a slash is a part of another resource: deployments/scale is a Scale.
        whole = [item for item in served if "/" not in str(item.get("name"))]
        return {
            str(item["kind"]): Kind(str(item["kind"]), path, str(item["name"]), bool(item.get("namespaced")))
            for item in whole
        }
