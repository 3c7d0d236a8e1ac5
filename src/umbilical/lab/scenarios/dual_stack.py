"""Both IP families at once: Services, nodes and pods have both, and the tunnel carries calls to addresses of each.

The first worker's own addresses begin with IPv4, the second's with IPv6, which kube-apiserver then dials. The tunnel is
set up twice: agents dial the server over IPv4, then over IPv6.
"""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from umbilical.bootstrap.names import SERVER_NAME
from umbilical.fault import LabError
from umbilical.host.waiting import NotYet
from umbilical.lab import objects
from umbilical.lab.objects import ServiceObjects, service_name
from umbilical.lab.scenarios import kubelet_traffic
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.scenarios.webhook_through_tunnel import remove_tunnel, set_up_tunnel, start_cluster
from umbilical.lab.state import RunnerKind
from umbilical.lab.testbed import BOOTSTRAP, Testbed, WebhookVerdict
from umbilical.lab.topology import Family, LabNodeRole, Node, Topology, plan_topology
from umbilical.lab.transcript import CallResult

if TYPE_CHECKING:
    from umbilical.lab.kubernetes_testbed import KubernetesTestbed

NAME: Final = "dual-stack"
VERSIONS: Final = Family.DUAL.versions
SECONDS: Final = 60.0
_TARGET: Final = re.compile(r"tunnel dial=.* target=(\S+) ")
_PEER: Final = re.compile(r"agent connected .* peer=(\S+)")
_SAY: Final = "import socket; print('run in', socket.gethostname())"


def plan() -> Topology:
    """Return the topology: the last worker's addresses begin with IPv6."""
    topology = plan_topology(masters=1, workers=2, family=Family.DUAL)
    *others, last = topology.nodes
    turned = replace(last, addresses=last.addresses[::-1], pod_networks=last.pod_networks[::-1])
    return replace(topology, nodes=(*others, turned))


def run(testbed: Testbed) -> None:
    from umbilical.lab.kubernetes_testbed import KubernetesTestbed

    assert isinstance(testbed, KubernetesTestbed)
    service = prepare(testbed)
    for version in VERSIONS:
        if testbed.parts is not None:
            remove_tunnel(testbed)
        testbed.change_options(replace(testbed.options, dial_version=version))
        before = len(_peers(testbed))
        set_up_tunnel(testbed)
        show_dials(testbed, _peers(testbed)[before:], version)
        show_calls(testbed, service)
        if testbed.runner.kind is RunnerKind.KUBELET:
            show_kubelets(testbed)


def end(testbed: Testbed) -> None:
    remove_tunnel(testbed)
    with testbed.transcript.step("without the tunnel calls fail as before"):
        _saw(testbed, testbed.wait_for(CallResult.UNREACHABLE, "allow"))


def prepare(testbed: "KubernetesTestbed") -> ServiceObjects:
    """Start everything but the tunnel; show that neither family works without it."""
    start_cluster(testbed)
    transcript = testbed.transcript
    with transcript.step("nodes have addresses of both families"):
        for node in testbed.members:
            transcript.saw(f"{node.name}: {', '.join(_addresses(testbed, node))}")
    with transcript.step("a webhook in a pod, with a Service of each family"):
        where = objects.service_node(testbed.lab.topology)
        made = objects.service_on(where, datetime.now(UTC), VERSIONS)
        # A connection for each call, so that the server logs each as a tunnel.
        service = replace(made, closes_connections=True)
        testbed.apply(*service.objects)
        for version in VERSIONS:
            transcript.saw(
                f"Service {service_name(version)}: {_cluster_ip(testbed, version)} {_endpoint(testbed, version)}"
            )
        transcript.shows(webhook=where)
    for version in VERSIONS:
        with transcript.step(f"without the tunnel the Service of IPv{version} is out of reach"):
            _register(testbed, service, version)
            wanted = f"dial tcp {_target(testbed, version)}: "
            _saw(testbed, testbed.wait("a call", partial(_blocked, testbed, wanted), SECONDS))
    if testbed.runner.kind is RunnerKind.KUBELET:
        with transcript.step("kubelets are not reachable directly"):
            # The bootstrap node is in their network.
            testbed.lab.add_rules(BOOTSTRAP, kubelet_traffic.FIREWALL, kubelet_traffic.firewall())
            for node in _workers(testbed):
                transcript.saw(testbed.wait("a refused call", partial(_refused, testbed, node), SECONDS))
    return service


def show_dials(testbed: "KubernetesTestbed", peers: list[str], version: int) -> None:
    with testbed.transcript.step(f"every agent dialed the server over IPv{version}"):
        over_it = [peer for peer in peers if peer.startswith("[") is (version == 6)]
        if len(over_it) < len(testbed.members) or over_it != peers:
            raise _not_both(f"the server's log has agents from {', '.join(peers) or 'nowhere'}")
        testbed.transcript.saw(f"the server's log: agents from {', '.join(peers)}")


def show_calls(testbed: "KubernetesTestbed", service: ServiceObjects) -> None:
    transcript = testbed.transcript
    for version in VERSIONS:
        with transcript.step(f"through the tunnel kube-apiserver calls the Service of IPv{version}"):
            _register(testbed, service, version)
            target = _target(testbed, version)
            before = _targets(testbed).count(target)
            # Until kube-apiserver has the new configuration, it calls the other Service.
            testbed.wait(f"a call to {target}", partial(_call_to, testbed, target, before), SECONDS)
            for verdict, wanted in (("allow", CallResult.ALLOWED), ("deny", CallResult.DENIED)):
                _saw(testbed, testbed.wait_for(wanted, verdict))
            transcript.saw(_through_tunnel(testbed, target, before + 2))


def show_kubelets(testbed: "KubernetesTestbed") -> None:
    transcript = testbed.transcript
    for node in _workers(testbed):
        with transcript.step(f"kubectl logs and exec reach the kubelet of {node.name}"):
            target = _kubelet(node)
            before = _targets(testbed).count(target)
            pod = testbed.agent_pod(node.name)
            assert pod is not None
            place = (f"--namespace={testbed.tunnel.spec.namespace}", pod.name)
            said = testbed.kubectl("logs", *place, "--tail=1").check().text.strip()
            transcript.saw(f"log of {pod.name}: {said}")
            done = testbed.kubectl("exec", *place, "--", "python3", "-I", "-c", _SAY).check()
            transcript.saw(done.text.strip())
            transcript.saw(_through_tunnel(testbed, target, before))


def _addresses(testbed: "KubernetesTestbed", node: Node) -> list[str]:
    """Return the addresses that kube-apiserver knows, in its order."""
    shown = json.loads(testbed.kubectl("get", "node", node.name, "-o=json").check().text)
    found = [one["address"] for one in shown["status"]["addresses"] if one["type"] == "InternalIP"]
    wanted = [str(one.ip) for one in node.addresses]
    if found != wanted:
        raise _not_both(f"{node.name} has {', '.join(found) or 'no address'}, not {', '.join(wanted)}")
    return found


def _not_both(why: str) -> LabError:
    return LabError("UMB848", "the lab does not use both IP families as planned", why, "umbilical lab run --keep NAME")


def _cluster_ip(testbed: "KubernetesTestbed", version: int) -> str:
    return str(_service(testbed, version)["spec"]["clusterIP"])


def _service(testbed: "KubernetesTestbed", version: int) -> dict[str, Any]:
    command = ("-n", objects.NAMESPACE, "get", "service", service_name(version), "-o=json")
    shown = json.loads(testbed.kubectl(*command).check().text)
    assert isinstance(shown, dict)
    return shown


def _endpoint(testbed: "KubernetesTestbed", version: int) -> str:
    return testbed.wait("an endpoint", lambda: testbed.endpoint(service_name(version)), SECONDS)


def _target(testbed: "KubernetesTestbed", version: int) -> str:
    return f"{_host(_endpoint(testbed, version))}:{objects.PORT}"


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _workers(testbed: "KubernetesTestbed") -> list[Node]:
    return [node for node in testbed.members if node.role is LabNodeRole.WORKER]


def _kubelet(node: Node) -> str:
    """Return where kube-apiserver dials it: at the first of its addresses."""
    return f"{_host(node.address)}:{kubelet_traffic.KUBELET_PORT}"


def _refused(testbed: "KubernetesTestbed", node: Node) -> str:
    said = testbed.kubectl("get", "--raw", f"/api/v1/nodes/{node.name}/proxy/healthz").stderr.decode(errors="replace")
    if f"dial tcp {_kubelet(node)}: connect: connection refused" not in said:
        raise NotYet(said.strip() or "it was answered")
    return " ".join(said.split())


def _call_to(testbed: "KubernetesTestbed", target: str, before: int) -> None:
    said = testbed.call_webhook("deny")
    if _targets(testbed).count(target) <= before:
        raise NotYet(f"the call was {said.call.value}: {said.text}")


def _register(testbed: "KubernetesTestbed", service: ServiceObjects, version: int) -> None:
    families = tuple(sorted(VERSIONS, key=lambda one: one != version))
    testbed.apply(replace(service, families=families).webhook)


def _blocked(testbed: "KubernetesTestbed", wanted: str) -> WebhookVerdict:
    seen = testbed.call_webhook("allow")
    if seen.call is not CallResult.UNREACHABLE or wanted not in seen.text:
        raise NotYet(seen.text)
    return seen


def _through_tunnel(testbed: "KubernetesTestbed", target: str, before: int) -> str:
    """Wait until the server has logged more than so many tunnels to this address."""

    def look() -> str:
        count = _targets(testbed).count(target)
        if count <= before:
            raise NotYet(f"{count} tunnels to {target}")
        return f"the server's log has {count} tunnels to {target}"

    return testbed.wait(f"a tunnel to {target}", look, SECONDS)


def _targets(testbed: "KubernetesTestbed") -> list[str]:
    """Return the destinations of the tunnels that ended, from the server's log."""
    return _TARGET.findall(_log(testbed))


def _peers(testbed: Testbed) -> list[str]:
    return _PEER.findall(_log(testbed))


def _log(testbed: Testbed) -> str:
    """Return what all servers so far have logged."""
    return testbed.runner.logs(testbed.lab, BOOTSTRAP, SERVER_NAME, SERVER_NAME)


def _saw(testbed: Testbed, verdict: WebhookVerdict) -> None:
    testbed.transcript.saw(verdict.text)
    testbed.transcript.shows(call=verdict.call)


SCENARIOS: Final = (
    Scenario(
        NAME,
        "webhooks and, with --runner kubelet, kubelets of both IP families at once; agents dial over each",
        run,
        end,
        family=Family.DUAL,
        plan=plan,
    ),
)
