"""What the Kubernetes API says about the agents: their DaemonSet, its pods, and each agent's own readiness."""

from dataclasses import dataclass, field
from typing import Final

from umbilical.bootstrap.names import AGENT_NAME
from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient, Json
from umbilical.fault import ApiRefused, ClusterError

# One agent that answers shows the whole way; a big cluster's hundred would only take time.
MAX_PODS_ASKED: Final = 3


@dataclass(frozen=True)
class ClusterAnswers:
    daemon_set: Json | None
    pods: list[Json] = field(default_factory=list)
    readiness: dict[str, str] = field(default_factory=dict)
    """By pod: what its agent answered at /readyz, through kube-apiserver, or why it did not."""
    refusals: list[str] = field(default_factory=list)
    """What we may not look at."""


async def ask_cluster(client: ApiClient, namespace: str, health_port: int) -> ClusterAnswers:
    """Look at the agents.

    Raises:
        ApiUnreachable: the API does not answer at all.
    """
    refusals: list[str] = []
    daemon_set = None
    pods: list[Json] = []
    try:
        daemon_set = await objects.get(client, objects.DAEMON_SET, AGENT_NAME, namespace)
        pods = await objects.list_objects(client, objects.POD, namespace, f"app={AGENT_NAME}")
    except ApiRefused as refusal:
        refusals.append(refusal.brief)
    readiness = {pod_name(pod): await _readiness(client, pod, health_port) for pod in _running(pods)[:MAX_PODS_ASKED]}
    return ClusterAnswers(daemon_set, pods, readiness, refusals)


def pod_name(pod: Json) -> str:
    return str(objects.metadata(pod).get("name"))


def pods_in_trouble(pods: list[Json]) -> list[str]:
    """Name pods whose agent does not run, with Kubernetes' own word for it."""
    return [f"{pod_name(pod)} {_state(pod)}" for pod in pods if pod not in _running(pods)]


def server_host(daemon_set: Json) -> str | None:
    """Return what the agents dial: the value of their --proxy-server-host."""
    for container in objects.items(objects.field(daemon_set, "spec", "template", "spec", "containers")):
        words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
        for position, word in enumerate(words):
            name, equals, value = word.partition("=")
            if name == "--proxy-server-host":
                return value if equals else next(iter(words[position + 1 :]), None)
    return None


def _running(pods: list[Json]) -> list[Json]:
    return [pod for pod in pods if _state(pod) == "Running"]


def _state(pod: Json) -> str:
    for status in objects.items(objects.field(pod, "status", "containerStatuses")):
        waiting = objects.field(status, "state", "waiting", "reason")
        ended = objects.field(status, "state", "terminated", "reason")
        if waiting or ended:
            return str(waiting or ended)
    for condition in objects.items(objects.field(pod, "status", "conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("reason"))
    return str(objects.field(pod, "status", "phase"))


async def _readiness(client: ApiClient, pod: Json, port: int) -> str:
    namespace = objects.metadata(pod).get("namespace")
    # kube-apiserver dials the pod itself, by the same egress as webhooks: an answer shows that the tunnel carries.
    path = f"{objects.POD.path(namespace, pod_name(pod))}:{port}/proxy/readyz"
    try:
        return (await client.get_text(path)).strip()
    except ClusterError as fault:
        return fault.why
