"""Stage 15: workers get their certificates by rule, and become Ready."""

from collections.abc import Sequence
from typing import Final

from umbilical.cluster import objects
from umbilical.hardway import kube
from umbilical.hardway.config.cluster import Node
from umbilical.hardway.csr_rounds import approving_sight, registered_sight
from umbilical.hardway.explain.topic import Topic, TopicKind
from umbilical.hardway.looking import Sight
from umbilical.hardway.node_health import alive_sight, version_sight
from umbilical.hardway.node_table import see_nodes
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Step
from umbilical.hardway.stages.live import LiveStage
from umbilical.hardway.stages.s11_masters import REGISTER_SECONDS, labelled_sight, role_labels
from umbilical.hardway.waiting import NotYet, Signature

READY_SECONDS: Final = 1200.0

TOPIC: Final = Topic(
    TopicKind.STAGE,
    "15",
    15,
    "Approves two certificates for each worker by the same rules as the masters', and waits until every node is Ready.",
    "kube-apiserver and the kubelets; the scheduler, which places pods on Ready nodes only.",
    "`kubectl get nodes` stays short, and pods stay Pending: `0/3 nodes are available`.",
    "kubectl get csr; kubectl describe node NAME",
    "On platform none somebody approves them by hand; elsewhere the machine-approver compares them with Machines.",
)


def ready_sight(nodes: Sequence[Node]) -> Sight:
    def look(site: Site) -> str:
        known = kube.nodes(site)
        for node in nodes:
            item = kube.registered(known, node)
            if kube.condition(item, "Ready") != "True":
                raise NotYet(f"{node.name} is not Ready: {_ready_message(item)}")
            for trouble in ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"):
                if kube.condition(item, trouble) == "True":
                    raise NotYet(f"{node.name} has {trouble}")
        return ", ".join(node.name for node in nodes)

    return Sight(
        "nodes-ready",
        "every node is Ready",
        "the scheduler uses no other",
        "kubectl describe node NAME; on the node: journalctl -u kubelet",
        look,
        (Signature("cni|NetworkPluginNotReady|network", "the node has no pod network yet: ls /etc/cni/net.d there"),),
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
        sight = approving_sight(workers)
        steps.append(
            Step("approve the workers' certificates by rule", approve, lambda: see_nodes(site, REGISTER_SECONDS, sight))
        )
        if not site.cluster.is_openshift:
            label = f"kubectl label node NAME {kube.WORKER_LABEL}="
            steps.append(Step("label the workers", label, lambda: kube.label_nodes(site, role_labels(site, workers))))
    everybody = (ready_sight(site.cluster.members), alive_sight(site.cluster.members))
    steps.append(Step("wait for every node", "kubectl get nodes", lambda: see_nodes(site, READY_SECONDS, *everybody)))
    return steps


def _sights(site: Site) -> Sequence[Sight]:
    workers = site.cluster.workers
    members = site.cluster.members
    found = [ready_sight(members), alive_sight(members), version_sight(members)]
    if workers:
        found.append(registered_sight(workers))
        if not site.cluster.is_openshift:
            found.append(labelled_sight(workers))
    return found


STAGE: Final = LiveStage(
    number=15,
    name="worker-csrs",
    title="approve the workers' certificates, and see every node Ready",
    needs=(14,),
    topic=TOPIC,
    make_steps=_steps,
    make_sights=_sights,
)
