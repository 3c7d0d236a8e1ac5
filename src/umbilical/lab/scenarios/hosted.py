"""A hosted control plane: its network and the nodes' have no address in common, and a tunnel is all there is between.

One kube-apiserver, since three fit on no small machine, and three servers; packet rules are the Services in front of
them. kube-apiserver knows that one address, the proxies know all servers. What is under way, and through which server,
is known of every call: so the story can tell what a stopped, a renewed and a killed server cost.
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
    service, address = _start_service(stage)
    _show_need(stage, address)
    _set_up_tunnel(stage)
    _use_tunnel(stage)
    _show_aggregated_api(stage)
    _show_proxies(stage, service, address)
    lose_nothing(stage)
    lose_one_server(stage)


def _start_service(stage: HostedStage) -> tuple[objects.ServiceObjects, str]:
    transcript = stage.transcript
    with transcript.step("a webhook in a pod, failurePolicy Fail"):
        service = replace(objects.make_service(stage.topology), closes_connections=True, has_plain_port=True)
        address = stage.testbed.apply_webhook(service)
        transcript.shows(webhook=service.node)
    return service, address


def _show_need(stage: HostedStage, address: str) -> None:
    transcript, testbed, management = stage.transcript, stage.testbed, stage.topology.management
    assert management is not None
    with transcript.step("the control plane's network and the nodes' are apart"):
        nodes = [*stage.topology.machine_networks, *stage.topology.pod_networks, *stage.topology.service_networks]
        transcript.saw(
            f"control plane: {', '.join(map(str, management.networks))}; nodes: {', '.join(map(str, nodes))}"
        )
        url = f"http://{address}:{objects.PLAIN_PORT}/healthz"
        direct = stage.lab.exec(CLIENT_NODE, [sys.executable, "-m", "umbilical.lab.fetch", url])
        if direct.exit_code == 0:
            raise complaint("the networks are not apart", f"{CLIENT_NODE} reached {url} without a tunnel")
        transcript.saw(f"{CLIENT_NODE} to the pod: {direct.stderr.decode(errors='replace').strip()}")
        transcript.saw(testbed.wait_for(CallResult.UNREACHABLE, "allow").text)
        transcript.shows(call=CallResult.UNREACHABLE)


def _set_up_tunnel(stage: HostedStage) -> None:
    transcript = stage.transcript
    with transcript.step("three servers beside the control plane"):
        stage.start_servers()
        transcript.saw(f"{', '.join(SERVER_NODES)}: a CA of its own for clients and for agents, identities bound")
        transcript.shows(server=True)
        stage.testbed.save()
    with transcript.step("agents on every node dial out to the one port that is published"):
        workers = tuple(node.name for node in stage.topology.members)
        stage.start_node_agents()
        stage.wait_for_agents(workers)
        place = f"{parts.PUBLISHED}:{names.AGENT_PORT}"
        transcript.saw(f"{', '.join(workers)} by {place}: each connected to {len(SERVER_NODES)} servers")
        transcript.shows(agents=workers)
        transcript.figures["agents"] = str(len(workers))


def _use_tunnel(stage: HostedStage) -> None:
    transcript, lab, testbed = stage.transcript, stage.lab, stage.testbed
    with transcript.step("kube-apiserver is told to use it: HTTPConnect over mTLS"):
        stage.lead_kube_apiserver(SERVER_NODES)
        pki = stage.parts.pki
        lab.write_all(BOOTSTRAP, client_files(pki.trusted_by(Trust.CLIENTS), pki.leaves[CLIENT.id]))
        testbed.use_servers(egress_file(names.SERVER_LOCAL))
    with transcript.step("through the tunnel the webhook allows and denies"):
        transcript.saw(testbed.wait_for(CallResult.ALLOWED, "allow").text)
        transcript.saw(testbed.wait_for(CallResult.DENIED, "deny").text)
        transcript.shows(call=CallResult.ALLOWED)


def _show_aggregated_api(stage: HostedStage) -> None:
    transcript, testbed = stage.transcript, stage.testbed
    with transcript.step("an aggregated API beside the control plane: no agent on a node reaches it"):
        _start_api(stage)
        testbed.apply(*stage.parts.api_objects)
        transcript.saw(wait_for_availability(testbed, "False", "FailedDiscoveryCheck"))
        _check_callers(stage, ())
    with transcript.step("the control plane's own agent announces its address, and it answers"):
        stage.start_control_plane_agent()
        stage.wait_for_agents((CLIENT_NODE,))
        transcript.saw(wait_for_availability(testbed, "True", "Passed"))
        for line in testbed.wait("greetings", lambda: greetings(testbed), READY_SECONDS):
            transcript.saw(line)
        _check_callers(stage, (stage.topology.node(CLIENT_NODE).address,))


def _start_api(stage: HostedStage) -> None:
    stage.start(API_NODE, API, stage.parts.api.part)
    address = stage.topology.node(API_NODE).address

    def look() -> None:
        if stage.testbed.fetch(API_NODE, f"https://{address}/healthz") is None:
            raise NotYet("it does not answer on its own machine")

    stage.wait("the aggregated API", look)


def _check_callers(stage: HostedStage, wanted: tuple[str, ...]) -> None:
    """See that the API was asked from these addresses and no other."""
    lines = [line for line in stage.lab.log(API_NODE, API).splitlines() if " from " in line]
    seen = {line.partition(" from ")[2].partition(": ")[0].removeprefix("::ffff:") for line in lines}
    if seen != set(wanted):
        why = f"{', '.join(sorted(seen)) or 'nobody'} asked it"
        raise complaint(f"the aggregated API was to be asked by {', '.join(wanted) or 'nobody'}", why)
    stage.transcript.saw(f"it was asked from {', '.join(wanted) or 'nowhere'} alone, {len(lines)} times")


def _show_proxies(stage: HostedStage, service: objects.ServiceObjects, address: str) -> None:
    transcript = stage.transcript
    with transcript.step("both proxies, with names of the cluster's own DNS"):
        stage.lab.write(CLIENT_NODE, parts.SERVICE_AUTHORITY, service.authority)
        transcript.saw(stage.start_proxies(address))
    with transcript.step("curl through either"):
        for title, command in _curls().items():
            done = stage.lab.exec(CLIENT_NODE, command).check()
            transcript.saw(f"{title}: {done.text.strip()}")


def _curls() -> dict[str, list[str]]:
    """A client of its own make for each way, and a name that nobody has."""
    name, quiet = parts.SERVICE_NAME, ["curl", "--silent", "--show-error", "--max-time", "30", "--noproxy", ""]
    trust = ["--cacert", parts.SERVICE_AUTHORITY]
    socks, https = f"127.0.0.1:{parts.SOCKS_PORT}", f"http://127.0.0.1:{parts.HTTPS_PORT}"
    told = ["--output", "/dev/null", "--write-out", "%{http_code} from %{remote_ip}"]
    return {
        "--socks5-hostname": [
            *quiet,
            *told,
            *trust,
            "--socks5-hostname",
            socks,
            f"https://{name}:{objects.PORT}/healthz",
        ],
        "CONNECT": [*quiet, *told, *trust, "--proxy", https, f"https://{name}:{objects.PORT}/healthz"],
        "plain": [*quiet, *told, "--proxy", https, f"http://{name}:{objects.PLAIN_PORT}/healthz"],
        "a name that does not exist": [*quiet, "--proxy", https, f"http://missing.{name}:{objects.PLAIN_PORT}/healthz"],
    }


def end(testbed: Testbed) -> None:
    stage = HostedStage(real(testbed))
    with testbed.transcript.step("all parts leave"):
        _ask_all_to_leave(stage)
        codes = {(node, name): stage.wait_until_gone(node, name) for node, name in _parts(stage)}
        bad = [f"{name} on {node}: {code}" for (node, name), code in codes.items() if code and node != KILLED]
        if bad:
            raise complaint("a part did not leave well", ", ".join(bad))
        testbed.transcript.saw(f"{len(codes)} programs have ended; all that were asked to, with exit code 0")
        testbed.wait("the agents' pods to be gone", lambda: _look_for_agents(stage), GONE_SECONDS)
        testbed.transcript.shows(server=False, agents=())
    with testbed.transcript.step("nothing is left, and without the tunnel it is as before"):
        for each in stage.topology.nodes:
            _check_ports(stage, each.name)
        testbed.transcript.saw(testbed.wait_for(CallResult.UNREACHABLE, "allow").text)
        testbed.transcript.shows(call=CallResult.UNREACHABLE)


def _ask_all_to_leave(stage: HostedStage) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": _removable(stage)}
    stage.testbed.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", "-", stdin=listed).check()
    for node, name in _parts(stage):
        if stage.lab.process(node, name).exit_code is None:
            stage.signal(node, name, signal.SIGTERM)


def _removable(stage: HostedStage) -> list[dict[str, Any]]:
    """All that was applied but the namespace, which was there before and only got labels."""
    found = [*stage.parts.agent_objects, *stage.parts.api_objects]
    return [one for one in found if one["kind"] != "Namespace"]


def _look_for_agents(stage: HostedStage) -> None:
    for node in stage.topology.members:
        if stage.testbed.find_pod(node.name, names.AGENT) is not None:
            raise NotYet(f"there is one on {node.name}")


def _parts(stage: HostedStage) -> list[tuple[str, str]]:
    """In the order in which they leave: clients before what they use."""
    order = (SOCKS.name, HTTPS.name, DNS, AGENT_NAME, SERVER, API)
    rows = {(row.node, row.name) for row in stage.lab.processes()}
    return sorted((row for row in rows if row[1] in order), key=lambda row: order.index(row[1]))


def _check_ports(stage: HostedStage, node: str) -> None:
    ports = (names.FRONTEND_PORT, names.AGENT_PORT, names.HEALTH_PORT, parts.SOCKS_PORT, parts.HTTPS_PORT)
    open_ports = listeners_on(stage.lab, node, *ports)
    if open_ports:
        raise complaint(f"a port is still open on {node}", ", ".join(open_ports))


SCENARIOS: Final = (
    Scenario(
        "hosted",
        "a control plane in a network of its own: three servers, both proxies; one stopped, one renewed, one killed",
        run,
        end,
        runners=(RunnerKind.PROCESS,),
        plan=parts.topology,
        system_programs={"nft": "nftables", "curl": "curl"},
    ),
)
