"""Servers and agents of another version are replaced by ours, one after the other and back, under calls of a webhook.

The other version is upstream's, or an older one of ours: the programs `before-server` and `before-agent` of --bin-dir.
Both have upstream's flags. Upstream's agents know one address, so all agents find the servers behind one, by their
number. Only a program that serves nobody any more is ended, as upstream's agent needs it.
"""

import re
from dataclasses import dataclass
from typing import Final

from umbilical.host.waiting import NotYet
from umbilical.lab import nft, several_servers
from umbilical.lab.binaries import OTHER_VERSION
from umbilical.lab.kubernetes_testbed import KubernetesTestbed
from umbilical.lab.scenarios import ha
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.scenarios.service_scenarios import real
from umbilical.lab.scenarios.webhook_through_tunnel import start_cluster
from umbilical.lab.several_servers import AGENT_HEALTH_PORT, AGENT_PORT, CLIENT_PORT, PLACE, SERVER_HEALTH_PORT
from umbilical.lab.testbed import SERVER_SECONDS, Testbed

METRICS: Final = "konnectivity_network_proxy"
AGENTS_FRONT: Final = "agents_front"


@dataclass(frozen=True)
class Version:
    """The two programs of one version, as nodes call them."""

    name: str
    server: str
    agent: str


BEFORE: Final = Version("the other version", *OTHER_VERSION)
OURS: Final = Version("ours", "proxy-server", "proxy-agent")


def run(testbed: Testbed) -> None:
    stage = real(testbed)
    start_cluster(stage)
    ha.show_need(stage)
    with stage.transcript.step(f"servers and agents of {BEFORE.name}"):
        ha.write_credentials(stage)
        _start_all(stage)
    ha.use_servers(stage)
    with stage.transcript.step("start calling the webhook continuously"):
        ha.start_calls(stage)
        for node in ha.SERVER_NODES:
            _wait_for_dials(stage, node)
    for version in (OURS, BEFORE):
        _replace_all(stage, version)
    with stage.transcript.step("no call has failed"):
        ha.check_calls(stage)


def _start_all(testbed: KubernetesTestbed) -> None:
    topology = testbed.lab.topology
    front = several_servers.front_address(topology)
    targets = [topology.node(node).addresses[0].ip for node in ha.SERVER_NODES]
    for node in ha.SERVER_NODES:
        _start_server(testbed, BEFORE, node)
    for member in testbed.members:
        testbed.lab.add_rules(member.name, AGENTS_FRONT, nft.spread(front, AGENT_PORT, targets))
        _start_agent(testbed, BEFORE, member.name)
    ha.wait_for_agents(testbed)
    testbed.transcript.shows(server=True, agents=tuple(member.name for member in testbed.members))


def _replace_all(testbed: KubernetesTestbed, version: Version) -> None:
    for node in ha.SERVER_NODES:
        with testbed.transcript.step(f"the server on {node} becomes {version.name}"):
            _replace_server(testbed, version, node)
    for member in testbed.members:
        with testbed.transcript.step(f"the agent on {member.name} becomes {version.name}"):
            _replace_agent(testbed, version, member.name)


def _replace_server(testbed: KubernetesTestbed, version: Version, node: str) -> None:
    ha.balance(testbed, tuple(other for other in ha.SERVER_NODES if other != node))
    ha.ask_to_leave(testbed, node, ha.SERVER)
    ha.wait_for_exit(testbed, node, ha.SERVER)
    _start_server(testbed, version, node)
    ha.wait_for_agents(testbed)
    ha.balance(testbed, ha.SERVER_NODES)
    _wait_for_dials(testbed, node)
    testbed.transcript.saw(f"{version.server} has every agent and carries calls")


def _replace_agent(testbed: KubernetesTestbed, version: Version, node: str) -> None:
    """SIGTERM makes both drain. Ours then exits; upstream's does not, and is killed when it serves nobody."""
    ha.ask_to_leave(testbed, node, ha.AGENT)
    if version is OURS:
        testbed.wait(f"the agent on {node} to serve nobody", lambda: _look_for_rest(testbed, node), ha.LEAVE_SECONDS)
        testbed.lab.stop(node, ha.AGENT, kill=True)
    else:
        ha.wait_for_exit(testbed, node, ha.AGENT)
    _start_agent(testbed, version, node)
    ha.wait_for_agents(testbed)
    testbed.transcript.saw(f"{version.agent} has every server")


def _start_server(testbed: KubernetesTestbed, version: Version, node: str) -> None:
    certificate = f"{PLACE}/server.crt"
    command = [
        *(version.server, "--mode=http-connect", f"--server-id={node}", f"--server-count={len(ha.SERVER_NODES)}"),
        *(f"--server-port={CLIENT_PORT}", f"--server-cert={certificate}", f"--server-key={PLACE}/server.key"),
        *(f"--server-ca-cert={PLACE}/ca.crt", f"--agent-port={AGENT_PORT}", f"--health-port={SERVER_HEALTH_PORT}"),
        *(f"--cluster-cert={certificate}", f"--cluster-key={PLACE}/server.key", f"--cluster-ca-cert={PLACE}/ca.crt"),
        f"--graceful-shutdown-timeout={several_servers.GRACE}",
    ]
    testbed.lab.start(node, ha.SERVER, command)


def _start_agent(testbed: KubernetesTestbed, version: Version, node: str) -> None:
    front = several_servers.front_address(testbed.lab.topology)
    command = [
        *(version.agent, f"--agent-id={node}", f"--ca-cert={PLACE}/ca.crt", f"--agent-cert={PLACE}/agent.crt"),
        *(f"--agent-key={PLACE}/agent.key", f"--proxy-server-host={front}", f"--proxy-server-port={AGENT_PORT}"),
        *(f"--health-server-port={AGENT_HEALTH_PORT}", "--sync-interval=500ms", "--sync-interval-cap=2s"),
    ]
    testbed.lab.start(node, ha.AGENT, command)


def _look_for_rest(testbed: KubernetesTestbed, node: str) -> None:
    if testbed.lab.process(node, ha.AGENT).exit_code is not None:
        return
    count = _metric(testbed, node, AGENT_HEALTH_PORT, "agent_open_endpoint_connections")
    if count:
        raise NotYet(f"{count:.0f} tunnels are open")


def _wait_for_dials(testbed: KubernetesTestbed, node: str) -> None:
    def count() -> float:
        return _metric(testbed, node, SERVER_HEALTH_PORT, "server_dial_duration_seconds_count")

    before = count()

    def look() -> None:
        if count() <= before:
            raise NotYet(f"still {before:.0f} dials")

    testbed.wait(f"a call through {node}", look, SERVER_SECONDS)


def _metric(testbed: KubernetesTestbed, node: str, port: int, name: str) -> float:
    """Return the sum over all labels. Raises NotYet: nobody answers there."""
    text = testbed.fetch(node, f"http://127.0.0.1:{port}/metrics")
    if text is None:
        raise NotYet(f"port {port} of {node} does not answer")
    return sum(float(value) for value in re.findall(rf"^{METRICS}_{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


SCENARIOS: Final = (
    Scenario(
        "upgrade",
        "another version becomes ours and back, server by server and agent by agent, and no call fails",
        run,
        programs=OTHER_VERSION,
        system_programs={"nft": "nftables"},
    ),
)
