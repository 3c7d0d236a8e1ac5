"""Three servers, restarted one after the other while kube-apiserver calls a webhook through them.

One kube-apiserver uses HTTPConnect over TCP to one address, and packet filter rules distribute its connections to the
servers, like a Service. (A server on a Unix socket restarts with its kube-apiserver, so there is nothing to show.)
The webhook closes each connection after its answer, so that each call is one dial.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from umbilical.fault import LabError
from umbilical.host.waiting import NotYet
from umbilical.lab import api_calls, nft, objects, several_servers
from umbilical.lab.control_plane import ADMIN_KUBECONFIG
from umbilical.lab.kubernetes_testbed import API_PORT, KubernetesTestbed
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.scenarios.service_scenarios import real
from umbilical.lab.scenarios.webhook_through_tunnel import start_cluster
from umbilical.lab.testbed import AGENTS_SECONDS, BOOTSTRAP, SERVER_SECONDS, Testbed
from umbilical.lab.transcript import CallResult
from umbilical.manifests.control_plane_spec import url

SERVER_NODES: Final = ("master-0", "master-1", "master-2")
SERVER: Final = "server"
AGENT: Final = "agent"
CALLS: Final = "calls"
FRONT: Final = "front"
STOP_FILE: Final = "/run/calls.stop"
LEAVE_SECONDS: Final = 60.0


def run(testbed: Testbed) -> None:
    stage = real(testbed)
    start_cluster(stage)
    show_need(stage)
    _start_servers(stage)
    _start_agents(stage)
    use_servers(stage)
    _restart_all(stage)


def show_need(testbed: KubernetesTestbed) -> None:
    transcript = testbed.transcript
    with transcript.step("a webhook in a pod, failurePolicy Fail"):
        service = replace(objects.make_service(testbed.lab.topology), closes_connections=True)
        testbed.apply_webhook(service)
        transcript.shows(webhook=service.node)
    with transcript.step(f"without the tunnel {testbed.caller} is blocked"):
        transcript.saw(testbed.wait_for(CallResult.UNREACHABLE, "allow").text)
        transcript.shows(call=CallResult.UNREACHABLE)


def _start_servers(testbed: KubernetesTestbed) -> None:
    transcript, lab = testbed.transcript, testbed.lab
    with transcript.step("three servers on three masters publish leases"):
        write_credentials(testbed)
        for member in testbed.members:
            lab.write_all(member.name, _kubeconfig(testbed))
        for node in SERVER_NODES:
            _start_server(testbed, node)
        for line in testbed.wait("three leases", lambda: _leases(testbed, len(SERVER_NODES)), SERVER_SECONDS):
            transcript.saw(line)
        transcript.shows(server=True)
        testbed.save()


def write_credentials(testbed: KubernetesTestbed) -> None:
    """Write the certificates of servers, agents and kube-apiserver."""
    lab = testbed.lab
    credentials = several_servers.make_credentials(lab.topology, SERVER_NODES, datetime.now(UTC))
    for node in SERVER_NODES:
        lab.write_all(node, several_servers.server_files(credentials, node))
    for member in testbed.members:
        lab.write_all(member.name, several_servers.agent_files(credentials))
    lab.write_all(BOOTSTRAP, several_servers.client_files(credentials.authority, credentials.client))


def _start_agents(testbed: KubernetesTestbed) -> None:
    transcript = testbed.transcript
    with transcript.step("agents find the servers by their leases"):
        for member in testbed.members:
            testbed.lab.start(member.name, AGENT, several_servers.agent_command(member.name))
        wait_for_agents(testbed)
        names = tuple(member.name for member in testbed.members)
        transcript.saw(f"connected to {len(SERVER_NODES)} servers each: {', '.join(names)}")
        transcript.shows(agents=names)
        transcript.figures["agents"] = str(len(names))


def _kubeconfig(testbed: KubernetesTestbed) -> dict[str, bytes]:
    local = testbed.lab.read(BOOTSTRAP, ADMIN_KUBECONFIG)
    there = url(testbed.lab.topology.bootstrap.address, API_PORT)
    return {several_servers.KUBECONFIG: several_servers.kubeconfig_for_nodes(local, there)}


def _start_server(testbed: KubernetesTestbed, node: str) -> None:
    testbed.lab.start(node, SERVER, several_servers.server_command(testbed.lab.topology, node))


def _leases(testbed: KubernetesTestbed, count: int) -> list[str]:
    shown = testbed.kubectl(
        "-n", "kube-system", "get", "leases", "-l", "k8s-app=konnectivity-server", "-o=json"
    ).check()
    found = [item["metadata"] for item in json.loads(shown.text)["items"]]
    if len(found) != count:
        raise NotYet(f"{len(found)} leases")
    return [f"{one['name']}: {', '.join((one.get('annotations') or {}).values())}" for one in found]


def wait_for_agents(testbed: KubernetesTestbed) -> None:
    def look() -> None:
        held = {member.name: _servers_of(testbed, member.name) for member in testbed.members}
        if set(held.values()) != {len(SERVER_NODES)}:
            raise NotYet(", ".join(f"{name} has {count} servers" for name, count in held.items()))

    testbed.wait("every agent to connect to every server", look, AGENTS_SECONDS)


def _servers_of(testbed: KubernetesTestbed, node: str) -> int:
    text = testbed.fetch(node, f"http://127.0.0.1:{several_servers.AGENT_HEALTH_PORT}/metrics") or ""
    gauge = "konnectivity_network_proxy_agent_open_server_connections "
    lines = [line for line in text.splitlines() if line.startswith(gauge)]
    return int(float(lines[0].removeprefix(gauge))) if lines else 0


def use_servers(testbed: KubernetesTestbed) -> None:
    transcript = testbed.transcript
    with transcript.step(f"{testbed.caller} uses one address for all three"):
        balance(testbed, SERVER_NODES)
        front = several_servers.front_address(testbed.lab.topology)
        testbed.use_servers(several_servers.egress_file(several_servers.in_url(str(front))))
        transcript.saw(
            f"HTTPConnect to {front}:{several_servers.CLIENT_PORT}, distributed to {', '.join(SERVER_NODES)}"
        )
    with transcript.step("through the tunnel the webhook allows a request"):
        transcript.saw(testbed.wait_for(CallResult.ALLOWED, "allow").text)
        transcript.shows(call=CallResult.ALLOWED)


def balance(testbed: KubernetesTestbed, nodes: tuple[str, ...]) -> None:
    """Distribute new connections to the front address among these servers."""
    topology = testbed.lab.topology
    targets = [topology.node(node).addresses[0].ip for node in nodes]
    rules = nft.spread(several_servers.front_address(topology), several_servers.CLIENT_PORT, targets)
    testbed.lab.add_rules(BOOTSTRAP, FRONT, rules)


def _restart_all(testbed: KubernetesTestbed) -> None:
    transcript = testbed.transcript
    with transcript.step("start calling the webhook continuously"):
        start_calls(testbed)
        for node in SERVER_NODES:
            _wait_for_calls(testbed, node)
    for node in SERVER_NODES:
        with transcript.step(f"restart the server on {node}"):
            _restart(testbed, node)
    with transcript.step("no call has failed"):
        check_calls(testbed)
        for node in SERVER_NODES:
            transcript.saw(f"tunnels through {node}: {_carried(testbed, node)}")


def _restart(testbed: KubernetesTestbed, node: str) -> None:
    balance(testbed, tuple(other for other in SERVER_NODES if other != node))
    ask_to_leave(testbed, node, SERVER)
    code = wait_for_exit(testbed, node, SERVER)
    left = testbed.wait("its lease to go", lambda: _leases(testbed, len(SERVER_NODES) - 1), SERVER_SECONDS)
    testbed.transcript.saw(f"it exited with code {code}; {len(left)} leases are left")
    _start_server(testbed, node)
    wait_for_agents(testbed)
    balance(testbed, SERVER_NODES)
    _wait_for_calls(testbed, node)
    testbed.transcript.saw("the new server has every agent and carries calls again")


def ask_to_leave(testbed: KubernetesTestbed, node: str, name: str) -> None:
    testbed.lab.exec(node, ["kill", "-TERM", str(testbed.lab.process(node, name).pid)]).check()


def wait_for_exit(testbed: KubernetesTestbed, node: str, name: str) -> int:
    def look() -> int:
        code = testbed.lab.process(node, name).exit_code
        if code is None:
            raise NotYet("it is still draining")
        return code

    return testbed.wait(f"the {name} on {node} to exit", look, LEAVE_SECONDS)


def start_calls(testbed: KubernetesTestbed) -> None:
    testbed.lab.start(BOOTSTRAP, CALLS, api_calls.command("until", STOP_FILE))


def check_calls(testbed: KubernetesTestbed) -> None:
    """End the calls. Raises LabError: one failed, or none was made (UMB855)."""
    calls = _end_calls(testbed)
    if calls["failed"] or not calls["allowed"]:
        _complain(testbed, calls)
    transcript = testbed.transcript
    transcript.figures["calls"] = str(calls["allowed"])
    transcript.figures["calls that failed"] = str(calls["failed"])
    transcript.saw(f"{calls['allowed']} calls allowed, 0 failed, slowest {calls['slowest_seconds']:.2f} s")


def _end_calls(testbed: KubernetesTestbed) -> dict[str, Any]:
    testbed.lab.write(BOOTSTRAP, STOP_FILE, b"")

    def look() -> str:
        if testbed.lab.process(BOOTSTRAP, CALLS).exit_code is None:
            raise NotYet("the last call is still running")
        return testbed.lab.log(BOOTSTRAP, CALLS)

    totals: dict[str, Any] = json.loads(testbed.wait("the calls to end", look, LEAVE_SECONDS).splitlines()[-1])
    return totals


def _complain(testbed: KubernetesTestbed, calls: dict[str, Any]) -> None:
    what = f"{calls['failed']} of {calls['failed'] + calls['allowed']} calls failed during the restart"
    why = str(calls["failures"][0]) if calls["failures"] else "no call was made"
    again = f"umbilical lab run --keep {testbed.transcript.title}, then read the logs of servers and agents"
    raise LabError("UMB855", what, why, again)


def _carried(testbed: KubernetesTestbed, node: str) -> int:
    """Count the tunnels in a server's log, which continues over a restart."""
    return testbed.lab.log(node, SERVER).count(" tunnel dial=")


def _wait_for_calls(testbed: KubernetesTestbed, node: str) -> None:
    """Wait until a server carries another call, so that it has load before the next restart."""
    before = _carried(testbed, node)

    def look() -> None:
        if _carried(testbed, node) == before:
            raise NotYet(f"still {before} tunnels")

    testbed.wait(f"a call through {node}", look, SERVER_SECONDS)


SCENARIOS: Final = (
    Scenario(
        "ha",
        "three servers found by leases; each is restarted under load and no call fails",
        run,
        system_programs={"nft": "nftables"},
    ),
)
