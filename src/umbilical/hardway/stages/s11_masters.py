"""Stage 11: boot the masters, approve their certificates, and wait until they are registered and Services work."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from umbilical.hardway import kube, operators, smoke_tests, temporary
from umbilical.hardway.artifacts import layout
from umbilical.hardway.config.cluster import ClusterNode
from umbilical.hardway.csr_rounds import approving_condition, registered_condition
from umbilical.hardway.explain.entry import stage_topic
from umbilical.hardway.kube import wait_for_nodes
from umbilical.hardway.pivot_conditions import is_handed_over
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.hardway.site import Site
from umbilical.hardway.stage import Condition, Step, wait_for
from umbilical.hardway.stages.live import LiveStage, install_step, installed_condition
from umbilical.hardway.waiting import KnownFailure
from umbilical.host.waiting import NotYet

REGISTER_SECONDS: Final = 1200.0
SERVICES_SECONDS: Final = 600.0
AGENTS_SECONDS: Final = 600.0
OPERATORS_SECONDS: Final = 1800.0
"""Operators start after the masters have a pod network."""

TOPIC: Final = stage_topic(
    11,
    "Boots the masters and approves two certificates for each by policy: a client and a serving certificate. Masters "
    "are then registered, but perhaps not Ready: that needs a pod network. In OpenShift it also waits until the "
    "operators of the pod network and the control plane run.",
    "kube-apiserver, which authenticates nodes by them; kubelets, which serve logs and exec with them.",
    "Without the client certificate the kubelet waits 15 minutes and requests it again. Without the serving one "
    "`kubectl logs` fails: `remote error: tls: internal error`. Without kube-proxy pods time out on Service addresses.",
    "kubectl get csr; kubectl get nodes -o wide; openssl s_client -connect NODE:10250",
    "approve-csr.sh on the bootstrap node approves all pending requests every 20 s.",
)


def role_labels(site: Site, nodes: Sequence[ClusterNode]) -> dict[str, dict[str, str]]:
    masters = {node.name: {kube.CONTROL_PLANE_LABEL: "", kube.MASTER_LABEL: ""} for node in site.cluster.masters}
    workers = {node.name: {kube.WORKER_LABEL: ""} for node in site.cluster.workers}
    wanted = {node.name for node in nodes}
    return {name: labels for name, labels in {**masters, **workers}.items() if name in wanted}


def labelled_condition(nodes: Sequence[ClusterNode]) -> Condition:
    def probe(site: Site) -> str:
        known = kube.nodes(site)
        for name, labels in role_labels(site, nodes).items():
            found = (known.get(name) or {}).get("metadata", {}).get("labels", {})
            missing = [label for label in labels if label not in found]
            if missing:
                raise NotYet(f"{name} lacks the labels {', '.join(missing)}")
        return ", ".join(node.id for node in nodes)

    why = "workloads and operators select nodes by them"
    fix = "kubectl label node NAME node-role.kubernetes.io/ROLE="
    title = "nodes have the labels of their role"
    return Condition(f"labelled-{nodes[0].role.value}s" if nodes else "labelled", title, why, fix, probe)


def service_condition(nodes: Sequence[ClusterNode]) -> Condition:
    """Each node reaches the Service `kubernetes` by its address."""

    def probe(site: Site) -> str:
        authority = site.content(layout.bundle(Bundle.SERVER_CA.value))
        host = f"[{site.cluster.service_ip}]" if site.cluster.service_ip.version == 6 else str(site.cluster.service_ip)
        for node in nodes:
            command = ["curl", "-sS", "-m", "10", "--noproxy", "*", "--cacert", "/dev/stdin", f"https://{host}/readyz"]
            done = site.machines.run(node.id, command, stdin=authority)
            if done.exit_code != 0 or done.stdout.strip() != b"ok":
                raise NotYet(f"{node.id}: {done.complaint}")
        return f"https://{host} from {', '.join(node.id for node in nodes)}"

    known = (
        KnownFailure(
            "timed out|Timeout",
            "nothing translates Service addresses; check that kube-proxy runs: umbilical stage lint --only KP-03",
        ),
    )
    why = "operators and pods use the API at this address; without kube-proxy or a network it times out"
    fix = "umbilical stage logs NODE kube-proxy; umbilical stage shell NODE -- nft list ruleset"
    title = "the Service `kubernetes` answers on every node"
    return Condition(f"service-{nodes[0].role.value}s" if nodes else "service", title, why, fix, probe, known)


def _steps(site: Site) -> Sequence[Step]:
    masters = site.cluster.masters
    steps = [install_step(site, node) for node in masters]
    steps.append(
        Step(
            "approve the masters' certificates",
            "kubectl certificate approve NAME   # for each that the policy allows",
            lambda: wait_for_nodes(site, REGISTER_SECONDS, approving_condition(masters)),
        )
    )
    if not site.cluster.is_openshift:
        steps.append(
            Step(
                "label the masters",
                f"kubectl label node NAME {kube.CONTROL_PLANE_LABEL}=",
                lambda: kube.label_nodes(site, role_labels(site, masters)),
            )
        )
    if site.cluster.has_kube_proxy:
        see_service = "curl --cacert ca.crt https://SERVICE_IP/readyz   # on each master"
        steps.append(
            Step("wait for Services", see_service, lambda: wait_for(site, SERVICES_SECONDS, service_condition(masters)))
        )
    if site.has_tunnel and not site.cluster.is_openshift:
        steps.append(
            Step(
                "wait for the tunnel's agents",
                "kubectl -n bootstrap-konnectivity get pods",
                _until_pivot(site, lambda: wait_for(site, AGENTS_SECONDS, temporary.agents_condition(len(masters)))),
            )
        )
    if site.cluster.is_openshift:
        steps.append(
            Step(
                "wait for the control plane's operators",
                "oc get clusteroperators",
                lambda: wait_for_nodes(site, OPERATORS_SECONDS, operators.reporting_condition()),
            )
        )
    if site.smoke_test is not None:
        steps += [
            replace(step, act=_until_pivot(site, step.act)) for step in smoke_tests.webhook_steps(site, masters[0])
        ]
    return steps


def _until_pivot(site: Site, act: Callable[[], None]) -> Callable[[], None]:
    """Skip the step after the pivot, which removes the tunnel: a repeated stage must not wait for it."""

    def run() -> None:
        if not is_handed_over(site):
            act()

    return run


def _conditions(site: Site) -> Sequence[Condition]:
    masters = site.cluster.masters
    found = [*map(installed_condition, masters), registered_condition(masters)]
    if not site.cluster.is_openshift:
        found.append(labelled_condition(masters))
    if site.cluster.has_kube_proxy:
        found.append(service_condition(masters))
    return [*found, *([operators.reporting_condition()] if site.cluster.is_openshift else [])]


STAGE: Final = LiveStage(
    11,
    "masters",
    "boot the masters and approve their certificates",
    (8, 10),
    TOPIC,
    _steps,
    _conditions,
    nodes=lambda site: site.cluster.masters,
)
