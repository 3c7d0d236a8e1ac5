"""`stage doctor`: diagnoses files, then the record, then running machines.

It runs all checks of the finished stages, as `stage status` does. On machines it also examines the load balancer's
status, static pod files and pending signing requests.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from umbilical.checks.check import Finding, Outcome
from umbilical.cluster import csr, objects
from umbilical.cluster.client import ApiClient
from umbilical.cluster.csr import ClusterState, Decision, decide, is_pending
from umbilical.fault import Fault
from umbilical.hardway import csr_rounds, kube, pipeline, smoke_tests
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterNode, NodeRole
from umbilical.hardway.csr_rounds import KNOWN_FAILURES as REQUESTS
from umbilical.hardway.diagnosis import Diagnosis, examine_artifacts, examine_record, hinted, lesson_live, stage_hop
from umbilical.hardway.machines.interface import BackendServer, Power
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Stage, findings
from umbilical.hardway.stages.artifact_stages import written_check
from umbilical.hardway.stages.live import LiveStage
from umbilical.hardway.state import RunState, StageStatus
from umbilical.hardway.waiting import KnownFailure
from umbilical.host.waiting import NotYet
from umbilical.manifests.tree import Asset

BOOTSTRAP: Final = 10
CONTROL_PLANE: Final = 12
PIVOT: Final = 13
CONVERGENCE: Final = 16
API_BACKEND: Final = "api"
BALANCER: Final = (
    KnownFailure("L7RSP", "the health check uses plain HTTP on a TLS port: check-ssl is missing (HA-01)"),
    KnownFailure("L6", "TLS failed: the health check does not trust the server's certificate (PKI-02, PKI-03)"),
    KnownFailure("L7STS", "the server is not ready: kubectl get --raw '/readyz?verbose' at its own address"),
    KnownFailure(
        "L4", "nothing listens on the port: umbilical stage logs NODE lists what has run; or check its firewall"
    ),
)
_WRONG_HEALTH_CHECK: Final = ("L7RSP", "L6RSP", "L6TOUT")
"""HAProxy check results that always mean a wrong health check configuration."""
_REFUSED: Final = "L7STS"
"""A server that is not ready answers 500; a Go server answers 400 to plain HTTP on its TLS port."""
READY_OVER_TLS: Final = "it is ready over TLS"
_API_UNREACHABLE: Final = "UMB603"

Signal = Callable[[Site, RunState], Iterator[Diagnosis]]


def are_up(site: Site) -> bool:
    """Whether there are machines to examine; a load balancer that does not answer is no reason not to."""
    looks: Sequence[Callable[[], object]] = (lambda: _running(site), site.machines.balancer)
    for look in looks:
        with suppress(Fault):
            if look():
                return True
    return False


def examine_machines(
    site: Site,
    state: RunState,
    stages: Sequence[Stage],
    told: Collection[str] = (),
) -> list[Diagnosis]:
    """Run all signals and checks; one that fails is reported and does not stop the others.

    `told`: ids of checks that are reported already.
    """
    has_machines = are_up(site)
    balancer = _examined("load balancer", balancer_signal, site, state) if has_machines else []
    found = _examined("static pods", files_signal, site, state) if has_machines else []
    found += _checks(site, pipeline.finished(stages, state), told)
    if has_machines and _is_done(state, BOOTSTRAP):
        found += _examined("signing requests", requests_signal, site, state)
    return _caused(balancer, found)


def _caused(balancer: Sequence[Diagnosis], found: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Fold failed API calls into the load balancer's diagnosis, which explains them."""
    silent = [one for one in found if _API_UNREACHABLE in (one.id, one.why.partition(" ")[0])]
    if not balancer or not silent:
        return [*balancer, *found]
    first = replace(balancer[0], why=f"{balancer[0].why}; {len(silent)} checks that need the API fail too")
    return [first, *balancer[1:], *(one for one in found if one not in silent)]


def balancer_signal(site: Site, state: RunState) -> Iterator[Diagnosis]:
    servers = site.machines.balancer()
    wrong = [(one, said) for one in servers if not one.is_up and (said := _wrong_health_check(site, one))]
    for one, said in wrong:
        remedy = hinted("L7RSP" if READY_OVER_TLS in said else one.check, "umbilical stage lint --only HA-01", BALANCER)
        hop, what = f"load balancer to {one.server}", f"the load balancer marks {one.backend} of {one.server} as DOWN"
        yield Diagnosis("balancer", hop, what, said, remedy, lesson_live(said))
    behind = [one for one in servers if one.backend == API_BACKEND]
    if not wrong and _is_done(state, BOOTSTRAP) and behind and not any(one.is_up for one in behind):
        seen = ", ".join(f"{one.server} {one.check}" for one in behind)
        remedy = hinted(seen, "umbilical stage status", BALANCER)
        yield Diagnosis("balancer", "load balancer", "no API server is up", seen, remedy)


def _wrong_health_check(site: Site, one: BackendServer) -> str:
    """Return why the health check is wrong and not the server; empty if the server may be down."""
    if one.check.startswith(_WRONG_HEALTH_CHECK):
        return f"its health check returned {one.check}"
    node = next((node for node in site.cluster.nodes if node.name == one.server), None)
    if one.backend != API_BACKEND or not one.check.startswith(_REFUSED) or node is None:
        return ""
    try:
        site.machines.enter()
        kube.ready_text(site, node.address)
    except (NotYet, Fault, TimeoutError):
        return ""
    return f"its health check returned {one.check}, and {READY_OVER_TLS}"


def files_signal(site: Site, state: RunState) -> Iterator[Diagnosis]:
    """Report missing static pod files of running nodes."""
    for node in _running(site):
        for file in _watched(site, state, node):
            if site.machines.read(node.id, f"{layout.NODE_MANIFESTS}/{file}") is None:
                seen = f"{file} is not in {layout.NODE_MANIFESTS} of {node.id}"
                what = f"a static pod file of {node.id} is missing, so its kubelet stops the pod"
                remedy = f"copy {file} back from artifacts/{layout.STATIC_PODS}"
                yield Diagnosis("static-pod", f"kubelet of {node.id}", what, seen, remedy, lesson_live(seen))


def _watched(site: Site, state: RunState, node: ClusterNode) -> list[str]:
    if node.role is NodeRole.BOOTSTRAP and state.stage(PIVOT).status is not StageStatus.PENDING:
        return []
    # OpenShift's network operator replaces kube-proxy, whose file is then removed.
    if site.cluster.is_openshift and node.role is not NodeRole.BOOTSTRAP and _is_done(state, CONVERGENCE):
        return []
    folders = [layout.static_pod(node, "")]
    if node.role is NodeRole.MASTER and _is_done(state, CONTROL_PLANE):
        folders.append(layout.late_static_pod(node, ""))
    names = (path.removeprefix(folder) for folder in folders for path in sorted(site.assets) if path.startswith(folder))
    return [name for name in names if "/" not in name and name.endswith(".yaml")]


def requests_signal(site: Site, state: RunState) -> Iterator[Diagnosis]:
    """Report pending signing requests that would be refused, with the first rule that does not hold."""
    site.machines.enter()
    for decision in site.api().call(lambda client: _refused(site, client)):
        what = f"{decision.csr} is pending, and the policy does not allow it"
        usual = "kubectl describe csr NAME; kubectl certificate deny NAME if no node of yours sent it"
        remedy = hinted(decision.reason, usual, csr_rounds.KNOWN_FAILURES)
        yield Diagnosis("csr", f"request of {decision.node or 'an unknown node'}", what, decision.reason, remedy)


async def _refused(site: Site, client: ApiClient) -> list[Decision]:
    listed = await objects.list_objects(client, csr.KIND)
    nodes = {str(objects.metadata(one).get("name")): one for one in await objects.list_objects(client, csr.NODE)}
    pending = [one for one in listed if is_pending(one)]
    world = ClusterState(site.now(), nodes, pending=len(pending))
    decisions = (decide(one, csr_rounds.policy(site), world) for one in pending)
    return [one for one in decisions if not one.is_approved]


def _checks(site: Site, stages: Sequence[Stage], told: Collection[str]) -> list[Diagnosis]:
    """Run the checks of these stages, as `stage status` does."""
    found: list[Diagnosis] = []
    for stage in stages:
        try:
            wrong = [one for one in findings(stage, site) if one.outcome is Outcome.FAILED and one.id not in told]
            known = known_failures(site, stage) if wrong else []
            found += [_check(stage, one, known) for one in wrong]
        except Fault as fault:
            # Machines that cannot be entered stop the checks of every stage alike.
            if not any((one.id, one.why) == (fault.code, fault.why) for one in found):
                found.append(Diagnosis(fault.code, stage_hop(stage), fault.what, fault.why, fault.remedy))
    return found


def _check(stage: Stage, finding: Finding, known_failures: Sequence[KnownFailure]) -> Diagnosis:
    remedy = hinted(finding.evidence, finding.fix, known_failures)
    return Diagnosis(
        finding.id,
        stage_hop(stage),
        f"check failed: {finding.title}",
        finding.evidence,
        remedy,
        lesson_live(finding.evidence),
    )


def _examined(hop: str, signal: Signal, site: Site, state: RunState) -> list[Diagnosis]:
    try:
        return list(signal(site, state))
    except Fault as fault:
        return [Diagnosis(fault.code, hop, fault.what, fault.why, fault.remedy)]
    except TimeoutError:
        return [Diagnosis("api", hop, "the API did not answer", "timed out", "umbilical stage status 10")]


def _running(site: Site) -> list[ClusterNode]:
    return [node for node in site.cluster.nodes if site.machines.power(node.id) is Power.ON]


def _is_done(state: RunState, number: int) -> bool:
    return state.stage(number).status in (StageStatus.DONE, StageStatus.STALE)


def examine(
    site: Site, state: RunState, on_disk: Mapping[str, Asset], stages: Sequence[Stage], *, is_locked: bool
) -> list[Diagnosis]:
    artifacts = examine_artifacts(site, on_disk)
    told = {one.id for one in artifacts}
    if artifacts:
        # A changed file is what one of these is about.
        told |= {written_check(stage.number).id for stage in stages}
    record = examine_record(stages, state, partial(known_failures, site), is_locked=is_locked)
    return [*artifacts, *record, *examine_machines(site, state, stages, told)]


def known_failures(site: Site, stage: Stage) -> list[KnownFailure]:
    """Collect the stage's own, and those of what all stages use, each once.

    Those of another stage would mislead: "refused" by the bootstrap API is not "refused" by a worker's kubelet.
    """
    conditions = stage.make_conditions(site) if isinstance(stage, LiveStage) else []
    own = [one for condition in conditions for one in condition.known_failures]
    shared = (*BALANCER, *REQUESTS, *smoke_tests.WEBHOOK_FAILURES, *smoke_tests.WORKLOAD_FAILURES)
    return list(dict.fromkeys((*own, *shared)))
