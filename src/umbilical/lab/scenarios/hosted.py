"""A hosted control plane: its network is separate from the nodes' network, and only the tunnel connects them.

There is one kube-apiserver, to save memory, and three servers behind packet filter rules in place of a Service. The
proxies use all servers directly. Every call is recorded with its times, so that the scenario can show what a stopped,
a renewed and a killed server cost.
"""

import signal
import sys
from dataclasses import replace
from typing import Any, Final

from umbilical.host.waiting import NotYet
from umbilical.hosted.objects import names
from umbilical.hosted.pki.table import CLIENT, Trust
from umbilical.lab import objects
from umbilical.lab.hosted import parts
from umbilical.lab.hosted.parts import API_NODE, CLIENT_NODE, SERVER_NODES
from umbilical.lab.hosted.stage import AGENT_NAME, DNS, HTTPS, SERVER, SOCKS, HostedStage, complaint
from umbilical.lab.kubernetes_testbed import READY_SECONDS
from umbilical.lab.scenarios.hosted_losses import KILLED, lose_nothing, lose_one_server
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.scenarios.service_scenarios import greetings, real, wait_for_availability
from umbilical.lab.scenarios.webhook_through_tunnel import start_cluster
from umbilical.lab.several_servers import client_files, egress_file
from umbilical.lab.state import RunnerKind
from umbilical.lab.testbed import BOOTSTRAP, GONE_SECONDS, Testbed, listeners_on
from umbilical.lab.transcript import CallResult

API: Final = "api"


def run(testbed: Testbed) -> None:
    stage = HostedStage(real(testbed))
    start_cluster(testbed)
    service, address = start_service(stage)
    show_need(stage, address, CLIENT_NODE)
    _set_up_tunnel(stage)
    _use_tunnel(stage)
    _show_aggregated_api(stage)
    _show_proxies(stage, service, address)
    lose_nothing(stage)
    lose_one_server(stage)


def start_service(stage: HostedStage) -> tuple[objects.ServiceObjects, str]:
    transcript = stage.transcript
    with transcript.step("a webhook in a pod, failurePolicy Fail"):
        service = replace(objects.make_service(stage.topology), closes_connections=True, has_plain_port=True)
        address = stage.testbed.apply_webhook(service)
        transcript.shows(webhook=service.node)
    return service, address


def show_need(stage: HostedStage, address: str, node: str) -> None:
    """Show that neither this node nor kube-apiserver reaches the pod."""
    transcript, testbed, management = stage.transcript, stage.testbed, stage.topology.management
    assert management is not None
    with transcript.step("the control plane cannot reach the nodes' network"):
        nodes = [*stage.topology.machine_networks, *stage.topology.pod_networks, *stage.topology.service_networks]
        transcript.saw(
            f"control plane: {', '.join(map(str, management.networks))}; nodes: {', '.join(map(str, nodes))}"
        )
        url = f"http://{address}:{objects.PLAIN_PORT}/healthz"
        direct = stage.lab.exec(node, [sys.executable, "-m", "umbilical.lab.fetch", url])
        if direct.exit_code == 0:
            raise complaint("the networks are not separate", f"{node} reached {url} without a tunnel")
        transcript.saw(f"{node} to the pod: {direct.stderr.decode(errors='replace').strip()}")
        transcript.saw(testbed.wait_for(CallResult.UNREACHABLE, "allow").text)
        transcript.shows(call=CallResult.UNREACHABLE)


def _set_up_tunnel(stage: HostedStage) -> None:
    transcript = stage.transcript
    with transcript.step("start three servers beside the control plane"):
        stage.start_servers()
        transcript.saw(f"{', '.join(SERVER_NODES)}: separate CAs for clients and agents, identities bound")
        transcript.shows(server=True)
        stage.testbed.save()
    with transcript.step("agents on every node connect to the published port"):
        workers = tuple(node.name for node in stage.topology.members)
        stage.start_node_agents()
        stage.wait_for_agents(workers)
        place = f"{parts.PUBLISHED}:{names.AGENT_PORT}"
        transcript.saw(f"{', '.join(workers)}: connected to {len(SERVER_NODES)} servers each, through {place}")
        transcript.shows(agents=workers)
        transcript.figures["agents"] = str(len(workers))


def _use_tunnel(stage: HostedStage) -> None:
    transcript, lab, testbed = stage.transcript, stage.lab, stage.testbed
    with transcript.step("kube-apiserver uses the tunnel: HTTPConnect over mTLS"):
        stage.lead_kube_apiserver(SERVER_NODES)
        pki = stage.parts.pki
        lab.write_all(BOOTSTRAP, client_files(pki.trusted_by(Trust.CLIENTS), pki.leaves[CLIENT.id]))
        testbed.use_servers(egress_file(names.SERVER_LOCAL))
    with transcript.step("through the tunnel the webhook allows and denies requests"):
        transcript.saw(testbed.wait_for(CallResult.ALLOWED, "allow").text)
        transcript.saw(testbed.wait_for(CallResult.DENIED, "deny").text)
        transcript.shows(call=CallResult.ALLOWED)


def _show_aggregated_api(stage: HostedStage) -> None:
    with stage.transcript.step("an aggregated API that no agent on a node can reach"):
        show_unreachable_api(stage, API_NODE)
    with stage.transcript.step("with an agent of the control plane the API is available"):
        stage.start_control_plane_agent()
        show_reachable_api(stage, API_NODE, CLIENT_NODE)


def show_unreachable_api(stage: HostedStage, node: str) -> None:
    _start_api(stage, node)
    stage.testbed.apply(*stage.parts.api_objects)
    stage.transcript.saw(wait_for_availability(stage.testbed, "False", "FailedDiscoveryCheck"))
    _check_callers(stage, node, ())


def show_reachable_api(stage: HostedStage, node: str, agent_node: str) -> None:
    stage.wait_for_agents((agent_node,))
    stage.transcript.saw(wait_for_availability(stage.testbed, "True", "Passed"))
    for line in stage.wait("greetings", lambda: greetings(stage.testbed), READY_SECONDS):
        stage.transcript.saw(line)
    _check_callers(stage, node, (stage.topology.node(agent_node).address,))


def _start_api(stage: HostedStage, node: str) -> None:
    stage.start(node, API, stage.parts.api.part)
    address = stage.topology.node(node).address

    def look() -> None:
        if stage.testbed.fetch(node, f"https://{address}/healthz") is None:
            raise NotYet("it does not answer on its own node")

    stage.wait("the aggregated API", look)


def _check_callers(stage: HostedStage, node: str, wanted: tuple[str, ...]) -> None:
    """Check that the API was called from exactly these addresses."""
    lines = [line for line in stage.lab.log(node, API).splitlines() if " from " in line]
    seen = {line.partition(" from ")[2].partition(": ")[0].removeprefix("::ffff:") for line in lines}
    if seen != set(wanted):
        why = f"it was called from {', '.join(sorted(seen)) or 'nowhere'}"
        raise complaint(f"the aggregated API was not called from {', '.join(wanted) or 'nowhere'} only", why)
    stage.transcript.saw(f"{len(lines)} calls, all from {', '.join(wanted)}" if wanted else "not called")


def _show_proxies(stage: HostedStage, service: objects.ServiceObjects, address: str) -> None:
    transcript = stage.transcript
    with transcript.step("start both proxies, with the cluster's DNS"):
        stage.lab.write(CLIENT_NODE, parts.SERVICE_AUTHORITY, service.authority)
        transcript.saw(stage.start_proxies(address))
    with transcript.step("curl through both proxies"):
        for title, command in _curls().items():
            done = stage.lab.exec(CLIENT_NODE, command).check()
            transcript.saw(f"{title}: {done.text.strip()}")


def _curls() -> dict[str, list[str]]:
    """curl commands: one per kind of proxying, and one with an unknown name."""
    name, quiet = parts.SERVICE_NAME, ["curl", "--silent", "--show-error", "--max-time", "30", "--noproxy", ""]
    trust = ["--cacert", parts.SERVICE_AUTHORITY]
    socks, https = f"127.0.0.1:{parts.SOCKS_PORT}", f"http://127.0.0.1:{parts.HTTPS_PORT}"
    shown = ["--output", "/dev/null", "--write-out", "%{http_code} from %{remote_ip}"]
    return {
        "--socks5-hostname": [
            *quiet,
            *shown,
            *trust,
            "--socks5-hostname",
            socks,
            f"https://{name}:{objects.PORT}/healthz",
        ],
        "CONNECT": [*quiet, *shown, *trust, "--proxy", https, f"https://{name}:{objects.PORT}/healthz"],
        "plain": [*quiet, *shown, "--proxy", https, f"http://{name}:{objects.PLAIN_PORT}/healthz"],
        "a name that does not exist": [*quiet, "--proxy", https, f"http://missing.{name}:{objects.PLAIN_PORT}/healthz"],
    }


def end(testbed: Testbed) -> None:
    stage = HostedStage(real(testbed))
    with testbed.transcript.step("stop all programs"):
        _stop_all(stage)
        codes = {(node, name): stage.wait_until_gone(node, name) for node, name in _parts(stage)}
        bad = [f"{name} on {node}: {code}" for (node, name), code in codes.items() if code and node != KILLED]
        if bad:
            raise complaint("a program did not exit with 0", ", ".join(bad))
        testbed.transcript.saw(f"{len(codes)} programs ended; all that got SIGTERM with exit code 0")
        testbed.wait("the agents' pods to be gone", lambda: _look_for_agents(stage), GONE_SECONDS)
        testbed.transcript.shows(server=False, agents=())
    with testbed.transcript.step("nothing is left, and calls fail as before"):
        for each in stage.topology.nodes:
            _check_ports(stage, each.name)
        testbed.transcript.saw(testbed.wait_for(CallResult.UNREACHABLE, "allow").text)
        testbed.transcript.shows(call=CallResult.UNREACHABLE)


def _stop_all(stage: HostedStage) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": _removable(stage)}
    stage.testbed.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", "-", stdin=listed).check()
    for node, name in _parts(stage):
        if stage.lab.process(node, name).exit_code is None:
            stage.signal(node, name, signal.SIGTERM)


def _removable(stage: HostedStage) -> list[dict[str, Any]]:
    """All applied objects except the namespace, which existed before."""
    found = [*stage.parts.agent_objects, *stage.parts.api_objects]
    return [one for one in found if one["kind"] != "Namespace"]


def _look_for_agents(stage: HostedStage) -> None:
    for node in stage.topology.members:
        if stage.testbed.find_pod(node.name, names.AGENT) is not None:
            raise NotYet(f"one exists on {node.name}")


def _parts(stage: HostedStage) -> list[tuple[str, str]]:
    """Programs in the order in which they stop: clients first."""
    order = (SOCKS.name, HTTPS.name, DNS, AGENT_NAME, SERVER, API)
    rows = {(row.node, row.name) for row in stage.lab.processes()}
    return sorted((row for row in rows if row[1] in order), key=lambda row: order.index(row[1]))


def _check_ports(stage: HostedStage, node: str) -> None:
    ports = (names.FRONTEND_PORT, names.AGENT_PORT, names.HEALTH_PORT, parts.SOCKS_PORT, parts.HTTPS_PORT)
    open_ports = listeners_on(stage.lab, node, *ports)
    if open_ports:
        raise complaint(f"ports are still open on {node}", ", ".join(open_ports))


SCENARIOS: Final = (
    Scenario(
        "hosted",
        "a hosted control plane: three servers, both proxies; one stopped, one renewed, one killed",
        run,
        end,
        runners=(RunnerKind.PROCESS,),
        plan=parts.topology,
        system_programs={"nft": "nftables", "curl": "curl"},
    ),
)
