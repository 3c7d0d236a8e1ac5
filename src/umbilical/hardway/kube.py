"""Queries of stages to the API: readiness, nodes, pods, leases.

`wait_for_nodes` waits for conditions and reports a table of the nodes meanwhile.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import ApiKind
from umbilical.fault import ApiRefused, Fault
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition, ConditionProbe
from umbilical.host.waiting import NotYet
from umbilical.manifests.objects import IpAddress

NODE: Final = ApiKind("Node", "/api/v1", "nodes", is_namespaced=False)
LEASE: Final = ApiKind("Lease", "/apis/coordination.k8s.io/v1", "leases")
ENDPOINT_SLICE: Final = ApiKind("EndpointSlice", "/apis/discovery.k8s.io/v1", "endpointslices")
DEPLOYMENT: Final = ApiKind("Deployment", "/apis/apps/v1", "deployments")
CONTROL_PLANE_LABEL: Final = "node-role.kubernetes.io/control-plane"
MASTER_LABEL: Final = "node-role.kubernetes.io/master"
WORKER_LABEL: Final = "node-role.kubernetes.io/worker"


def ready_text(site: Site, address: IpAddress | None = None) -> str:
    """Get /readyz. Raises NotYet: the answer is not ok; ClusterError: there is no answer."""
    try:
        text = site.api(address).call(lambda client: client.get_text("/readyz")).strip()
    except ApiRefused as refusal:
        # Checks that passed have [+], failed ones [-].
        missing = [line.removeprefix("[-]").partition(" ")[0] for line in refusal.message.splitlines() if "[-]" in line]
        raise NotYet(f"/readyz returned {refusal.status}: {', '.join(missing) or refusal.message[:80]}") from None
    if text != "ok":
        raise NotYet(f"/readyz returned {text[:80]!r}")
    return "ok"


def get(
    site: Site, kind: ApiKind, name: str, namespace: str | None = None, address: IpAddress | None = None
) -> Json | None:
    return site.api(address).call(lambda client: objects.get(client, kind, name, namespace))


def nodes(site: Site) -> dict[str, Json]:
    found = site.api().call(lambda client: objects.list_objects(client, NODE))
    return {str(objects.metadata(one).get("name")): one for one in found}


def pods(site: Site, namespace: str, labels: str = "") -> list[Json]:
    return site.api().call(lambda client: objects.list_objects(client, objects.POD, namespace, labels))


def condition(item: Json, kind: str) -> str:
    """Return the status of an object's condition; empty if it has none."""
    for one in objects.items(objects.field(item, "status", "conditions")):
        if one.get("type") == kind:
            return str(one.get("status"))
    return ""


def internal_addresses(item: Json) -> list[str]:
    listed = objects.items(objects.field(item, "status", "addresses"))
    return [str(one.get("address")) for one in listed if one.get("type") == "InternalIP"]


def registered(known: dict[str, Json], node: ClusterNode) -> Json:
    """Return a node's object. Raises NotYet: it does not exist, or its address differs from the config."""
    item = known.get(node.name)
    if item is None:
        raise NotYet(f"{node.name} is not registered")
    addresses = internal_addresses(item)
    if addresses != [str(node.address)]:
        raise NotYet(f"{node.name} has the addresses {addresses}, not {node.address}")
    return item


def is_pod_ready(pod: Json) -> bool:
    return condition(pod, "Ready") == "True"


def ready_pod(site: Site, namespace: str, name: str) -> Json:
    """Return a pod. Raises NotYet: it is missing or not Ready."""
    pod = get(site, objects.POD, name, namespace)
    if pod is None:
        raise NotYet(f"there is no pod {namespace}/{name}")
    if not is_pod_ready(pod):
        raise NotYet(f"{namespace}/{name} is not Ready: {_pod_trouble(pod)}")
    return pod


def _pod_trouble(pod: Json) -> str:
    for one in objects.items(objects.field(pod, "status", "containerStatuses")):
        state: Any = one.get("state") or {}
        for kind in ("waiting", "terminated"):
            if kind in state:
                reason, message = state[kind].get("reason", ""), state[kind].get("message", "")
                return f"{one.get('name')} {reason} {message}".strip()
    return str(objects.field(pod, "status", "phase") or "no status")


async def merge_patch(client: ApiClient, path: str, patch: Json) -> Json:
    return await client.request("PATCH", path, body=patch, content_type="application/merge-patch+json")


def label_nodes(site: Site, wanted: dict[str, dict[str, str]]) -> None:
    """Set labels of nodes by name: kubelets may not set their own role labels."""

    async def label(client: ApiClient) -> None:
        for name, labels in wanted.items():
            await merge_patch(client, NODE.path(None, name), {"metadata": {"labels": labels}})

    site.api().call(label)


async def delete_if_there(client: ApiClient, kind: ApiKind, name: str, namespace: str | None = None) -> bool:
    """Delete an object by its uid; return whether it existed."""
    item = await objects.get_metadata(client, kind, name, namespace)
    if item is None:
        return False
    await objects.delete(client, kind, name, namespace, str(objects.metadata(item).get("uid")))
    return True


SIGNALS: Final = ("registered", "ready", "pods")
PROBES_PER_TABLE: Final = 5
"""Probes per table update: listing all pods of a cluster is expensive."""


def wait_for_nodes(site: Site, seconds: float, *conditions: Condition) -> None:
    """Wait for each condition up to `seconds`, and report a table of the nodes meanwhile and at the end."""
    for condition in conditions:
        replace(condition, probe=_showing(condition.probe)).wait(site, seconds)
    show(site)


def show(site: Site) -> None:
    """Report the table of nodes. An API that does not answer is reported by the wait itself."""
    try:
        known = nodes(site)
        pods = site.api().call(_all_pods)
    except Fault:
        return
    members = site.cluster.members
    cells = {(node.id, signal): text for node in members for signal, text in _row(node, known, pods).items()}
    site.reporter.table([node.id for node in members], SIGNALS, cells)


def _showing(probe: ConditionProbe) -> ConditionProbe:
    probes = 0

    def probing(site: Site) -> str:
        nonlocal probes
        try:
            return probe(site)
        except (NotYet, Fault):
            if probes % PROBES_PER_TABLE == 0:
                show(site)
            probes += 1
            raise

    return probing


async def _all_pods(client: ApiClient) -> list[Json]:
    return await objects.list_objects(client, objects.POD)


def _row(node: ClusterNode, known: dict[str, Json], pods: Sequence[Json]) -> dict[str, str]:
    item = known.get(node.name)
    if item is None:
        return dict(zip(SIGNALS, ("no", "-", "-"), strict=True))
    here = [pod for pod in pods if objects.field(pod, "spec", "nodeName") == node.name]
    ready = "yes" if condition(item, "Ready") == "True" else "no"
    return dict(zip(SIGNALS, ("yes", ready, f"{sum(map(is_pod_ready, here))} of {len(here)}"), strict=True))
