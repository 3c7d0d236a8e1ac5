"""The checks of a hosted control plane: predicates over facts that the caller has gathered."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, TypeVar

from umbilical.checks.check import Check, Verdict, failed, passed, skipped, warned
from umbilical.cluster import objects
from umbilical.hosted.clusters import container, identifiers
from umbilical.hosted.facts import (
    CertificateFact,
    CheckFacts,
    DialProbe,
    HostedFacts,
    ManagementFacts,
    ServerHealth,
    Unknown,
)
from umbilical.hosted.network_policy import opens, selecting
from umbilical.hosted.objects import names
from umbilical.pki.validation import is_signed_by

# HyperShift renews with less than this left.
SHORT: Final = timedelta(days=30)
MAX_LINES: Final = 5
GROUPS: Final = {
    "M": "The control plane's namespace",
    "H": "The hosted cluster",
    "C": "Certificates",
    "S": "Servers",
    "T": "Through the tunnel",
    "P": "Proxies",
}
Part = TypeVar("Part")


def _with(
    part: Callable[[CheckFacts], Part | Unknown], evaluate: Callable[[Part, CheckFacts], Verdict]
) -> Callable[[CheckFacts], Verdict]:
    """Evaluate a part of the facts; skip the check with the reason if the part is unknown."""

    def evaluated(facts: CheckFacts) -> Verdict:
        found = part(facts)
        return skipped(found.reason) if isinstance(found, Unknown) else evaluate(found, facts)

    return evaluated


def _answers(part: Callable[[CheckFacts], object]) -> Callable[[CheckFacts], Verdict]:
    """Fail if a given API does not answer."""

    def evaluated(facts: CheckFacts) -> Verdict:
        found = part(facts)
        if not isinstance(found, Unknown):
            return passed()
        return failed(found.reason) if found.is_failure else skipped(found.reason)

    return evaluated


def _shortened(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    return "\n".join([*lines[:MAX_LINES], *more])


def _publishes_not_ready(management: ManagementFacts, _: CheckFacts) -> Verdict:
    service = management.service(names.SERVER)
    if service is None:
        return failed(f"there is no Service {names.SERVER}")
    if objects.field(service, "spec", "publishNotReadyAddresses") is True:
        return passed()
    return failed(f"Service {names.SERVER} has no publishNotReadyAddresses")


def _policies(management: ManagementFacts, _: CheckFacts) -> Verdict:
    if not management.server_pods:
        return skipped(f"there is no pod with a container {names.SERVER}")
    pod = management.server_pods[0]
    closing = selecting(management.policies, objects.metadata(pod).get("labels") or {})
    if not closing:
        return passed("no NetworkPolicy selects it")
    ports = objects.items((container(pod) or {}).get("ports"))
    by_name = {str(port.get("name")): int(port["containerPort"]) for port in ports}
    opening = [objects.metadata(policy).get("name") for policy in closing if opens(policy, names.AGENT_PORT, by_name)]
    if opening:
        return passed(f"by {opening[0]}")
    named = ", ".join(str(objects.metadata(policy).get("name")) for policy in closing)
    return failed(f"{named} select the servers' pods, and none allows TCP {names.AGENT_PORT} from everywhere")


def _control_plane_agent(management: ManagementFacts, _: CheckFacts) -> Verdict:
    deployment = management.control_plane_agent
    if deployment is None:
        return skipped(f"there is no Deployment {names.AGENT}: no aggregated API needs one")
    claimed = identifiers(deployment)
    if not claimed or "" in claimed:
        return failed(f"its identifiers are {claimed or 'none'}: an agent with an empty one gets no dials")
    wanted, ready = (objects.field(deployment, *path) or 0 for path in (("spec", "replicas"), _READY))
    if not ready:
        return failed(f"none of its {wanted} pods is ready")
    return passed(f"{ready} of {wanted} ready") if ready >= wanted else warned(f"{ready} of {wanted} pods are ready")


_READY: Final = ("status", "readyReplicas")


def _daemon_set(hosted: HostedFacts, _: CheckFacts) -> Verdict:
    if hosted.daemon_set is None:
        return failed(f"there is no DaemonSet {names.HOSTED_NAMESPACE}/{names.AGENT}")
    if not hosted.nodes:
        return skipped("there are no nodes yet")
    with_agent = {objects.field(pod, "spec", "nodeName") for pod in hosted.agent_pods if _is_ready(pod)}
    missing = [node.name for node in hosted.nodes if node.name not in with_agent]
    if not missing:
        return passed(f"{len(hosted.nodes)} of {len(hosted.nodes)} nodes")
    return failed(f"no ready agent on {len(missing)} of {len(hosted.nodes)} nodes:\n{_shortened(missing)}")


def _is_ready(pod: dict[str, object]) -> bool:
    conditions = objects.items(objects.field(pod, "status", "conditions"))
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _logs(hosted: HostedFacts, _: CheckFacts) -> Verdict:
    if not hosted.logs:
        return failed("no agent pod runs, so no log can be read") if hosted.nodes else skipped("there are no nodes")
    bad = [f"{log.pod} on {log.node}: {log.trouble}" for log in hosted.logs if log.trouble]
    if not bad:
        return passed(f"of {len(hosted.logs)} pods")
    return failed(f"{len(bad)} of {len(hosted.logs)} logs could not be read:\n{_shortened(bad)}")


def _valid(certificates: tuple[CertificateFact, ...], facts: CheckFacts) -> Verdict:
    bad, short = [], []
    for fact in certificates:
        leaf = fact.certificate
        if leaf is None:
            bad.append(f"{fact.name}: {fact.trouble}")
        elif not leaf.not_before <= facts.now <= leaf.not_after:
            bad.append(f"{fact.name}: valid {leaf.not_before:%Y-%m-%d %H:%M} to {leaf.not_after:%Y-%m-%d %H:%M} UTC")
        elif leaf.time_left(facts.now) < SHORT:
            short.append(f"{fact.name}: ends {leaf.not_after:%Y-%m-%d %H:%M} UTC")
    if bad:
        return failed(_shortened(bad + short))
    return warned(_shortened(short)) if short else passed(f"{len(certificates)} certificates")


def _issuers(certificates: tuple[CertificateFact, ...], _: CheckFacts) -> Verdict:
    known = [fact for fact in certificates if fact.certificate is not None and fact.authorities is not None]
    if not known:
        return skipped(f"no ConfigMap {names.CA_BUNDLE} with the trusted CAs")
    strangers = [fact.name for fact in known if not _is_trusted(fact)]
    if not strangers:
        return passed(f"{len(known)} certificates")
    return failed(_shortened([f"{name}: not signed by a CA that its peer trusts" for name in strangers]))


def _is_trusted(fact: CertificateFact) -> bool:
    leaf = fact.certificate
    return leaf is not None and any(is_signed_by(leaf, authority) for authority in fact.authorities or ())


def _intruder(probes: tuple[DialProbe, ...], _: CheckFacts) -> Verdict:
    undecided = [f"{probe.server}: {probe.text}" for probe in probes if probe.subject == "client"]
    let_in = [
        f"{probe.server} accepts it: {probe.text}" for probe in probes if probe.subject == "agent" and not probe.is_ok
    ]
    if let_in:
        return failed(_shortened(let_in))
    if undecided:
        return skipped(undecided[0])
    return passed(f"by {len(probes)} servers")


def _health(servers: tuple[ServerHealth, ...], _: CheckFacts) -> Verdict:
    bad = [f"{server.name}: {server.trouble}" for server in servers if server.trouble]
    if not servers:
        return failed("there are none")
    return failed(_shortened(bad)) if bad else passed(f"{len(servers)} of {len(servers)}")


def _agents(servers: tuple[ServerHealth, ...], _: CheckFacts) -> Verdict:
    living = [server for server in servers if not server.trouble]
    if not living:
        return skipped("no server answers")
    without = [server.name for server in living if not any(server.agents.values())]
    if without:
        return failed(_shortened([f"{name}: no agent is connected" for name in without]))
    return passed(", ".join(f"{server.name}: {server.node_agents}" for server in living))


def _agents_per_node(servers: tuple[ServerHealth, ...], facts: CheckFacts) -> Verdict:
    nodes, living = facts.node_addresses, [server for server in servers if not server.trouble]
    if isinstance(nodes, Unknown):
        return skipped(nodes.reason)
    if not living or not nodes:
        return skipped("no server answers" if nodes else "there are no nodes")
    few = [
        f"{server.name}: {server.node_agents} of {len(nodes)}" for server in living if server.node_agents < len(nodes)
    ]
    if few:
        return failed(_shortened(few))
    return passed(f"{len(living)} servers, {len(nodes)} nodes")


def _probes(probes: tuple[DialProbe, ...], _: CheckFacts) -> Verdict:
    bad = [f"{probe.subject} through {probe.server}: {probe.text}" for probe in probes if not probe.is_ok]
    if not probes:
        return skipped("there is nothing to reach")
    if bad:
        return failed(f"{len(bad)} of {len(probes)} dials failed:\n{_shortened(bad)}")
    return passed(f"{len(probes)} dials")


CATALOGUE: Final[tuple[Check[CheckFacts], ...]] = (
    Check(
        "M1",
        "The management cluster's API answers.",
        "The control plane's namespace cannot be checked.",
        "kubectl --kubeconfig FILE -n NAMESPACE get pods,services,secrets",
        _answers(lambda facts: facts.management),
    ),
    Check(
        "M2",
        f"The Service {names.SERVER} publishes addresses that are not ready.",
        "A new server gets no agents until its kube-apiserver is ready, and kube-apiserver may wait for them.",
        f"set spec.publishNotReadyAddresses: true on Service {names.SERVER}; umbilical hosted render writes it so",
        _with(lambda facts: facts.management, _publishes_not_ready),
    ),
    Check(
        "M3",
        f"Agents from anywhere may reach TCP {names.AGENT_PORT} of the servers' pods.",
        "A network that enforces policies drops connections of agents outside, without an error.",
        "apply the NetworkPolicy konnectivity-agents that umbilical hosted render writes",
        _with(lambda facts: facts.management, _policies),
    ),
    Check(
        "M4",
        "The control-plane agent runs and has no empty identifier.",
        "Aggregated APIs of the control plane are unreachable: their traffic goes to the nodes.",
        f"kubectl -n NAMESPACE describe deployment {names.AGENT}; render again once the Services have addresses",
        _with(lambda facts: facts.management, _control_plane_agent),
    ),
    Check(
        "H1",
        "The hosted cluster's API answers.",
        "Nodes and agents cannot be checked.",
        "kubectl --kubeconfig FILE get nodes",
        _answers(lambda facts: facts.hosted),
    ),
    Check(
        "H2",
        "A ready agent runs on every node.",
        "A node without one is reached only by agents of other nodes, or not at all if networks differ.",
        f"kubectl -n {names.HOSTED_NAMESPACE} get pods -l app={names.AGENT} -o wide, and their logs",
        _with(lambda facts: facts.hosted, _daemon_set),
    ),
    Check(
        "C1",
        f"Certificates are valid for at least {SHORT.days} more days.",
        "After they expire, every new connection fails.",
        "renew them with umbilical hosted render --pki DIR, then umbilical hosted apply",
        _with(lambda facts: facts.certificates, _valid),
    ),
    Check(
        "C2",
        "Each certificate is signed by a CA that its peer trusts.",
        "After a change of the CA, old certificates are refused at the next connection.",
        "sign them again with umbilical hosted render --pki DIR, then umbilical hosted apply",
        _with(lambda facts: facts.certificates, _issuers),
    ),
    Check(
        "C3",
        "The frontend refuses an agent's certificate.",
        "Agents' keys are in the hosted cluster: anybody who reads one could reach everything that agents can.",
        "give the frontend its own client CA: pki.signers: separate in the spec of umbilical hosted render",
        _with(lambda facts: facts.intruder, _intruder),
    ),
    Check(
        "S1",
        "Every server answers.",
        "A kube-apiserver whose server does not run reaches no node.",
        f"kubectl -n NAMESPACE logs POD -c {names.SERVER}",
        _with(lambda facts: facts.health, _health),
    ),
    Check(
        "S2",
        "Every server has agents.",
        "A server without agents refuses every dial, even if other servers have agents.",
        "read the agents' logs; check that the address that they dial leads to all servers",
        _with(lambda facts: facts.health, _agents),
    ),
    Check(
        "S3",
        "Every server has an agent for every node.",
        "Lost connections are not opened again until the agents restart.",
        "run agents with --sync-forever, and restart those that are not connected",
        _with(lambda facts: facts.health, _agents_per_node),
    ),
    Check(
        "T1",
        "Every node's kubelet is reached through every server.",
        "Logs, exec and port-forward fail for those nodes; only sometimes if one of several servers is the cause.",
        "umbilical ping NODE:10250 -n NAMESPACE shows the hop that fails",
        _with(lambda facts: facts.kubelets, _probes),
    ),
    Check(
        "T2",
        "The control-plane agent's identifiers are reached through every server.",
        "Aggregated APIs answer 503, and many kubectl commands fail.",
        "umbilical ping ADDRESS:443 -n NAMESPACE shows which agent gets the dial",
        _with(lambda facts: facts.control_plane, _probes),
    ),
    Check(
        "T3",
        "Logs of pods on every node can be read through kube-apiserver.",
        "Users notice this first when the tunnel is broken.",
        f"kubectl -n {names.HOSTED_NAMESPACE} logs POD; then umbilical ping NODE:10250",
        _with(lambda facts: facts.hosted, _logs),
    ),
    Check(
        "P1",
        "Every proxy is ready.",
        "Components that use it reach neither webhooks nor identity providers.",
        "read the proxy's log; its /readyz reports what is missing",
        _with(lambda facts: facts.proxies, _health),
    ),
)
