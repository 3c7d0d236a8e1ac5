"""Looks at the hosted cluster through its own API: nodes, agents on them, and logs read as users read them."""

import asyncio
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.cluster.objects import DAEMON_SET, POD, SECRET, Kind
from umbilical.fault import ClusterError
from umbilical.hosted.facts import CertificateFact, HostedFacts, LogRead, Node
from umbilical.hosted.gather_management import authorities, certificate_fact, pod_name
from umbilical.hosted.objects import names
from umbilical.hosted.pki.table import AGENT

NODE: Final = Kind("Node", "/api/v1", "nodes", is_namespaced=False)
KUBELET_PORT: Final = 10250
# One good node hides many bad ones, so as many as can be asked in reasonable time are.
MAX_LOGS: Final = 100
AT_ONCE: Final = 8


async def look_at_cluster(client: ApiClient) -> HostedFacts:
    """Raises ClusterError: the API itself does not answer, or does not let us look."""
    nodes = await objects.list_objects(client, NODE)
    pods = await objects.list_objects(client, POD, names.HOSTED_NAMESPACE, f"app={names.AGENT}")
    return HostedFacts(
        nodes=tuple(_node(item) for item in nodes),
        daemon_set=await objects.get(client, DAEMON_SET, names.AGENT, names.HOSTED_NAMESPACE),
        agent_pods=tuple(pods),
        logs=tuple(await _logs(client, [pod for pod in pods if _is_running(pod)][:MAX_LOGS])),
    )


async def look_at_agent_certificate(client: ApiClient, bundle: Json | None) -> CertificateFact:
    """`bundle` is the management cluster's: there is said by whom servers know agents."""
    secret = await objects.get(client, SECRET, AGENT.id, names.HOSTED_NAMESPACE)
    return certificate_fact(f"hosted {names.HOSTED_NAMESPACE}/{AGENT.id}", secret, authorities(bundle, AGENT))


def _node(item: Json) -> Node:
    addresses = objects.items(objects.field(item, "status", "addresses"))
    internal = [str(one.get("address")) for one in addresses if one.get("type") == "InternalIP"]
    conditions = objects.items(objects.field(item, "status", "conditions"))
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    port = objects.field(item, "status", "daemonEndpoints", "kubeletEndpoint", "Port")
    return Node(
        name=str(objects.metadata(item).get("name")),
        address=internal[0] if internal else "",
        kubelet_port=port if isinstance(port, int) and port else KUBELET_PORT,
        is_ready=ready,
    )


def _is_running(pod: Json) -> bool:
    return bool(objects.field(pod, "status", "phase") == "Running")


async def _logs(client: ApiClient, pods: list[Json]) -> list[LogRead]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def read(pod: Json) -> LogRead:
        async with slots:
            return await _log(client, pod)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(read(pod)) for pod in pods]
    return [task.result() for task in tasks]


async def _log(client: ApiClient, pod: Json) -> LogRead:
    name, node = pod_name(pod), str(objects.field(pod, "spec", "nodeName"))
    path = f"{POD.path(names.HOSTED_NAMESPACE, name)}/log"
    query = {"container": names.AGENT, "tailLines": "1", "limitBytes": "4096"}
    try:
        text = await client.get_text(path, query)
    except ClusterError as fault:
        return LogRead(name, node, fault.why)
    return LogRead(name, node, "" if text.strip() else "it is empty")
