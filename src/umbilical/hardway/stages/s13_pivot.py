"""Stage 13, the pivot: masters take over, the bootstrap node leaves etcd and is powered off.

Until its etcd member is removed everything can be undone; after that only the snapshot remains.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from umbilical.cluster import objects
from umbilical.cluster.apply import Applier, read_document
from umbilical.cluster.client import make_client
from umbilical.fault import Fault, HardwayError, Unsafe
from umbilical.hardway import kube, operators, temporary
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.infrastructure.places import HAPROXY_BOOTSTRAP, HAPROXY_FINAL
from umbilical.hardway.artifacts.static_pods.kube_controller_manager import OPENSHIFT_NAMESPACE
from umbilical.hardway.config.cluster import API_PORT
from umbilical.hardway.etcd import Etcd, EtcdMember, client_url
from umbilical.hardway.explain.entry import stage_topic
from umbilical.hardway.machines.interface import Power, is_listening
from umbilical.hardway.pivot_conditions import (
    CONTROLLERS,
    bootstrap_member,
    conditions,
    first_that_fails,
    is_past,
    members,
)
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.hardway.prober import Prober, ProbeTally, ProbeTarget
from umbilical.hardway.site import Site
from umbilical.hardway.stage import NEVER, Condition, Step, Undo, wait_for
from umbilical.hardway.stages.live import LiveStage
from umbilical.hardway.undoing import FORWARD, Undoer
from umbilical.hardway.waiting import wait
from umbilical.host.files import write_file
from umbilical.host.waiting import NotYet
from umbilical.manifests.control_plane_pods import SCHEDULER

BETWEEN_ROUNDS_SECONDS: Final = 10.0
CONDITIONS_SECONDS: Final = 900.0
DRAIN_SECONDS: Final = {True: 30.0, False: 5.0}
"""By `is_openshift`: cluster-bootstrap waits at least as long; a lab has no other clients."""
REMOVED_SECONDS: Final = 900.0
END_SECONDS: Final = 300.0
STEADY_SECONDS: Final = 10.0
"""How long probes continue after the last change."""
NO_RETURN: Final = "the bootstrap member was removed from etcd; only the snapshot has the earlier state"
DELETE_MARK: Final = "delete-bootstrap-mark"
SNAPSHOT: Final = "pivot-snapshot.db"
_SNAPSHOT_ON_NODE: Final = f"{layout.ETCD_DATA}/{SNAPSHOT}"
"""etcd's container can write there too."""
_MARK: Final = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "bootstrap", "namespace": "kube-system"},
    "data": {"status": "complete"},
}

TOPIC: Final = stage_topic(
    13,
    "Moves the cluster from the bootstrap node to the masters, after the pivot conditions P1 to P8 have held twice: "
    "load balancer, etcd membership, tunnel, controllers, API server, power.",
    "All clients of the API. Meanwhile a prober opens a new connection through the load balancer every 100 ms.",
    "If the machine is powered off before its member is removed, etcd keeps a dead member: with one or two masters it "
    "loses quorum. If data or signers differ between nodes, masters reject kubelets, tokens and administrators.",
    "etcdctl member list; kubectl get endpointslices kubernetes; kubectl -n kube-system get leases",
    "bootkube.sh ends, progress.service writes kube-system/bootstrap, the etcd operator removes the member, and the "
    "installer deletes the machine.",
)


class PivotRun:
    """The steps of one run share a prober."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._prober: Prober | None = None

    def probed(self, act: Callable[[], None]) -> Callable[[], None]:
        """Start the prober before a step, unless it runs."""

        def run() -> None:
            if self._prober is None:
                self._prober = self._start()
            try:
                act()
            except BaseException:
                self._prober.stop()
                self._prober = None
                raise

        return run

    def finish(self) -> None:
        """Stop the prober. Raises HardwayError: UMB746, a probe failed or the watch missed a change."""
        if self._prober is None:
            return
        prober = self._prober
        self._site.sleep(STEADY_SECONDS)
        _catch_up(self._site, prober)
        prober.stop()
        tally, counter = prober.tally, prober.counter
        told = f"{tally}; the watch was interrupted {counter.cuts} times, resumed, and saw {counter.events} changes"
        self._site.reporter.saw(told)
        self._site.notes["pivot-probes"] = {"probes": tally.probes, "failures": tally.failures}
        self._prober = None
        if tally.failures or counter.missed:
            why = f"{tally}; {_first(tally)}" if tally.failures else f"the watch missed {counter.missed} changes"
            remedy = "the cluster works; check the load balancer's log at that time, then umbilical stage retry"
            raise HardwayError("UMB746", "the API was unavailable during the pivot", why, remedy)

    def _start(self) -> Prober:
        site = self._site
        authority = site.content(layout.bundle(Bundle.SERVER_CA.value)).decode()
        target = ProbeTarget(str(site.cluster.networks.api_vip), API_PORT, site.cluster.api_name, authority)
        prober = Prober(target, lambda: make_client(site.kubeconfig(None)))
        prober.start()
        return prober


def _first(tally: ProbeTally) -> str:
    first = tally.misses[0]
    return f"the first failed after {first.after_seconds:.1f} s: {first.reason}"


def _catch_up(site: Site, prober: Prober) -> None:
    def probe() -> None:
        counter = prober.counter
        # Without a written change the watch proves nothing.
        if counter.written == (counter.first or 0) or counter.seen < counter.written:
            raise NotYet(f"the watch saw change {counter.seen} of {counter.written}; {counter.trouble}")

    remedy = "kubectl -n kube-system get configmap umbilical-pivot --watch"
    wait(site.reporter, "the watch to see every change", probe, END_SECONDS, remedy=remedy, sleep=site.sleep)


def _check_conditions(site: Site) -> None:
    def probe() -> None:
        try:
            if is_past(site):
                return
        except Fault as fault:
            raise NotYet(fault.brief) from None
        for number in (1, 2):
            failing = first_that_fails(site, conditions(site))
            if failing:
                raise NotYet(failing)
            if number == 1:
                site.sleep(BETWEEN_ROUNDS_SECONDS)

    try:
        what, remedy = "pivot conditions P1 to P8 to hold twice", "fix the named condition"
        wait(site.reporter, what, probe, CONDITIONS_SECONDS, remedy=remedy, sleep=site.sleep)
    except HardwayError as error:
        remedy = "nothing was changed; fix the condition, then umbilical stage retry 13"
        raise Unsafe("UMB745", "the pivot was not started: a condition does not hold", error.why, remedy) from None


def _save_snapshot(site: Site) -> None:
    if is_past(site):
        return
    boot = site.cluster.bootstrap
    Etcd(site.machines, boot, in_container=site.cluster.is_openshift).save_snapshot(_SNAPSHOT_ON_NODE)
    content = site.machines.read(boot.id, _SNAPSHOT_ON_NODE)
    if not content:
        why = f"{_SNAPSHOT_ON_NODE} on the bootstrap node is empty or missing"
        raise Unsafe("UMB745", "the pivot was not started: no etcd snapshot", why, "on the bootstrap node: df /var/lib")
    path = write_file(site.folder / ".umbilical" / SNAPSHOT, content, overwrite=True)
    site.machines.run(boot.id, ["rm", "-f", _SNAPSHOT_ON_NODE])
    site.reporter.saw(f"{path.name}, {len(content) >> 10} KiB")


def _turn_balancer(site: Site) -> None:
    site.machines.set_balancer(site.content(HAPROXY_FINAL))
    site.sleep(DRAIN_SECONDS[site.cluster.is_openshift])


def _mark_complete(site: Site) -> None:
    document = read_document(_MARK)
    assert document is not None
    site.api().call(lambda client: Applier(client, force=True).apply(document))


def unmark(site: Site) -> None:
    """Delete the mark, unless the bootstrap member is removed: OpenShift's operator does so within seconds.

    Raises Unsafe: UMB727, the bootstrap member is removed.
    """
    if is_past(site):
        what = "the pivot is past its point of no return"
        raise Unsafe("UMB727", what, NO_RETURN, FORWARD)
    site.api().call(lambda client: kube.delete_if_there(client, objects.CONFIG_MAP, "bootstrap", "kube-system"))


def _remove_member(site: Site) -> None:
    if site.cluster.is_openshift:
        wait_for(site, REMOVED_SECONDS, operators.removed_condition())
        return
    # etcd refuses with "unhealthy cluster" while it has not heard from all members for some seconds.
    wait_for(site, REMOVED_SECONDS, _left_condition(), member_condition())


def _left_condition() -> Condition:
    def probe(site: Site) -> str:
        member = bootstrap_member(site)
        if member is not None:
            _expel(site, member)
        return "removed"

    why = "its machine is powered off, and a dead member still counts for quorum"
    return Condition("etcd-left", "the bootstrap member is removed from etcd", why, "etcdctl member remove ID", probe)


def _expel(site: Site, member: EtcdMember) -> None:
    """Remove a member, after moving leadership away from it."""
    masters = site.cluster.masters
    etcd = Etcd(site.machines, masters[0])
    # Query a master: the bootstrap member may be dead.
    (status,) = etcd.status([client_url(masters[0])])
    if status.leader_id == member.id:
        heir = next(one for one in members(site) if one.id != member.id and not one.is_learner)
        etcd.move_leader(client_url(site.cluster.bootstrap), heir.id)
    etcd.remove(member.id)


def member_condition() -> Condition:
    def probe(site: Site) -> str:
        masters = site.cluster.masters
        etcd = Etcd(site.machines, masters[0])
        found = etcd.members()
        if {one.name for one in found} != {node.name for node in masters} or any(one.is_learner for one in found):
            raise NotYet(f"the members are {', '.join(one.name or one.id for one in found)}")
        if trouble := etcd.unhealthy([client_url(node) for node in masters]):
            raise NotYet("; ".join(trouble.values()))
        return f"{len(found)} members, all on masters"

    why = "a dead member counts for quorum until it is removed"
    return Condition("etcd-members", "etcd's members are the masters", why, "etcdctl member list", probe)


def _stop_pods(site: Site, *programs: str) -> None:
    """Remove static pods of the bootstrap node, and wait until their programs have ended."""
    boot = site.cluster.bootstrap
    if site.machines.power(boot.id) is not Power.ON:
        return
    for program in programs:
        site.machines.run(boot.id, ["rm", "-f", f"{layout.NODE_MANIFESTS}/{program}-bootstrap.yaml"])

    def probe() -> None:
        for program in programs:
            if is_listening(site.machines, boot.id, program):
                raise NotYet(f"{program} still runs")

    what = f"{', '.join(programs)} to end"
    wait(site.reporter, what, probe, END_SECONDS, remedy=f"umbilical stage logs {boot.id} kubelet", sleep=site.sleep)


def _stop_controllers(site: Site) -> None:
    _stop_pods(site, *CONTROLLERS)
    wait_for(site, END_SECONDS, leases_condition())


def lease_namespace(site: Site, program: str) -> str:
    return OPENSHIFT_NAMESPACE if site.cluster.is_openshift and program == SCHEDULER else "kube-system"


def leases_condition() -> Condition:
    def probe(site: Site) -> str:
        names = {name for node in site.cluster.masters for name in (node.id, node.name)}
        for lease in CONTROLLERS:
            found = kube.get(site, kube.LEASE, lease, lease_namespace(site, lease))
            holder = str(objects.field(found or {}, "spec", "holderIdentity") or "")
            if holder.partition("_")[0] not in names:
                raise NotYet(f"{lease} is held by {holder or 'no node'}")
        return "held by masters"

    why = "a stopped leader keeps the lease until it expires"
    fix = "kubectl -n kube-system get leases"
    return Condition("leases", "masters hold the leases of controllers and scheduler", why, fix, probe)


def endpoints_condition() -> Condition:
    def probe(site: Site) -> str:
        found = kube.get(site, kube.ENDPOINT_SLICE, "kubernetes", "default") or {}
        rows = objects.items(found.get("endpoints"))
        addresses = sorted(str(address) for row in rows for address in row.get("addresses") or ())
        wanted = sorted(str(node.address) for node in site.cluster.masters)
        if addresses != wanted:
            raise NotYet(f"the endpoints are {', '.join(addresses)}, not {', '.join(wanted)}")
        return ", ".join(addresses)

    why = "pods use the API by this Service, and would be sent to a machine that is off"
    fix = "kubectl get endpointslices"
    return Condition("P9", "the Service `kubernetes` has only the masters as endpoints", why, fix, probe)


def off_condition() -> Condition:
    def probe(site: Site) -> str:
        if site.machines.power(site.cluster.bootstrap.id) is Power.ON:
            raise NotYet("the bootstrap machine is on")
        return "off"

    why = "its kubelet could start its static pods again"
    return Condition("bootstrap-off", "the bootstrap machine is off", why, "virsh shutdown CLUSTER-bootstrap", probe)


def _switch_off(site: Site) -> None:
    wait_for(site, END_SECONDS, endpoints_condition(), leases_condition())
    site.machines.stop(site.cluster.bootstrap.id)


def _wait_for_tunnel_end(site: Site, pivot: PivotRun) -> list[Step]:
    """Wait for the end of the namespace: controllers on the masters delete its content."""
    if not site.has_tunnel:
        return []
    act = partial(wait_for, site, END_SECONDS, temporary.gone_condition())
    command = f"kubectl get namespace {temporary.namespace(site)}"
    return [Step("wait until the tunnel is deleted", command, pivot.probed(act))]


def _steps(site: Site) -> Sequence[Step]:
    pivot, boot = PivotRun(site), site.cluster.bootstrap
    steps = [
        Step("check pivot conditions P1 to P8 twice", "umbilical explain P1   # ...", partial(_check_conditions, site)),
        Step("save a snapshot of etcd", f"etcdctl snapshot save {SNAPSHOT}", partial(_save_snapshot, site)),
        Step(
            "switch the load balancer to the masters",
            "haproxy -c -f haproxy.final.cfg && systemctl reload haproxy",
            pivot.probed(partial(_turn_balancer, site)),
            Undo("set-balancer", {"artifact": HAPROXY_BOOTSTRAP}),
        ),
        Step(
            "mark the bootstrap as complete",
            "kubectl -n kube-system create configmap bootstrap --from-literal=status=complete",
            pivot.probed(partial(_mark_complete, site)),
            Undo(DELETE_MARK),
        ),
        Step(
            "remove the bootstrap member from etcd",
            "etcdctl move-leader MASTER_ID; etcdctl member remove ID",
            pivot.probed(partial(_remove_member, site)),
            Undo(NEVER, {"why": NO_RETURN}),
        ),
    ]
    if site.has_tunnel:
        cut = pivot.probed(partial(temporary.cut, site))
        steps.append(Step("remove the tunnel", "umbilical bootstrap teardown", cut))
    return [
        *steps,
        Step(
            "stop controllers and scheduler on the bootstrap node",
            f"rm {layout.NODE_MANIFESTS}/kube-{{controller-manager,scheduler}}-bootstrap.yaml   # on {boot.id}",
            pivot.probed(partial(_stop_controllers, site)),
        ),
        Step(
            "stop kube-apiserver on the bootstrap node",
            f"rm {layout.NODE_MANIFESTS}/kube-apiserver-bootstrap.yaml   # on {boot.id}",
            pivot.probed(partial(_stop_pods, site, "kube-apiserver")),
        ),
        Step(
            "stop etcd on the bootstrap node",
            f"rm {layout.NODE_MANIFESTS}/etcd-bootstrap.yaml   # on {boot.id}",
            pivot.probed(partial(_stop_pods, site, "etcd")),
        ),
        Step(
            "power off the bootstrap machine",
            f"virsh shutdown {site.cluster.name}-{boot.id}",
            pivot.probed(partial(_switch_off, site)),
        ),
        *_wait_for_tunnel_end(site, pivot),
        Step("check that no probe failed", "for i in $(seq 100); do curl https://API/readyz; done", pivot.finish),
    ]


def _conditions(site: Site) -> Sequence[Condition]:
    found = [member_condition(), endpoints_condition(), leases_condition(), off_condition()]
    if site.cluster.is_openshift:
        found[0] = operators.removed_condition()
    return [*found, temporary.gone_condition()] if site.has_tunnel else found


UNDOERS: Final[Mapping[str, Undoer]] = {DELETE_MARK: lambda site, values: unmark(site)}
STAGE: Final = LiveStage(13, "pivot", "move the cluster to the masters", (12,), TOPIC, _steps, _conditions)
