"""Stage 16: wait until the cluster's own components are stable: operators in OpenShift, else DNS and kube-proxy."""

from collections.abc import Sequence
from typing import Final

from umbilical.cluster import objects
from umbilical.hardway import kube, operators
from umbilical.hardway.artifacts.static_pods.kube_proxy import PROGRAM as KUBE_PROXY
from umbilical.hardway.explain.entry import stage_topic
from umbilical.hardway.kube import wait_for_nodes
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition, Step, wait_for
from umbilical.hardway.stages.live import LiveStage
from umbilical.hardway.temporary import removal, remove
from umbilical.host.waiting import NotYet

CONVERGENCE_SECONDS: Final = 3600.0

TOPIC: Final = stage_topic(
    16,
    "Waits until all components of the cluster are available and stable. The list of components comes from the release "
    "or the manifests, so an empty list is not a success.",
    "You, to know that the cluster is ready.",
    "A script that only counts bad conditions succeeds at once while no operator exists yet.",
    "oc get clusteroperators; oc get clusterversion; or kubectl -n kube-system get deployments",
    "`openshift-install wait-for install-complete` waits for ClusterVersion, then until operators are stable for 30 s.",
)


def dns_condition() -> Condition:
    def probe(site: Site) -> str:
        found = kube.get(site, kube.DEPLOYMENT, "coredns", "kube-system")
        if found is None:
            raise NotYet("there is no Deployment kube-system/coredns")
        wanted = int(objects.field(found, "spec", "replicas") or 0)
        status = found.get("status") or {}
        numbers = [int(status.get(key) or 0) for key in ("updatedReplicas", "readyReplicas", "availableReplicas")]
        if wanted < 1 or numbers != [wanted] * 3:
            raise NotYet(f"updated, ready, available are {numbers}; expected {wanted} of each")
        return f"{wanted} ready"

    why = "without it pods cannot resolve Service names"
    fix = "kubectl -n kube-system describe deployment coredns"
    return Condition("coredns", "the cluster's DNS runs", why, fix, probe)


def proxies_condition() -> Condition:
    def probe(site: Site) -> str:
        for node in site.cluster.members:
            kube.ready_pod(site, "kube-system", f"kube-proxy-{node.name}")
        return f"{len(site.cluster.members)} pods"

    why = "without it Service addresses do not work on a node"
    fix = "kubectl -n kube-system get pods -o wide"
    return Condition("kube-proxy", "kube-proxy runs on every node", why, fix, probe)


def _wanted(site: Site) -> list[Condition]:
    if site.cluster.is_openshift:
        return [operators.version_condition(), operators.operators_condition(), operators.pools_condition()]
    return [dns_condition(), *([proxies_condition()] if site.cluster.has_kube_proxy else [])]


def _removal_steps(site: Site) -> list[Step]:
    """Remove the temporary kube-proxy when OpenShift's network operator is available."""
    step = removal(site, KUBE_PROXY) if site.cluster.is_openshift else None
    if step is None:
        return []
    return [
        Step(
            "wait for the network operator",
            "oc get clusteroperator network",
            lambda: wait_for(site, CONVERGENCE_SECONDS, operators.operator_condition("network")),
        ),
        Step(
            "remove kube-proxy", "rm kube-proxy.yaml; kube-proxy --cleanup   # on each node", lambda: remove(site, step)
        ),
    ]


def _steps(site: Site) -> Sequence[Step]:
    return [
        *_removal_steps(site),
        Step(
            "wait until all components are stable",
            "oc get clusteroperators" if site.cluster.is_openshift else "kubectl -n kube-system get deployments,pods",
            lambda: wait_for_nodes(site, CONVERGENCE_SECONDS, *_wanted(site)),
        ),
    ]


STAGE: Final = LiveStage(16, "convergence", "wait until all components are stable", (15,), TOPIC, _steps, _wanted)
