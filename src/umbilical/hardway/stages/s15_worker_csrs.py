"""Stages 14 and 15: boot the workers, approve their certificates, and wait until every node is Ready."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.client import ApiClient
from umbilical.hardway import kube
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.csr_rounds import approving_condition, registered_condition
from umbilical.hardway.explain.entry import stage_topic
from umbilical.hardway.kube import wait_for_nodes
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition, Step
from umbilical.hardway.stages.live import LiveStage, install_step, installed_condition
from umbilical.hardway.stages.s11_masters import REGISTER_SECONDS, labelled_condition, role_labels
from umbilical.hardway.waiting import KnownFailure
from umbilical.host.waiting import NotYet

_WORKERS_TOPIC: Final = stage_topic(
    14,
    "Boots the workers. They follow the pivot, so that nothing they use is removed.",
    "Ignition on each worker; then its kubelet, which requests a certificate.",
    "Ingress and most workloads have no node to run on.",
    "kubectl get csr -w; umbilical stage logs WORKER kubelet",
    "MachineSets create workers through the cloud's API; on platform none users boot them.",
)


WORKERS: Final = LiveStage(
    14,
    "workers",
    "boot the workers",
    (8, 13),
    _WORKERS_TOPIC,
    lambda site: [install_step(site, node) for node in site.cluster.workers],
    lambda site: [installed_condition(node) for node in site.cluster.workers],
    nodes=lambda site: site.cluster.workers,
)


LEASES: Final = "kube-node-lease"
MAX_AGE: Final = timedelta(seconds=40)
"""After this time kube-controller-manager marks a node as unknown; kubelets renew every ten seconds."""
MAX_SKEW: Final = 3
"""Minor versions that a kubelet may be behind; it may never be ahead."""
_MINOR: Final = re.compile(r"v?1\.(\d+)")


def alive_condition(nodes: Sequence[ClusterNode]) -> Condition:
    def probe(site: Site) -> str:
        found = site.api().call(lambda client: objects.list_objects(client, kube.LEASE, LEASES))
        renewed = {str(objects.metadata(one).get("name")): objects.field(one, "spec", "renewTime") for one in found}
        for node in nodes:
            age = _age(renewed.get(node.name), site.now())
            if age is None or age > MAX_AGE:
                told = "it has no lease" if age is None else f"its lease is {age.seconds} s old"
                raise NotYet(f"{node.name}: {told}")
        return f"{len(nodes)} leases are fresh"

    why = "a node stays Ready for a while after its kubelet has stopped"
    fix = "kubectl -n kube-node-lease get leases; umbilical stage logs NODE kubelet"
    return Condition("nodes-alive", "every node renews its lease", why, fix, probe)


def version_condition(nodes: Sequence[ClusterNode]) -> Condition:
    def probe(site: Site) -> str:
        api = site.api().call(_api_version)
        known = kube.nodes(site)
        for node in nodes:
            version = str(objects.field(known.get(node.name) or {}, "status", "nodeInfo", "kubeletVersion") or "")
            behind = _minor(api) - _minor(version)
            if not 0 <= behind <= MAX_SKEW:
                raise NotYet(f"the kubelet of {node.name} is {version or 'of no version'}, kube-apiserver is {api}")
        return api

    why = "a newer kubelet uses API features that kube-apiserver does not have"
    fix = "kubectl get nodes; kubectl version"
    title = f"kubelets are at most {MAX_SKEW} minor versions behind kube-apiserver, and never ahead"
    return Condition("kubelet-versions", title, why, fix, probe)


async def _api_version(client: ApiClient) -> str:
    return str((await client.request("GET", "/version")).get("gitVersion"))


def _minor(version: str) -> int:
    found = _MINOR.match(version)
    # An unreadable version must never be within the allowed skew.
    return int(found.group(1)) if found else -1000


def _age(text: object, now: datetime) -> timedelta | None:
    try:
        return now - datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None


READY_SECONDS: Final = 1200.0

TOPIC: Final = stage_topic(
    15,
    "Approves two certificates for each worker by the same policy as for masters, and waits until every node is Ready.",
    "kube-apiserver and the kubelets; the scheduler, which uses only Ready nodes.",
    "`kubectl get nodes` lists no workers, and pods stay Pending: `0/3 nodes are available`.",
    "kubectl get csr; kubectl describe node NAME",
    "On platform none users approve them by hand; elsewhere the machine-approver compares them with Machines.",
)


def ready_condition(nodes: Sequence[ClusterNode]) -> Condition:
    def probe(site: Site) -> str:
        known = kube.nodes(site)
        for node in nodes:
            item = kube.registered(known, node)
            if kube.condition(item, "Ready") != "True":
                raise NotYet(f"{node.name} is not Ready: {_ready_message(item)}")
            for trouble in ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"):
                if kube.condition(item, trouble) == "True":
                    raise NotYet(f"{node.name} has {trouble}")
        return ", ".join(node.name for node in nodes)

    return Condition(
        "nodes-ready",
        "every node is Ready",
        "the scheduler uses only Ready nodes",
        "kubectl describe node NAME; umbilical stage logs NODE kubelet",
        probe,
        (KnownFailure("cni|NetworkPluginNotReady|network", "the node has no pod network: ls /etc/cni/net.d on it"),),
    )


def _ready_message(item: dict[str, object]) -> str:
    for one in objects.items(objects.field(item, "status", "conditions")):
        if one.get("type") == "Ready":
            return str(one.get("message") or one.get("reason") or "")[:200]
    return "no condition Ready"


def _steps(site: Site) -> Sequence[Step]:
    workers = site.cluster.workers
    steps = []
    if workers:
        approve = "kubectl certificate approve NAME   # for each that the policy allows"
        act = partial(wait_for_nodes, site, REGISTER_SECONDS, approving_condition(workers))
        steps.append(Step("approve the workers' certificates", approve, act))
        if not site.cluster.is_openshift:
            label = f"kubectl label node NAME {kube.WORKER_LABEL}="
            steps.append(Step("label the workers", label, lambda: kube.label_nodes(site, role_labels(site, workers))))
    members = site.cluster.members
    act = partial(wait_for_nodes, site, READY_SECONDS, ready_condition(members), alive_condition(members))
    return [*steps, Step("wait for every node", "kubectl get nodes", act)]


def _conditions(site: Site) -> Sequence[Condition]:
    workers = site.cluster.workers
    members = site.cluster.members
    found = [ready_condition(members), alive_condition(members), version_condition(members)]
    if workers:
        found.append(registered_condition(workers))
        if not site.cluster.is_openshift:
            found.append(labelled_condition(workers))
    return found


_TITLE: Final = "approve the workers' certificates, and wait until every node is Ready"
STAGE: Final = LiveStage(15, "worker-csrs", _TITLE, (14,), TOPIC, _steps, _conditions)
