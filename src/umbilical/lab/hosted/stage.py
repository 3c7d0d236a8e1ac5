"""The testbed of the hosted scenario: starts, stops and observes the parts of a hosted control plane.

A wait that times out reports what was observed instead, and so names the failing part.
"""

import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from umbilical.fault import LabError
from umbilical.host.waiting import NotYet, Seen
from umbilical.hosted.objects import names
from umbilical.lab import nft
from umbilical.lab.hosted import parts
from umbilical.lab.hosted.parts import CLIENT_NODE, DNS_NODE, SERVER_NODES, HostedPart, HostedParts
from umbilical.lab.hosted.topology import front_address
from umbilical.lab.kubernetes_testbed import KubernetesTestbed
from umbilical.lab.proxy_client import ProxyRoute
from umbilical.lab.testbed import AGENTS_SECONDS, BOOTSTRAP, SERVER_SECONDS, listeners_on
from umbilical.lab.through_proxies import ProxiedCall, read_calls, write_routes

SERVER: Final = "server"
AGENT_NAME: Final = "agent"
DNS: Final = "dns"
CALLS: Final = "calls"
FRONT: Final = "front"
HOSTS: Final = "/etc/hosts"
LEAVE_SECONDS: Final = 60.0
REMEDY: Final = "umbilical lab run --keep hosted, then read the logs of servers, agents and proxies"
# Prints the monotonic time before the signal; all processes of a machine share that clock.
_SIGNAL: Final = "import os,sys,time; print(time.monotonic()); os.kill(int(sys.argv[1]), int(sys.argv[2]))"
_SAMPLE: Final = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class HostedProgram:
    """A program that the scenario started, and the port of its metrics."""

    node: str
    name: str
    metrics_port: int

    @property
    def title(self) -> str:
        return f"the {self.name} on {self.node}"


SOCKS: Final = HostedProgram(CLIENT_NODE, "socks5", parts.SOCKS_HEALTH_PORT)
HTTPS: Final = HostedProgram(CLIENT_NODE, "https", parts.HTTPS_HEALTH_PORT)
SERVERS: Final = {node: HostedProgram(node, SERVER, names.ADMIN_PORT) for node in SERVER_NODES}


class HostedStage:
    def __init__(
        self, testbed: KubernetesTestbed, made: HostedParts | None = None, servers: Sequence[str] = SERVER_NODES
    ) -> None:
        self.testbed = testbed
        self.lab = testbed.lab
        self.transcript = testbed.transcript
        self.topology = testbed.lab.topology
        self.parts = made or parts.make_parts(self.topology, datetime.now(UTC))
        self.servers = tuple(servers)

    def start(self, node: str, name: str, part: HostedPart) -> None:
        self.lab.write_all(node, part.files)
        self.lab.start(node, name, part.command)

    def start_servers(self) -> None:
        for node in self.servers:
            self.start(node, SERVER, self.parts.server)
        for node in self.servers:
            self.testbed.wait(f"the server on {node}", partial(self._look_at_port, node), SERVER_SECONDS)

    def start_node_agents(self) -> None:
        for member in self.topology.members:
            self.name_servers(member.name, parts.PUBLISHED)
        self.testbed.apply(*self.parts.agent_objects)

    def start_control_plane_agent(self) -> None:
        self.name_servers(CLIENT_NODE, names.SERVER)
        self.start(CLIENT_NODE, AGENT_NAME, self.parts.control_plane_agent)

    def name_servers(self, node: str, name: str) -> None:
        """Give the servers a name on a node, in place of DNS."""
        for server in self.servers:
            self._add_host(node, self.topology.node(server).address, name)

    def start_proxies(self, service_address: str) -> str:
        """Start both proxies with different first servers; return a note on their name resolution."""
        self.lab.write_all(CLIENT_NODE, self.parts.proxy_files)
        words, resolving = self._start_dns(service_address)
        first, second, third = (self.topology.node(node).address for node in self.servers)
        for program, port, servers in (
            (HTTPS, parts.HTTPS_PORT, (first, second, third)),
            (SOCKS, parts.SOCKS_PORT, (second, third, first)),
        ):
            command = parts.proxy_command(program.name, port, program.metrics_port, servers, resolving)
            self.lab.start(program.node, program.name, command)
        for program in (HTTPS, SOCKS):
            self.testbed.wait(program.title, partial(self._look_ready, program), SERVER_SECONDS)
        return words

    def _start_dns(self, service_address: str) -> tuple[str, list[str]]:
        address = self.topology.node(DNS_NODE).address
        if shutil.which("dnsmasq", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
            for member in self.topology.members:
                self._add_host(member.name, service_address, parts.SERVICE_NAME)
            return "dnsmasq is not installed: agents resolve names with their nodes' /etc/hosts", ["--resolve", "agent"]
        command = parts.dns_command(address, {parts.SERVICE_NAME: service_address})
        self.lab.start(DNS_NODE, DNS, command)
        self.wait("the cluster's DNS", self._look_at_dns)
        words = f"dnsmasq on {DNS_NODE} ({address}) is the cluster's DNS, queried through the tunnel"
        return words, ["--resolve", "guest", "--guest-dns", address]

    def _look_at_dns(self) -> None:
        if not listeners_on(self.lab, DNS_NODE, parts.DNS_PORT):
            raise NotYet(f"it does not listen; last log line: {self._last_log_line(DNS_NODE, DNS)}")

    def lead_kube_apiserver(self, servers: Sequence[str]) -> None:
        """Act as the Service of the servers: send new connections of kube-apiserver to these."""
        front = front_address(self.topology)
        targets = [self.topology.node(server).addresses[0].ip for server in servers]
        self.lab.add_rules(BOOTSTRAP, FRONT, nft.spread(front, names.FRONTEND_PORT, targets))
        self._add_host(BOOTSTRAP, str(front), names.SERVER_LOCAL)

    def _add_host(self, node: str, address: str, name: str) -> None:
        line, known = f"{address} {name}", self.lab.read(node, HOSTS).decode()
        if line not in known.splitlines():
            self.lab.write(node, HOSTS, f"{known.rstrip()}\n{line}\n".encode(), 0o644)

    def wait_for_agents(self, nodes: Sequence[str], servers: int = 0) -> None:
        """Wait until each of these agents is connected to this many servers; 0: to all."""
        wanted = servers or len(self.servers)

        def look() -> None:
            held = {node: self._servers_of(node) for node in nodes}
            if set(held.values()) != {wanted}:
                raise NotYet(", ".join(f"{node}'s agent has {count} servers" for node, count in held.items()))

        self.testbed.wait(f"every agent to have {wanted} servers", look, AGENTS_SECONDS)

    def metric(self, program: HostedProgram, name: str, *labels: str) -> float:
        """Sum a metric's samples whose labels contain all these texts. Raises NotYet: no answer."""
        text = self.testbed.fetch(program.node, f"http://127.0.0.1:{program.metrics_port}/metrics")
        if text is None:
            raise NotYet(f"{program.title} does not serve its metrics")
        samples = [one for one in _SAMPLE.finditer(text) if one["name"] == name]
        return sum(float(one["value"]) for one in samples if all(label in (one["labels"] or "") for label in labels))

    def open_tunnels(self, node: str) -> int:
        return int(self.metric(SERVERS[node], "konnectivity_network_proxy_server_established_connections"))

    def signal(self, node: str, name: str, number: int) -> float:
        """Send a signal; return the time just before."""
        pid = self.lab.process(node, name).pid
        done = self.lab.exec(node, [sys.executable, "-c", _SIGNAL, str(pid), str(number)]).check()
        return float(done.text)

    def wait_until_gone(self, node: str, name: str) -> int:
        """Wait until a program exits; return its exit code."""

        def look() -> int:
            code = self.lab.process(node, name).exit_code
            if code is None:
                raise NotYet(f"the {name} on {node} still runs")
            return code

        return self.testbed.wait(f"the {name} on {node} to leave", look, LEAVE_SECONDS)

    def _servers_of(self, node: str) -> int:
        text = self.testbed.fetch(node, f"http://127.0.0.1:{names.HEALTH_PORT}/metrics") or ""
        gauge = "konnectivity_network_proxy_agent_open_server_connections"
        return int(sum(float(one["value"]) for one in _SAMPLE.finditer(text) if one["name"] == gauge))

    def _look_at_port(self, node: str) -> None:
        if self.testbed.fetch(node, f"http://127.0.0.1:{names.HEALTH_PORT}/healthz") is None:
            raise NotYet("its health port does not answer")

    def _look_ready(self, program: HostedProgram) -> None:
        if self.testbed.fetch(program.node, f"http://127.0.0.1:{program.metrics_port}/readyz") is None:
            raise NotYet(f"it is not ready; last log line: {self._last_log_line(program.node, program.name)}")

    def _last_log_line(self, node: str, name: str) -> str:
        return " ".join(self.lab.log(node, name).strip().splitlines()[-1:]) or "none"

    def start_callers(self, form: str, name: str, ways: Mapping[str, ProxyRoute]) -> None:
        """Start `through_proxies call` or `hold` as a process with this name; it writes to its log."""
        program = [sys.executable, "-m", "umbilical.lab.through_proxies", form, _stop_file(name), write_routes(ways)]
        self.lab.start(CLIENT_NODE, name, program)

    def stop_callers(self, name: str) -> None:
        self.lab.write(CLIENT_NODE, _stop_file(name), b"")
        self.wait_until_gone(CLIENT_NODE, name)

    def calls(self, name: str) -> list[ProxiedCall]:
        return read_calls(self.lab.log(CLIENT_NODE, name))

    def wait_for_calls(self, name: str, ways: Mapping[str, ProxyRoute], since: float) -> None:
        """Wait until a call that began after `since` was answered on each route."""

        def look() -> None:
            after = [call for call in self.calls(name) if call.began > since]
            missing = [way for way in ways if not any(call.way == way and not call.failure for call in after)]
            if missing:
                failures = [f"{call.way}: {call.failure}" for call in after if call.failure][-1:]
                raise NotYet(f"no call through {', '.join(missing)} was answered; {' '.join(failures)}")

        self.testbed.wait("calls through every way", look, SERVER_SECONDS)

    def wait(self, what: str, look: Callable[[], Seen], seconds: float = SERVER_SECONDS) -> Seen:
        return self.testbed.wait(what, look, seconds)


def _stop_file(name: str) -> str:
    return f"/run/{name}.stop"


def complaint(what: str, why: str) -> LabError:
    return LabError("UMB858", what, why, REMEDY)
