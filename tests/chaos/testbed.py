"""The testbed of chaos runs: servers, agents, endpoints and clients on the nodes of a lab.

Three servers on three nodes, each with clients on its Unix socket; three agents on three other nodes, connected to all
servers; an endpoint in the pod network of every agent's node, which only agents can reach. Clients of one server use
gRPC, as kube-apiserver does, those of the others HTTP CONNECT.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.chaos.traffic import KIB, TrafficOptions
from tests.chaos.tunnel_records import ClientRecord, EndpointRecord, read_client_records, read_endpoint_records
from tests.support.labs import wait_until
from tests.support.tunnel_pair import WORKERS
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

from umbilical.lab.lab import Lab, UpRequest, up
from umbilical.lab.topology import Node, Topology, plan_topology

ROOT: Final = Path(__file__).resolve().parent.parent.parent
# Clients and endpoints are programs of the tests, so they are copied to the nodes.
PROGRAMS: Final = (
    *(f"tests/chaos/{name}.py" for name in ("pattern", "tunnel_records", "endpoint", "traffic")),
    *(f"tests/support/{name}.py" for name in ("tunnel_client", "grpc_channel", "packet_messages")),
)
PROGRAMS_DIRECTORY: Final = "/opt/chaos"
SERVER_NODES: Final = ("bootstrap", "master-0", "master-1")
AGENT_NODES: Final = ("worker-0", "worker-1", "worker-2")
MODES: Final = ("http-connect", "http-connect", "grpc")
AGENT_PORT, ENDPOINT_PORT, SERVER_ADMIN, AGENT_HEALTH = 8091, 8443, 8095, 8093
DIRECTORY: Final = "/run/chaos"
SOCKET: Final = f"{DIRECTORY}/frontend.sock"
# Short enough for a run of a minute, long enough for a machine whose processes get no CPU for seconds.
KEEPALIVE_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 6.0
SILENCE_SECONDS: Final = KEEPALIVE_SECONDS + ANSWER_SECONDS
"""After this time without an answer a peer is considered dead."""
LOG_TAIL: Final = 3000
WHOLE_SECONDS: Final = 60.0
LARGEST_BYTES: Final = {"http-connect": 2048 * KIB, "grpc": 512 * KIB}


@dataclass(frozen=True)
class ChaosProgram:
    """A program of the testbed, and the node that it runs on."""

    name: str
    node: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Figures:
    """Resources of a process."""

    open_files: int
    resident_kib: int


class ChaosTestbed:
    def __init__(self, lab: Lab, pki: TunnelPki, seed: int) -> None:
        self.lab = lab
        self.seed = seed
        self._pki = pki
        self.servers = [self._server(number) for number in range(len(SERVER_NODES))]
        self.agents = [self._agent(node) for node in AGENT_NODES]
        self.endpoints = [self._endpoint(node) for node in AGENT_NODES]
        self._batches = 0

    @property
    def topology(self) -> Topology:
        return self.lab.topology

    def start(self) -> None:
        for node in (*SERVER_NODES, *AGENT_NODES):
            self._install_files(node)
        for program in (*self.servers, *self.endpoints, *self.agents):
            self.start_program(program)
        wait_until(self.is_whole, WHOLE_SECONDS)

    def start_program(self, program: ChaosProgram) -> None:
        paths = os.pathsep.join((PROGRAMS_DIRECTORY, *filter(None, [os.environ.get("PYTHONPATH")])))
        self.lab.start(program.node, program.name, program.command, environment={"PYTHONPATH": paths})

    def kill(self, program: ChaosProgram) -> None:
        self.lab.stop(program.node, program.name, kill=True)

    def signal(self, program: ChaosProgram, number: str) -> None:
        self.lab.exec(program.node, ["kill", f"-{number}", str(self._pid(program))]).check()

    def figures(self, program: ChaosProgram) -> Figures:
        pid = self._pid(program)
        script = f"ls /proc/{pid}/fd | wc -l; grep VmRSS /proc/{pid}/status"
        files, _, resident, _ = self.lab.exec(program.node, ["sh", "-c", script]).check().text.split()
        return Figures(int(files), int(resident))

    def is_running(self, program: ChaosProgram) -> bool:
        return any(self._is(program, status.node, status.name, status.exit_code) for status in self.lab.processes())

    def callers(self) -> dict[str, str]:
        """Map the addresses that an endpoint may see, of the node or of its pod network, to the agent there."""
        nodes = {program.name: self.topology.node(program.node) for program in self.agents}
        by_node = {node.address: name for name, node in nodes.items()}
        return by_node | {str(gateway.ip): name for name, node in nodes.items() for gateway in node.pod_gateways}

    def is_whole(self) -> bool:
        """Whether every agent is connected to every server exactly once."""
        servers = all(
            self._metric(program, "ready_backend_connections") == len(self.agents) for program in self.servers
        )
        return servers and all(
            self._metric(program, "open_server_connections") == len(self.servers) * WORKERS for program in self.agents
        )

    def is_empty(self) -> bool:
        """Whether no tunnel and no dial is left."""
        names = ("established_connections", "pending_backend_dials")
        servers = all(self._metric(program, name) == 0 for program in self.servers for name in names)
        return servers and all(self._metric(program, "open_endpoint_connections") == 0 for program in self.agents)

    def _metric(self, program: ChaosProgram, name: str) -> float:
        """Read a gauge: 0 if it is not listed, because it was never used; -1 if the process does not answer."""
        is_server = program in self.servers
        port = SERVER_ADMIN if is_server else AGENT_HEALTH
        command = ["curl", "--silent", "--max-time", "5", f"http://127.0.0.1:{port}/metrics"]
        completed = self.lab.exec(program.node, command)
        if completed.exit_code:
            return -1.0
        full = f"konnectivity_network_proxy_{'server' if is_server else 'agent'}_{name} "
        lines = [line for line in completed.text.splitlines() if line.startswith(full)]
        return float(lines[0].removeprefix(full)) if lines else 0.0

    @contextmanager
    def traffic(self, workers: int) -> Iterator[None]:
        """Run clients of every server during the block, and wait until their last tunnels have ended."""
        clients = [self._client(options) for options in self._batch(workers)]
        for client in clients:
            self.start_program(client)
        try:
            yield
        finally:
            for client in clients:
                self.lab.write(client.node, _stop_file(client.name), b"")
        wait_until(lambda: not any(map(self.is_running, clients)), WHOLE_SECONDS)

    def pass_tunnels(self, workers: int, each: int) -> None:
        """Open `each` tunnels per worker through every server, and wait until they have ended."""
        batch = [replace(options, most_tunnels=each, steady_workers=0) for options in self._batch(workers)]
        clients = [self._client(options) for options in batch]
        for client in clients:
            self.start_program(client)
        wait_until(lambda: not any(map(self.is_running, clients)), WHOLE_SECONDS)

    def client_records(self) -> list[ClientRecord]:
        return [row for node in SERVER_NODES for row in read_client_records(self._text(node, "client_records.jsonl"))]

    def endpoint_records(self) -> list[EndpointRecord]:
        return [
            row for node in AGENT_NODES for row in read_endpoint_records(self._text(node, "endpoint_records.jsonl"))
        ]

    def _text(self, node: str, name: str) -> str:
        path = f"{DIRECTORY}/{name}"
        return self.lab.read(node, path).decode() if self.lab.exists(node, path) else ""

    def _batch(self, workers: int) -> list[TrafficOptions]:
        self._batches += 1
        return [self._options(number, workers) for number in range(len(self.servers))]

    def _options(self, number: int, workers: int) -> TrafficOptions:
        return TrafficOptions(
            server=self.servers[number].name,
            mode=MODES[number],
            socket_path=SOCKET,
            endpoints={program.name: f"{_pod_side(self.topology.node(program.node))}" for program in self.endpoints},
            records=f"{DIRECTORY}/client_records.jsonl",
            stop_file=_stop_file(_client_name(self._batches)),
            seed=self.seed,
            first_tunnel=(self._batches * 100 + number) << 32,
            workers=workers,
            steady_workers=workers // 2,
            largest_bytes=LARGEST_BYTES[MODES[number]],
        )

    def _client(self, options: TrafficOptions) -> ChaosProgram:
        node = next(program.node for program in self.servers if program.name == options.server)
        command = (sys.executable, "-m", "tests.chaos.traffic", options.to_json())
        return ChaosProgram(_client_name(self._batches), node, command)

    def _install_files(self, node: str) -> None:
        pki = self._pki
        files = {"ca.crt": pki.authority.certificate_file}
        for name, pair in (("server", pki.server), ("agent", pki.agent)):
            files |= {f"{name}.crt": pair.certificate, f"{name}.key": pair.key}
        for name, path in files.items():
            self.lab.write(node, f"{DIRECTORY}/{name}", path.read_bytes())
        for program in PROGRAMS:
            self.lab.write(node, f"{PROGRAMS_DIRECTORY}/{program}", (ROOT / program).read_bytes())

    def _server(self, number: int) -> ChaosProgram:
        command = (
            *("umbilical", "server", "run", "--id", f"server-{number}", "--mode", MODES[number]),
            *("--listen", f"unix:{SOCKET}", "--agents", f":{AGENT_PORT}", "--admin", f"127.0.0.1:{SERVER_ADMIN}"),
            *("--agent-cert", f"{DIRECTORY}/server.crt", "--agent-key", f"{DIRECTORY}/server.key"),
            *("--agent-ca", f"{DIRECTORY}/ca.crt", "--count", str(len(SERVER_NODES)), *_keepalive()),
            *("--workers", str(WORKERS)),
        )
        return ChaosProgram(f"server-{number}", SERVER_NODES[number], command)

    def _agent(self, node: str) -> ChaosProgram:
        servers = [f"{self.topology.node(name).address}:{AGENT_PORT}" for name in SERVER_NODES]
        command = (
            *("umbilical", "agent", "run", "--id", f"agent-{node}", *(w for s in servers for w in ("--server", s))),
            *("--cert", f"{DIRECTORY}/agent.crt", "--key", f"{DIRECTORY}/agent.key", "--ca", f"{DIRECTORY}/ca.crt"),
            *("--sync-interval", "200ms", "--sync-interval-cap", "1s", "--health", f"127.0.0.1:{AGENT_HEALTH}"),
            *_keepalive(),
        )
        return ChaosProgram(f"agent-{node}", node, command)

    def _endpoint(self, node: str) -> ChaosProgram:
        address, port = _pod_side(self.topology.node(node)).split(":")
        name = f"endpoint-{node}"
        records = f"{DIRECTORY}/endpoint_records.jsonl"
        return ChaosProgram(name, node, (sys.executable, "-m", "tests.chaos.endpoint", name, address, port, records))

    def _pid(self, program: ChaosProgram) -> int:
        found = [row.pid for row in self.lab.processes() if self._is(program, row.node, row.name, row.exit_code)]
        assert found, f"{program.name} does not run: {self.lab.log(program.node, program.name)[-2000:]}"
        return found[-1]

    def _is(self, program: ChaosProgram, node: str, name: str, exit_code: int | None) -> bool:
        return (node, name, exit_code) == (program.node, program.name, None)


def _keepalive() -> tuple[str, ...]:
    return ("--keepalive", f"{KEEPALIVE_SECONDS}s", "--keepalive-answer", f"{ANSWER_SECONDS}s")


def _pod_side(node: Node) -> str:
    """Return the address of a node's endpoint: in its pod network, to which the bootstrap node has no route."""
    return f"{node.pod_gateways[0].ip}:{ENDPOINT_PORT}"


def _client_name(batch: int) -> str:
    return f"client-{batch}"


def _stop_file(client: str) -> str:
    return f"{DIRECTORY}/{client}.stop"


@contextmanager
def chaos_testbed(folder: Path, seed: int) -> Iterator[ChaosTestbed]:
    """Create a lab with all programs, and remove it at the end."""
    topology = plan_topology(masters=len(SERVER_NODES) - 1, workers=len(AGENT_NODES))
    addresses = [topology.node(name).address for name in SERVER_NODES]
    lab = up(UpRequest(folder / "lab", "chaos", topology))
    try:
        made = ChaosTestbed(lab, make_tunnel_pki(folder, addresses), seed)
        made.start()
        yield made
    except BaseException:
        # `down` deletes the logs.
        print(_log_ends(lab))
        raise
    finally:
        lab.down()


def _log_ends(lab: Lab) -> str:
    files = sorted(lab.directory.logs.rglob("*.log"))
    return "\n".join(f"--- {path.parent.name} {path.name}\n{path.read_text()[-LOG_TAIL:]}" for path in files)
