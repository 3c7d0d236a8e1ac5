"""The checks of a hosted control plane: predicates over facts, which whoever calls has gathered."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, TypeVar

from umbilical.checks.check import Check, Verdict, failed, passed, skipped, warned
from umbilical.cluster import objects
from umbilical.hosted.clusters import container, identifiers
from umbilical.hosted.facts import CertificateFact, Facts, HostedFacts, ManagementFacts, Probe, ServerHealth, Unknown
from umbilical.hosted.network_policy import opens, selecting
from umbilical.hosted.objects import names
from umbilical.pki.validation import is_signed_by

# HyperShift renews with less than this left.
SHORT: Final = timedelta(days=30)
MAX_TOLD: Final = 5
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
    part: Callable[[Facts], Part | Unknown], judge: Callable[[Part, Facts], Verdict]
) -> Callable[[Facts], Verdict]:
    """Judge where there is something to judge; else say why not, which is never a pass."""

    def judged(facts: Facts) -> Verdict:
        found = part(facts)
        return skipped(found.reason) if isinstance(found, Unknown) else judge(found, facts)

    return judged


def _answers(part: Callable[[Facts], object]) -> Callable[[Facts], Verdict]:
    """An API that was named must answer."""

    def judged(facts: Facts) -> Verdict:
        found = part(facts)
        if not isinstance(found, Unknown):
            return passed()
        return failed(found.reason) if found.is_failure else skipped(found.reason)

    return judged


def _told(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - MAX_TOLD} more"] if len(lines) > MAX_TOLD else []
    return "\n".join([*lines[:MAX_TOLD], *more])


def _publishes_not_ready(management: ManagementFacts, _: Facts) -> Verdict:
    service = management.service(names.SERVER)
    if service is None:
        return failed(f"there is no Service {names.SERVER}")
    if objects.field(service, "spec", "publishNotReadyAddresses") is True:
        return passed()
    return failed(f"Service {names.SERVER} has no publishNotReadyAddresses")


def _policies(management: ManagementFacts, _: Facts) -> Verdict:
    if not management.server_pods:
        return skipped(f"there is no pod with a container {names.SERVER}")
    pod = management.server_pods[0]
    closing = selecting(management.policies, objects.metadata(pod).get("labels") or {})
    if not closing:
        return passed("no policy closes it")
    ports = objects.items((container(pod) or {}).get("ports"))
    by_name = {str(port.get("name")): int(port["containerPort"]) for port in ports}
    opening = [objects.metadata(policy).get("name") for policy in closing if opens(policy, names.AGENT_PORT, by_name)]
    if opening:
        return passed(f"by {opening[0]}")
    named = ", ".join(str(objects.metadata(policy).get("name")) for policy in closing)
    return failed(f"{named} close the servers' pods, and none opens TCP {names.AGENT_PORT} to everybody")


def _control_plane_agent(management: ManagementFacts, _: Facts) -> Verdict:
    deployment = management.control_plane_agent
    if deployment is None:
        return skipped(f"there is no Deployment {names.AGENT}: no aggregated API is behind one")
    claimed = identifiers(deployment)
    if not claimed or "" in claimed:
        return failed(f"its identifiers are {claimed or 'none'}: an empty one is chosen for nothing")
    wanted, ready = (objects.field(deployment, *path) or 0 for path in (("spec", "replicas"), _READY))
    if not ready:
        return failed(f"none of its {wanted} pods is ready")
    return passed(f"{ready} of {wanted} ready") if ready >= wanted else warned(f"{ready} of {wanted} pods are ready")


_READY: Final = ("status", "readyReplicas")


def _daemon_set(hosted: HostedFacts, _: Facts) -> Verdict:
    if hosted.daemon_set is None:
        return failed(f"there is no DaemonSet {names.HOSTED_NAMESPACE}/{names.AGENT}")
    if not hosted.nodes:
        return skipped("there are no nodes yet")
    with_agent = {objects.field(pod, "spec", "nodeName") for pod in hosted.agent_pods if _is_ready(pod)}
    missing = [node.name for node in hosted.nodes if node.name not in with_agent]
    if not missing:
        return passed(f"{len(hosted.nodes)} of {len(hosted.nodes)} nodes")
    return failed(f"no ready agent on {len(missing)} of {len(hosted.nodes)} nodes:\n{_told(missing)}")


def _is_ready(pod: dict[str, object]) -> bool:
    conditions = objects.items(objects.field(pod, "status", "conditions"))
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _logs(hosted: HostedFacts, _: Facts) -> Verdict:
    if not hosted.logs:
        return failed("no agent's pod runs whose log could be read") if hosted.nodes else skipped("there are no nodes")
    bad = [f"{log.pod} on {log.node}: {log.trouble}" for log in hosted.logs if log.trouble]
    if not bad:
        return passed(f"of {len(hosted.logs)} pods")
    return failed(f"{len(bad)} of {len(hosted.logs)} logs cannot be read:\n{_told(bad)}")


def _valid(certificates: tuple[CertificateFact, ...], facts: Facts) -> Verdict:
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
        return failed(_told(bad + short))
    return warned(_told(short)) if short else passed(f"{len(certificates)} certificates")


def _issuers(certificates: tuple[CertificateFact, ...], _: Facts) -> Verdict:
    known = [fact for fact in certificates if fact.certificate is not None and fact.authorities is not None]
    if not known:
        return skipped(f"no ConfigMap {names.CA_BUNDLE} says who trusts them")
    strangers = [fact.name for fact in known if not _is_trusted(fact)]
    if not strangers:
        return passed(f"{len(known)} certificates")
    return failed(_told([f"{name}: no CA of the side that it is shown to has signed it" for name in strangers]))


def _is_trusted(fact: CertificateFact) -> bool:
    leaf = fact.certificate
    return leaf is not None and any(is_signed_by(leaf, authority) for authority in fact.authorities or ())


def _intruder(probes: tuple[Probe, ...], _: Facts) -> Verdict:
    undecided = [f"{probe.server}: {probe.text}" for probe in probes if probe.subject == "client"]
    let_in = [
        f"{probe.server} lets it in: {probe.text}" for probe in probes if probe.subject == "agent" and not probe.is_ok
    ]
    if let_in:
        return failed(_told(let_in))
    if undecided:
        return skipped(undecided[0])
    return passed(f"by {len(probes)} servers")


def _health(servers: tuple[ServerHealth, ...], _: Facts) -> Verdict:
    bad = [f"{server.name}: {server.trouble}" for server in servers if server.trouble]
    if not servers:
        return failed("there is none")
    return failed(_told(bad)) if bad else passed(f"{len(servers)} of {len(servers)}")


def _agents(servers: tuple[ServerHealth, ...], _: Facts) -> Verdict:
    living = [server for server in servers if not server.trouble]
    if not living:
        return skipped("no server answers")
    alone = [server.name for server in living if not any(server.agents.values())]
    if alone:
        return failed(_told([f"{name}: no agent is connected" for name in alone]))
    return passed(", ".join(f"{server.name}: {server.node_agents}" for server in living))


def _agents_per_node(servers: tuple[ServerHealth, ...], facts: Facts) -> Verdict:
    nodes, living = facts.node_addresses, [server for server in servers if not server.trouble]
    if isinstance(nodes, Unknown):
        return skipped(nodes.reason)
    if not living or not nodes:
        return skipped("no server answers" if nodes else "there are no nodes")
    few = [
        f"{server.name}: {server.node_agents} of {len(nodes)}" for server in living if server.node_agents < len(nodes)
    ]
    if few:
        return failed(_told(few))
    return passed(f"{len(living)} servers, {len(nodes)} nodes")


def _probes(probes: tuple[Probe, ...], _: Facts) -> Verdict:
    bad = [f"{probe.subject} through {probe.server}: {probe.text}" for probe in probes if not probe.is_ok]
    if not probes:
        return skipped("there is nothing to reach")
    if bad:
        return failed(f"{len(bad)} of {len(probes)} dials failed:\n{_told(bad)}")
    return passed(f"{len(probes)} dials")


CATALOGUE: Final[tuple[Check[Facts], ...]] = (
    Check(
        "M1",
        "The management cluster's API answers.",
        "Nothing of the control plane's namespace can be looked at.",
        "kubectl --kubeconfig FILE -n NAMESPACE get pods,services,secrets",
        _answers(lambda facts: facts.management),
    ),
    Check(
        "M2",
        f"The Service {names.SERVER} publishes addresses that are not ready.",
        "A new server gets no agents until its kube-apiserver is ready, which may wait for them.",
        f"set spec.publishNotReadyAddresses: true on Service {names.SERVER}; umbilical hosted render writes it so",
        _with(lambda facts: facts.management, _publishes_not_ready),
    ),
    Check(
        "M3",
        f"Agents from anywhere may reach TCP {names.AGENT_PORT} of the servers' pods.",
        "Where the network enforces policies agents outside are dropped, and nothing says so.",
        "apply the NetworkPolicy konnectivity-agents that umbilical hosted render writes",
        _with(lambda facts: facts.management, _policies),
    ),
    Check(
        "M4",
        "The control-plane agent runs and claims whole identifiers.",
        "Aggregated APIs of the control plane are not reached: their traffic goes to the nodes.",
        f"look at Deployment {names.AGENT}; render again once the Services have addresses",
        _with(lambda facts: facts.management, _control_plane_agent),
    ),
    Check(
        "H1",
        "The hosted cluster's API answers.",
        "Nodes and agents cannot be looked at.",
        "kubectl --kubeconfig FILE get nodes",
        _answers(lambda facts: facts.hosted),
    ),
    Check(
        "H2",
        "A ready agent runs on every node.",
        "A node without one is reached by others' agents alone, or not at all where networks differ.",
        f"kubectl -n {names.HOSTED_NAMESPACE} get pods -l app={names.AGENT} -o wide, and their logs",
        _with(lambda facts: facts.hosted, _daemon_set),
    ),
    Check(
        "C1",
        "Certificates are valid, and for a while yet.",
        "The day they end every connection fails at once.",
        "umbilical hosted render renews them; apply the Secrets again",
        _with(lambda facts: facts.certificates, _valid),
    ),
    Check(
        "C2",
        "Each certificate is signed by a CA that the other side trusts.",
        "After a change of the CA old certificates are refused, and only at the next connection.",
        "umbilical hosted render signs anew what an old CA has signed",
        _with(lambda facts: facts.certificates, _issuers),
    ),
    Check(
        "C3",
        "An agent's certificate is turned away by the frontend.",
        "Agents' keys lie in the hosted cluster: whoever reads one could reach everything that agents can.",
        "give the frontend its own client CA: umbilical hosted render does unless told otherwise",
        _with(lambda facts: facts.intruder, _intruder),
    ),
    Check(
        "S1",
        "Every server answers.",
        "kube-apiserver of a pod whose server is dead reaches no node.",
        f"kubectl logs of the container {names.SERVER}",
        _with(lambda facts: facts.health, _health),
    ),
    Check(
        "S2",
        "Every server has agents.",
        "A server without agents refuses every dial, whatever the others have.",
        "look at the agents' logs; is the address that they dial that of all servers?",
        _with(lambda facts: facts.health, _agents),
    ),
    Check(
        "S3",
        "Every server has an agent for every node.",
        "Tunnels that were lost and not made again stay lost until agents restart, server by server.",
        "run agents with --sync-forever, and restart those that are not connected",
        _with(lambda facts: facts.health, _agents_per_node),
    ),
    Check(
        "T1",
        "Every node's kubelet is reached through every server.",
        "Logs, exec and port-forward fail for those nodes, at every other attempt if one server is to blame.",
        "umbilical ping NODE:10250 names the hop that breaks",
        _with(lambda facts: facts.kubelets, _probes),
    ),
    Check(
        "T2",
        "The control-plane agent's identifiers are reached through every server.",
        "Aggregated APIs answer 503, and with them much of kubectl.",
        "umbilical ping ADDRESS:443 shows which agent takes the dial",
        _with(lambda facts: facts.control_plane, _probes),
    ),
    Check(
        "T3",
        "Logs of pods on every node can be read through kube-apiserver.",
        "It is what users see first when the tunnel is broken.",
        f"kubectl -n {names.HOSTED_NAMESPACE} logs POD; then umbilical ping NODE:10250",
        _with(lambda facts: facts.hosted, _logs),
    ),
    Check(
        "P1",
        "Every proxy is ready.",
        "Components behind it reach neither webhooks nor identity providers.",
        "read the proxy's log; its /readyz says what is missing",
        _with(lambda facts: facts.proxies, _health),
    ),
)
