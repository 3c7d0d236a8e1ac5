"""Checks of a running tunnel: commands on the bootstrap machine over SSH, agents through the Kubernetes API."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from umbilical.bootstrap import live_facts
from umbilical.bootstrap.live_facts import ClusterAnswers, NodeAnswers, NodePaths, NodePorts
from umbilical.bootstrap.names import STAGES
from umbilical.bootstrap.render.trial_webhook import NAME as TEST_WEBHOOK
from umbilical.checks.check import Check, Finding, Verdict, failed, passed, run_checks, skipped, warned
from umbilical.cluster import objects
from umbilical.fault import ClusterError, HostError
from umbilical.host.commands import CommandRunner
from umbilical.manifests.objects import IpAddress

# With less time left the certificate may expire before the installation ends.
SHORT: Final = timedelta(minutes=30)
NO_NODE: Final = "no bootstrap machine was given: add --ssh-host, or --dir of a Cluster API installation"
NO_API: Final = "no --kubeconfig was given"


@dataclass(frozen=True)
class LiveOptions:
    """How to reach machine and API, and the expected values. Checks of a missing part are skipped, with the reason."""

    runner: CommandRunner | None = None
    kubeconfig: Path | None = None
    namespace: str = "openshift-bootstrap-konnectivity"
    node_ips: tuple[IpAddress, ...] = ()
    """The machine's internal addresses; if empty, the address that the node itself found."""
    ports: NodePorts = field(default_factory=NodePorts)
    agent_health_port: int = 2041
    paths: NodePaths = field(default_factory=NodePaths)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True)
class LiveFacts:
    options: LiveOptions
    node: NodeAnswers | str
    """Or the reason why there are none."""
    cluster: ClusterAnswers | str

    @property
    def agents_dial(self) -> str | None:
        if isinstance(self.cluster, str) or self.cluster.daemon_set is None:
            return None
        return live_facts.server_host(self.cluster.daemon_set)

    @property
    def node_ips(self) -> tuple[IpAddress, ...]:
        if self.options.node_ips or isinstance(self.node, str):
            return self.options.node_ips
        found = live_facts.found_node_ip(self.node.node_ip)
        return () if found is None else (found,)


def live_findings(options: LiveOptions) -> list[Finding]:
    """Query the machine and the API, and run the checks. Changes nothing."""
    return run_checks(CHECKS, LiveFacts(options, _query_node(options), _query_cluster(options)))


def _query_node(options: LiveOptions) -> NodeAnswers | str:
    if options.runner is None:
        return NO_NODE
    try:
        return live_facts.query_node(options.runner, options.paths, options.ports)
    except HostError as fault:
        return fault.brief


def _query_cluster(options: LiveOptions) -> ClusterAnswers | str:
    if options.kubeconfig is None:
        return NO_API
    try:
        return asyncio.run(_cluster_answers(options, options.kubeconfig))
    except ClusterError as fault:
        return fault.brief


async def _cluster_answers(options: LiveOptions, kubeconfig: Path) -> ClusterAnswers:
    from umbilical.cluster.client import make_client

    async with make_client(kubeconfig) as client:
        return await live_facts.query_cluster(client, options.namespace, options.agent_health_port)


def _on_node(check: Callable[[NodeAnswers, LiveFacts], Verdict]) -> Callable[[LiveFacts], Verdict]:
    def checked(facts: LiveFacts) -> Verdict:
        if isinstance(facts.node, str):
            return skipped(NO_NODE if facts.options.runner is None else "the bootstrap machine does not answer")
        return check(facts.node, facts)

    return checked


def _in_cluster(check: Callable[[ClusterAnswers, LiveFacts], Verdict]) -> Callable[[LiveFacts], Verdict]:
    def checked(facts: LiveFacts) -> Verdict:
        if isinstance(facts.cluster, str):
            return skipped(NO_API if facts.options.kubeconfig is None else "the Kubernetes API does not answer")
        if facts.cluster.refusals:
            return skipped(facts.cluster.refusals[0])
        return check(facts.cluster, facts)

    return checked


def _machine_answers(facts: LiveFacts) -> Verdict:
    if facts.options.runner is None:
        return skipped(NO_NODE)
    return failed(facts.node) if isinstance(facts.node, str) else passed()


def _socket(node: NodeAnswers, facts: LiveFacts) -> Verdict:
    kind = node.socket.stdout.strip()
    if kind == "socket":
        return passed(facts.options.paths.socket)
    if kind:
        return failed(f"{facts.options.paths.socket} is a {kind}")
    return failed(live_facts.trouble(node.socket))


def _agent_port(node: NodeAnswers, facts: LiveFacts) -> Verdict:
    port = facts.options.ports.agent
    if not live_facts.could_run(node.listeners):
        return skipped(live_facts.trouble(node.listeners))
    addresses = live_facts.listening_addresses(node.listeners, port)
    if not addresses:
        return failed(f"nothing listens on TCP {port}")
    if all(live_facts.is_loopback(address) for address in addresses):
        return failed(f"TCP {port} listens only on {', '.join(addresses)}: no other machine can reach it")
    return passed(f"TCP {port} on {', '.join(addresses)}")


def _health(node: NodeAnswers, facts: LiveFacts) -> Verdict:
    if not live_facts.could_run(node.health):
        return skipped(live_facts.trouble(node.health))
    if not node.health.succeeded:
        return failed(live_facts.trouble(node.health))
    return passed(f"port {facts.options.ports.health}: {node.health.stdout.strip()}")


def _backends(node: NodeAnswers, facts: LiveFacts) -> Verdict:
    if not live_facts.could_run(node.metrics):
        return skipped(live_facts.trouble(node.metrics))
    if not node.metrics.succeeded:
        return failed(live_facts.trouble(node.metrics))
    count = live_facts.ready_backends(node.metrics)
    if count is None:
        return failed(f"port {facts.options.ports.admin} serves no metric of ready backends: is it another program?")
    return passed(f"{count:g} connected") if count > 0 else failed("no agent is connected")


def _egress_flag(node: NodeAnswers, facts: LiveFacts) -> Verdict:
    if not node.kube_apiserver_config.succeeded:
        return failed(live_facts.trouble(node.kube_apiserver_config))
    path = live_facts.egress_file(node.kube_apiserver_config)
    if path is None:
        return failed(f"no egress-selector-config-file in {facts.options.paths.kube_apiserver_config}")
    return passed(path)


def _certificate_name(node: NodeAnswers, facts: LiveFacts) -> Verdict:
    found = live_facts.server_certificate(node.certificate)
    if found is None:
        return failed(live_facts.trouble(node.certificate))
    names = ", ".join(str(address) for address in found.addresses) or "no address"
    # Agents compare the certificate with the address they dial; before they exist, with the node's address.
    wanted = [facts.agents_dial] if facts.agents_dial else [str(address) for address in facts.node_ips]
    if not wanted:
        return skipped(f"it names {names}; the machine's own address is not known: add --dir or --kubeconfig")
    if {str(address) for address in found.addresses} & set(wanted):
        return passed(names)
    return failed(f"it names {names}, but agents dial {', '.join(wanted)}")


def _certificate_time(node: NodeAnswers, facts: LiveFacts) -> Verdict:
    found = live_facts.server_certificate(node.certificate)
    if found is None:
        return failed(live_facts.trouble(node.certificate))
    left = found.ends - facts.options.now
    shown = f"{found.ends:%Y-%m-%d %H:%M} UTC"
    if left <= timedelta(0):
        return failed(f"expired at {shown}")
    return warned(f"expires soon, at {shown}") if left < SHORT else passed(f"until {shown}")


def _container(node: NodeAnswers, facts: LiveFacts) -> Verdict:
    if not live_facts.could_run(node.containers):
        return skipped(live_facts.trouble(node.containers))
    count = live_facts.running_containers(node.containers)
    if count is None:
        return failed(live_facts.trouble(node.containers))
    return passed(f"{count} running") if count else failed("crictl lists no running konnectivity-server")


def _stages(node: NodeAnswers, facts: LiveFacts) -> Verdict:
    results = live_facts.stage_results(node.service_record, STAGES)
    if results is None:
        return skipped(f"no service record: {live_facts.trouble(node.service_record)}")
    bad = [f"{stage}: {result}" for stage, result in results.items() if result.startswith("failure")]
    if bad:
        return failed("; ".join(bad))
    return passed(", ".join(results)) if results else warned("no bootkube step of the tunnel has run so far")


def _api_answers(facts: LiveFacts) -> Verdict:
    if facts.options.kubeconfig is None:
        return skipped(NO_API)
    if isinstance(facts.cluster, str):
        return failed(facts.cluster)
    return warned(facts.cluster.refusals[0]) if facts.cluster.refusals else passed()


def _agents_run(cluster: ClusterAnswers, facts: LiveFacts) -> Verdict:
    if cluster.daemon_set is None:
        return failed(f"no DaemonSet konnectivity-agent in {facts.options.namespace}")
    desired = objects.field(cluster.daemon_set, "status", "desiredNumberScheduled") or 0
    ready = objects.field(cluster.daemon_set, "status", "numberReady") or 0
    trouble = live_facts.pods_in_trouble(cluster.pods)
    shown = f"{ready} of {desired} ready" + (f": {', '.join(trouble[:5])}" if trouble else "")
    if desired and not cluster.pods:
        return failed(f"{shown}; no pod was created: an SCC or Pod Security rejects them")
    return passed(shown) if ready == desired > 0 else failed(shown)


def _agents_dial(cluster: ClusterAnswers, facts: LiveFacts) -> Verdict:
    if facts.agents_dial is None:
        return skipped("no agents were found")
    if not facts.node_ips:
        return skipped(f"agents dial {facts.agents_dial}; the machine's own address is not known: add --dir")
    known = ", ".join(str(address) for address in facts.node_ips)
    if facts.agents_dial in {str(address) for address in facts.node_ips}:
        return passed(facts.agents_dial)
    return failed(f"agents dial {facts.agents_dial}, but the machine's address is {known}")


def _agents_ready(cluster: ClusterAnswers, facts: LiveFacts) -> Verdict:
    if not cluster.readiness:
        return skipped("no agent pod is running")
    bad = [f"{pod}: {answer}" for pod, answer in cluster.readiness.items() if answer != "ok"]
    return failed("; ".join(bad)) if bad else passed(f"{', '.join(cluster.readiness)} through kube-apiserver")


def _test_webhook(cluster: ClusterAnswers, facts: LiveFacts) -> Verdict:
    if not cluster.webhook:
        return skipped("there is no test webhook: umbilical bootstrap render --test-webhook IMAGE --out DIR")
    shown = "; ".join(f"{asked}: {answer}" for asked, answer in cluster.webhook.items())
    return passed(shown) if cluster.webhook == {"allow": "allowed", "deny": "denied"} else failed(shown)


_LOG: Final = "crictl logs $(crictl ps -aq --name konnectivity-server | head -1)"

CHECKS: Final[tuple[Check[LiveFacts], ...]] = (
    Check(
        "L1",
        "the bootstrap machine answers over SSH",
        "Without SSH nothing on the machine can be checked.",
        "Test it by hand: ssh -v core@ADDRESS.",
        _machine_answers,
    ),
    Check(
        "L2",
        "the server's socket exists",
        "kube-apiserver cannot open the tunnel: every webhook in a pod fails.",
        f"Read the server's log: {_LOG}.",
        _on_node(_socket),
    ),
    Check(
        "L3",
        "the server listens for agents on an address that other machines can reach",
        "No agent can connect.",
        "List the listeners: ss -ltnp; read the server's log.",
        _on_node(_agent_port),
    ),
    Check("L4", "the server is healthy", "It hangs or did not start.", f"Read its log: {_LOG}.", _on_node(_health)),
    Check(
        "L5",
        "an agent is connected",
        "kube-apiserver gets 'No agent available'. Upstream's /readyz does not show this: it counts only agents of "
        "the first strategy, and these agents do not match destHost.",
        "From a node: umbilical firewall check ADDRESS; then read an agent's log.",
        _on_node(_backends),
    ),
    Check(
        "L6",
        "kube-apiserver is configured to use the tunnel",
        "kube-apiserver dials pods directly, without a route to them.",
        "The operator's render command lacks --config-override-files: umbilical bootstrap verify FILE.",
        _on_node(_egress_flag),
    ),
    Check(
        "L7",
        "the server's certificate names the address that agents dial",
        "Every agent refuses the server (x509).",
        "Patch again with --node-ip ADDRESS.",
        _on_node(_certificate_name),
    ),
    Check(
        "L8",
        "the server's certificate has not expired",
        "Every agent refuses the server (x509).",
        "Certificates are valid for one day: start the installation again.",
        _on_node(_certificate_time),
    ),
    Check(
        "L9",
        "the server's container runs",
        "Without the server there is no tunnel.",
        "crictl ps -a --name konnectivity-server; journalctl -u kubelet.",
        _on_node(_container),
    ),
    Check(
        "L10",
        "no bootkube step of the tunnel has failed",
        "bootkube.sh restarts every five seconds and fails at the same step.",
        "journalctl -u bootkube; or umbilical bootstrap analyze LOG_BUNDLE.",
        _on_node(_stages),
    ),
    Check(
        "L11",
        "the Kubernetes API answers",
        "Without the API the agents cannot be checked.",
        "kubectl --kubeconfig FILE get --raw /readyz.",
        _api_answers,
    ),
    Check(
        "L12",
        "an agent is ready on every node",
        "Pods on nodes without an agent may not be reachable; without any agent no pod is.",
        "kubectl -n NAMESPACE describe daemonset konnectivity-agent.",
        _in_cluster(_agents_run),
    ),
    Check(
        "L13",
        "agents dial the bootstrap machine's own address",
        "Agents dial another machine. A later run of bootkube.sh does not update the DaemonSet.",
        "Delete the DaemonSet and create it again, or patch again with --node-ip.",
        _in_cluster(_agents_dial),
    ),
    Check(
        "L14",
        "agents report that they are connected",
        "The agent runs without a server, or kube-apiserver cannot reach it.",
        "kubectl -n NAMESPACE logs daemonset/konnectivity-agent.",
        _in_cluster(_agents_ready),
    ),
    Check(
        "L15",
        "the test webhook allows and denies",
        "kube-apiserver does not reach webhooks in pods; with failurePolicy Fail they block requests.",
        f"kubectl -n {TEST_WEBHOOK} describe pods; kubectl -n NAMESPACE logs daemonset/konnectivity-agent.",
        _in_cluster(_test_webhook),
    ),
)
