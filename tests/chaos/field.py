"""The field of the storm: servers, agents, endpoints and clients on the nodes of a lab.

Three servers on nodes of their own, each with clients beside it on its Unix socket; three agents on three other nodes,
each of which knows all servers; an endpoint at the pods' side of every agent's node, where only agents get to. One
server is asked in gRPC, as kube-apiserver does, the others by HTTP CONNECT.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.chaos.ledger import Passage, Visit, read_passages, read_visits
from tests.chaos.traffic import KIB, Orders
from tests.support.labs import wait_until
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

from umbilical.lab.lab import Lab, UpRequest, up
from umbilical.lab.topology import Node, Topology, plan_topology

ROOT: Final = Path(__file__).resolve().parent.parent.parent
# Clients and endpoints are programs of the tests, which no node knows of: they are written onto its disk.
PROGRAMS: Final = (
    *(f"tests/chaos/{name}.py" for name in ("pattern", "ledger", "endpoint", "traffic")),
    *(f"tests/support/{name}.py" for name in ("tunnel_client", "grpc_channel", "packet_messages")),
)
PROGRAMS_PLACE: Final = "/opt/storm"
SERVER_NODES: Final = ("bootstrap", "master-0", "master-1")
AGENT_NODES: Final = ("worker-0", "worker-1", "worker-2")
MODES: Final = ("http-connect", "http-connect", "grpc")
AGENT_PORT, ENDPOINT_PORT, SERVER_ADMIN, AGENT_HEALTH = 8091, 8443, 8095, 8093
PLACE: Final = "/run/storm"
SOCKET: Final = f"{PLACE}/frontend.sock"
# Silence, and then this long for an answer: short enough for a storm of a minute, long enough for a machine whose
# processes starve for seconds.
KEEPALIVE_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 6.0
SILENCE_SECONDS: Final = KEEPALIVE_SECONDS + ANSWER_SECONDS
"""After this long a peer that says nothing is taken for dead."""
LOG_TAIL: Final = 3000
WHOLE_SECONDS: Final = 60.0
LARGEST_BYTES: Final = {"http-connect": 2048 * KIB, "grpc": 512 * KIB}


@dataclass(frozen=True)
class Part:
    """A program of the field, and the node that it runs on."""

    name: str
    node: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Figures:
    """What a process holds."""

    open_files: int
    resident_kib: int


class Field:
    def __init__(self, lab: Lab, pki: TunnelPki, seed: int) -> None:
        self.lab = lab
        self.seed = seed
        self._pki = pki
        self.servers = [self._server(number) for number in range(len(SERVER_NODES))]
        self.agents = [self._agent(node) for node in AGENT_NODES]
        self.endpoints = [self._endpoint(node) for node in AGENT_NODES]
        self._campaigns = 0

    @property
    def topology(self) -> Topology:
        return self.lab.topology

    def start(self) -> None:
        for node in (*SERVER_NODES, *AGENT_NODES):
            self._furnish(node)
        for part in (*self.servers, *self.endpoints, *self.agents):
            self.start_part(part)
        wait_until(self.is_whole, WHOLE_SECONDS)

    def start_part(self, part: Part) -> None:
        paths = os.pathsep.join((PROGRAMS_PLACE, *filter(None, [os.environ.get("PYTHONPATH")])))
        self.lab.start(part.node, part.name, part.command, environment={"PYTHONPATH": paths})

    def kill(self, part: Part) -> None:
        self.lab.stop(part.node, part.name, kill=True)

    def signal(self, part: Part, number: str) -> None:
        self.lab.exec(part.node, ["kill", f"-{number}", str(self._pid(part))]).check()

    def figures(self, part: Part) -> Figures:
        pid = self._pid(part)
        script = f"ls /proc/{pid}/fd | wc -l; grep VmRSS /proc/{pid}/status"
        files, _, resident, _ = self.lab.exec(part.node, ["sh", "-c", script]).check().text.split()
        return Figures(int(files), int(resident))

    def is_running(self, part: Part) -> bool:
        return any(self._is(part, status.node, status.name, status.exit_code) for status in self.lab.processes())

    def callers(self) -> dict[str, str]:
        """Say which agent an endpoint sees behind an address: its node's own, or the node's on its pods' network."""
        nodes = {part.name: self.topology.node(part.node) for part in self.agents}
        by_node = {node.address: name for name, node in nodes.items()}
        return by_node | {str(gateway.ip): name for name, node in nodes.items() for gateway in node.pod_gateways}

    def is_whole(self) -> bool:
        """Whether every agent has every server, and every server every agent, once."""
        servers = all(self._metric(part, "ready_backend_connections") == len(self.agents) for part in self.servers)
        return servers and all(
            self._metric(part, "open_server_connections") == len(self.servers) for part in self.agents
        )

    def is_empty(self) -> bool:
        """Whether no tunnel and no dial is left anywhere."""
        names = ("established_connections", "pending_backend_dials")
        servers = all(self._metric(part, name) == 0 for part in self.servers for name in names)
        return servers and all(self._metric(part, "open_endpoint_connections") == 0 for part in self.agents)

    def _metric(self, part: Part, name: str) -> float:
        """Read a gauge; one that was never used is not shown and counts as 0, a silent process as -1."""
        is_server = part in self.servers
        port = SERVER_ADMIN if is_server else AGENT_HEALTH
        command = ["curl", "--silent", "--max-time", "5", f"http://127.0.0.1:{port}/metrics"]
        completed = self.lab.exec(part.node, command)
        if completed.exit_code:
            return -1.0
        full = f"konnectivity_network_proxy_{'server' if is_server else 'agent'}_{name} "
        lines = [line for line in completed.text.splitlines() if line.startswith(full)]
        return float(lines[0].removeprefix(full)) if lines else 0.0

    @contextmanager
    def traffic(self, workers: int) -> Iterator[None]:
        """Run clients beside every server while the block runs, and let them end their last tunnels."""
        clients = [self._client(orders) for orders in self._campaign(workers)]
        for client in clients:
            self.start_part(client)
        try:
            yield
        finally:
            for client in clients:
                self.lab.write(client.node, _stop_file(client.name), b"")
        wait_until(lambda: not any(map(self.is_running, clients)), WHOLE_SECONDS)

    def pass_tunnels(self, workers: int, each: int) -> None:
        """Open so many tunnels through every server, and return when they are over."""
        campaign = [replace(orders, most_tunnels=each, steady_workers=0) for orders in self._campaign(workers)]
        clients = [self._client(orders) for orders in campaign]
        for client in clients:
            self.start_part(client)
        wait_until(lambda: not any(map(self.is_running, clients)), WHOLE_SECONDS)

    def passages(self) -> list[Passage]:
        return [row for node in SERVER_NODES for row in read_passages(self._text(node, "passages.jsonl"))]

    def visits(self) -> list[Visit]:
        return [row for node in AGENT_NODES for row in read_visits(self._text(node, "visits.jsonl"))]

    def _text(self, node: str, name: str) -> str:
        path = f"{PLACE}/{name}"
        return self.lab.read(node, path).decode() if self.lab.exists(node, path) else ""

    def _campaign(self, workers: int) -> list[Orders]:
        self._campaigns += 1
        return [self._orders(number, workers) for number in range(len(self.servers))]

    def _orders(self, number: int, workers: int) -> Orders:
        return Orders(
            server=self.servers[number].name,
            mode=MODES[number],
            socket_path=SOCKET,
            endpoints={part.name: f"{_pod_side(self.topology.node(part.node))}" for part in self.endpoints},
            ledger=f"{PLACE}/passages.jsonl",
            stop_file=_stop_file(_client_name(self._campaigns)),
            seed=self.seed,
            first_tunnel=(self._campaigns * 100 + number) << 32,
            workers=workers,
            steady_workers=workers // 2,
            largest_bytes=LARGEST_BYTES[MODES[number]],
        )

    def _client(self, orders: Orders) -> Part:
        node = next(part.node for part in self.servers if part.name == orders.server)
        command = (sys.executable, "-m", "tests.chaos.traffic", orders.to_json())
        return Part(_client_name(self._campaigns), node, command)

    def _furnish(self, node: str) -> None:
        pki = self._pki
        files = {"ca.crt": pki.authority.certificate_file}
        for name, pair in (("server", pki.server), ("agent", pki.agent)):
            files |= {f"{name}.crt": pair.certificate, f"{name}.key": pair.key}
        for name, path in files.items():
            self.lab.write(node, f"{PLACE}/{name}", path.read_bytes())
        for program in PROGRAMS:
            self.lab.write(node, f"{PROGRAMS_PLACE}/{program}", (ROOT / program).read_bytes())

    def _server(self, number: int) -> Part:
        command = (
            *("umbilical", "server", "run", "--id", f"server-{number}", "--mode", MODES[number]),
            *("--listen", f"unix:{SOCKET}", "--agents", f":{AGENT_PORT}", "--admin", f"127.0.0.1:{SERVER_ADMIN}"),
            *("--agent-cert", f"{PLACE}/server.crt", "--agent-key", f"{PLACE}/server.key"),
            *("--agent-ca", f"{PLACE}/ca.crt", "--count", str(len(SERVER_NODES)), *_keepalive()),
        )
        return Part(f"server-{number}", SERVER_NODES[number], command)

    def _agent(self, node: str) -> Part:
        servers = [f"{self.topology.node(name).address}:{AGENT_PORT}" for name in SERVER_NODES]
        command = (
            *("umbilical", "agent", "run", "--id", f"agent-{node}", *(w for s in servers for w in ("--server", s))),
            *("--cert", f"{PLACE}/agent.crt", "--key", f"{PLACE}/agent.key", "--ca", f"{PLACE}/ca.crt"),
            *("--sync-interval", "200ms", "--sync-interval-cap", "1s", "--health", f"127.0.0.1:{AGENT_HEALTH}"),
            *_keepalive(),
        )
        return Part(f"agent-{node}", node, command)

    def _endpoint(self, node: str) -> Part:
        address, port = _pod_side(self.topology.node(node)).split(":")
        name = f"endpoint-{node}"
        ledger = f"{PLACE}/visits.jsonl"
        return Part(name, node, (sys.executable, "-m", "tests.chaos.endpoint", name, address, port, ledger))

    def _pid(self, part: Part) -> int:
        found = [row.pid for row in self.lab.processes() if self._is(part, row.node, row.name, row.exit_code)]
        assert found, f"{part.name} does not run: {self.lab.log(part.node, part.name)[-2000:]}"
        return found[-1]

    def _is(self, part: Part, node: str, name: str, exit_code: int | None) -> bool:
        return (node, name, exit_code) == (part.node, part.name, None)


def _keepalive() -> tuple[str, ...]:
    return ("--keepalive", f"{KEEPALIVE_SECONDS}s", "--keepalive-answer", f"{ANSWER_SECONDS}s")


def _pod_side(node: Node) -> str:
    """Say where a node's endpoint listens: on the network of its pods, to which the bootstrap node has no way."""
    return f"{node.pod_gateways[0].ip}:{ENDPOINT_PORT}"


def _client_name(campaign: int) -> str:
    return f"client-{campaign}"


def _stop_file(client: str) -> str:
    return f"{PLACE}/{client}.stop"


@contextmanager
def field(folder: Path, seed: int) -> Iterator[Field]:
    """Bring a lab up with everything on it, and down again."""
    topology = plan_topology(masters=len(SERVER_NODES) - 1, workers=len(AGENT_NODES))
    addresses = [topology.node(name).address for name in SERVER_NODES]
    lab = up(UpRequest(folder / "lab", "storm", topology))
    try:
        made = Field(lab, make_tunnel_pki(folder, addresses), seed)
        made.start()
        yield made
    except BaseException:
        # `down` takes them away.
        print(_last_words(lab))
        raise
    finally:
        lab.down()


def _last_words(lab: Lab) -> str:
    files = sorted(lab.directory.logs.rglob("*.log"))
    return "\n".join(f"--- {path.parent.name} {path.name}\n{path.read_text()[-LOG_TAIL:]}" for path in files)
