"""Stage 12: start the control plane on the masters: etcd members join one by one, then the API servers start.

In the kubernetes profile our static pods are already on each master. In OpenShift operators install them, and this
stage only waits.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from umbilical.fault import Fault, HardwayError
from umbilical.hardway import kube, operators
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.etcd import Etcd, EtcdMember, client_url, peer_url
from umbilical.hardway.explain.entry import stage_topic
from umbilical.hardway.kube import wait_for_nodes
from umbilical.hardway.machines.interface import is_listening
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition, Step, Undo, wait_for
from umbilical.hardway.stages.live import LiveStage
from umbilical.hardway.undoing import Undoer
from umbilical.hardway.waiting import KnownFailure, wait
from umbilical.host.waiting import NotYet

ETCD: Final = "etcd.yaml"
PLANE: Final = ("kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml")
MEMBER_SECONDS: Final = 600.0
PLANE_SECONDS: Final = 900.0
OPERATORS_SECONDS: Final = 1800.0
_PLACE: Final = """
if [ -e "$1" ]; then mkdir -p "$(dirname "$2")" && cp -p "$1" "$3" && mv "$3" "$2"; fi
test -e "$2"
"""
REMOVE_MEMBER: Final = "remove-etcd-member"
WITHDRAW_POD: Final = "withdraw-static-pod"

TOPIC: Final = stage_topic(
    12,
    "Starts etcd, kube-apiserver, controller-manager and scheduler on every master. Each etcd member joins as a "
    "learner and is promoted when it has caught up, so etcd has quorum at every moment.",
    "The pivot, which requires it; the load balancer, which uses masters that are ready.",
    "A member with another signer than the bootstrap etcd never becomes healthy. An API server with another "
    "--etcd-prefix serves an empty cluster, as if all data were lost.",
    "etcdctl member list -w table; etcdctl endpoint status --cluster -w table; kubectl get --raw /readyz?verbose",
    "The etcd operator adds members; static-pod operators install the rest by revision, one master at a time.",
)
_FAILURES: Final = (
    KnownFailure("in sync with leader", "the learner is still catching up; this is normal at first"),
    KnownFailure("unhealthy cluster|quorum", "too few members answer: check the log of the member that was added last"),
    KnownFailure(
        "bad certificate|unknown authority",
        "etcd's signer differs between nodes: umbilical stage lint --only PKI-10,PKI-12",
    ),
)


def _speaker(site: Site) -> Etcd:
    """Find an etcd that answers, the bootstrap node's first. Raises Fault: none; the error of the first."""
    first: Fault | None = None
    for node in (site.cluster.bootstrap, *site.cluster.masters):
        etcd = Etcd(site.machines, node)
        try:
            etcd.members()
        except Fault as fault:
            first = first or fault
        else:
            return etcd
    assert first is not None
    raise first


def _member(etcd: Etcd, node: ClusterNode) -> EtcdMember | None:
    return next((one for one in etcd.members() if peer_url(node) in one.peer_urls), None)


def _add(site: Site, node: ClusterNode) -> None:
    etcd = _speaker(site)
    if _member(etcd, node) is None:
        etcd.add_learner(node.name, peer_url(node))


def place(site: Site, node: ClusterNode, file: str) -> None:
    """Copy a prepared static pod to the kubelet's directory, with a rename so that it appears complete."""
    source, target = f"{layout.NODE_LATE_MANIFESTS}/{file}", f"{layout.NODE_MANIFESTS}/{file}"
    # The kubelet ignores names that begin with a dot.
    hidden = f"{layout.NODE_MANIFESTS}/.{file}"
    done = site.machines.run(node.id, ["sh", "-c", _PLACE, "sh", source, target, hidden])
    if done.exit_code != 0:
        what = f"could not copy {file} to {layout.NODE_MANIFESTS} on {node.id}"
        raise HardwayError("UMB747", what, done.complaint, f"on {node.id}: ls -l {source} {layout.NODE_MANIFESTS}")


def _promoted_condition(node: ClusterNode) -> Condition:
    def probe(site: Site) -> str:
        etcd = _speaker(site)
        member = _member(etcd, node)
        if member is None or not member.name:
            raise NotYet(f"{node.id} has not started as a member")
        if member.is_learner:
            etcd.promote(member.id)
            raise NotYet("it was just promoted")
        return f"member {member.id} votes"

    why = "a learner has no vote: without the bootstrap member etcd would lose quorum"
    fix = f"umbilical stage logs {node.id} etcd"
    return Condition(f"etcd-{node.id}", f"etcd on {node.id} is a voting member", why, fix, probe, _FAILURES)


def voting_condition(node: ClusterNode) -> Condition:
    """The same without promoting a member, on the master itself."""

    def probe(site: Site) -> str:
        etcd = Etcd(site.machines, node)
        if trouble := etcd.unhealthy([client_url(node)]):
            raise NotYet("; ".join(trouble.values()))
        member = next((one for one in etcd.members() if peer_url(node) in one.peer_urls), None)
        if member is None or member.is_learner:
            raise NotYet(f"{node.id} is not a voting member")
        return f"{member.id} is healthy"

    why = "the masters must hold the cluster's data before the bootstrap node is removed"
    fix = f"umbilical stage logs {node.id} etcd"
    return Condition(f"voting-{node.id}", f"etcd on {node.id} is healthy and votes", why, fix, probe, _FAILURES)


def api_condition(node: ClusterNode) -> Condition:
    why = "after the pivot the load balancer sends requests to it"
    fix = f"umbilical stage logs {node.id} kube-apiserver"
    title = f"kube-apiserver on {node.id} is ready"
    return Condition(f"api-{node.id}", title, why, fix, lambda site: kube.ready_text(site, node.address))


def pods_condition(node: ClusterNode) -> Condition:
    """The mirror pods of the control plane are ready."""

    def probe(site: Site) -> str:
        names = [f"{file.removesuffix('.yaml')}-{node.name}" for file in PLANE]
        for name in names:
            kube.ready_pod(site, "kube-system", name)
        return ", ".join(names)

    why = "without controllers and scheduler no workload is created"
    fix = f"kubectl -n kube-system get pods -o wide; umbilical stage logs {node.id}"
    return Condition(f"plane-{node.id}", f"the control plane pods on {node.id} are ready", why, fix, probe)


def _join(site: Site, node: ClusterNode) -> list[Step]:
    etcd_file = f"mv {layout.NODE_LATE_MANIFESTS}/{ETCD} {layout.NODE_MANIFESTS}/   # on {node.id}"
    return [
        Step(
            f"add {node.id} to etcd as a learner",
            f"etcdctl member add {node.name} --learner --peer-urls={peer_url(node)}",
            lambda: _add(site, node),
            Undo(REMOVE_MEMBER, {"node": node.id}),
        ),
        Step(
            f"start etcd on {node.id}",
            etcd_file,
            lambda: place(site, node, ETCD),
            Undo(WITHDRAW_POD, {"node": node.id, "file": ETCD, "data": layout.ETCD_DATA}),
        ),
        Step(
            f"promote {node.id} when it has caught up",
            "etcdctl member promote ID",
            lambda: wait_for(site, MEMBER_SECONDS, _promoted_condition(node)),
        ),
        *(_start(site, node, file) for file in PLANE),
        Step(
            f"wait for kube-apiserver on {node.id}",
            f"kubectl --server=https://{node.address}:6443 get --raw /readyz",
            lambda: wait_for(site, PLANE_SECONDS, api_condition(node)),
        ),
    ]


def _start(site: Site, node: ClusterNode, file: str) -> Step:
    return Step(
        f"start {file.removesuffix('.yaml')} on {node.id}",
        f"mv {layout.NODE_LATE_MANIFESTS}/{file} {layout.NODE_MANIFESTS}/   # on {node.id}",
        lambda: place(site, node, file),
        Undo(WITHDRAW_POD, {"node": node.id, "file": file}),
    )


def _wait_for_pods(site: Site) -> None:
    wait_for_nodes(site, PLANE_SECONDS, *map(pods_condition, site.cluster.masters))


def _steps(site: Site) -> Sequence[Step]:
    if site.cluster.is_openshift:
        return [
            Step(
                "wait until the operators have installed the control plane on the masters",
                "oc get etcds,kubeapiservers,kubecontrollermanagers,kubeschedulers cluster -o yaml",
                lambda: wait_for_nodes(site, OPERATORS_SECONDS, *operators.control_plane_conditions(site)),
            )
        ]
    steps = [step for node in site.cluster.masters for step in _join(site, node)]
    wait_text = "kubectl -n kube-system get pods -l tier=control-plane"
    return [*steps, Step("wait for controllers and scheduler", wait_text, lambda: _wait_for_pods(site))]


def _conditions(site: Site) -> Sequence[Condition]:
    masters = site.cluster.masters
    if site.cluster.is_openshift:
        return [*operators.control_plane_conditions(site), *map(api_condition, masters)]
    return [*map(voting_condition, masters), *map(api_condition, masters), *map(pods_condition, masters)]


def undo_member(site: Site, node_id: str) -> None:
    """Remove a master's member from etcd; only before the bootstrap member is removed."""
    etcd = _speaker(site)
    member = _member(etcd, site.cluster.node(node_id))
    if member is not None:
        etcd.remove(member.id)


def undo_pod(site: Site, node_id: str, file: str, data: str = "") -> None:
    """Remove a static pod; with `data`, wait until etcd has ended and empty that directory."""
    if data:
        # Before the pod stops: one of two members alone has no quorum and could not remove the other.
        undo_member(site, node_id)
    site.machines.run(node_id, ["rm", "-f", f"{layout.NODE_MANIFESTS}/{file}"])
    if data:
        _wait_for_end(site, node_id)
        site.machines.run(node_id, ["find", data, "-mindepth", "1", "-delete"])


def _wait_for_end(site: Site, node_id: str) -> None:
    def probe() -> None:
        if is_listening(site.machines, node_id, "etcd"):
            raise NotYet("etcd still runs")

    what, remedy = f"etcd on {node_id} to end", f"umbilical stage logs {node_id} etcd"
    wait(site.reporter, what, probe, MEMBER_SECONDS, remedy=remedy, sleep=site.sleep)


UNDOERS: Final[Mapping[str, Undoer]] = {
    REMOVE_MEMBER: lambda site, values: undo_member(site, values["node"]),
    WITHDRAW_POD: lambda site, values: undo_pod(site, values["node"], values["file"], values.get("data", "")),
}
STAGE: Final = LiveStage(
    12, "control-plane", "start the control plane on the masters", (11,), TOPIC, _steps, _conditions
)
