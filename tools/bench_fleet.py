"""Measures a fleet of agents on one server, ours and upstream's: connect storm, memory of an agent, CPU when idle.

The agents are ours in both cases, many on one loop. Each has a token of its own, which the server has reviewed by a
small API server, real HTTP and a process of its own. The storm is a restart: the server is killed and started again,
and the clock runs from its start until it counts all agents.
"""

import argparse
import asyncio
import base64
import json
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import peers
from bench_compiled import compiled_source
from bench_crowd import AGENTS_PROGRAM, METRICS_BYTES, READY_BACKENDS, share
from bench_processes import cpu_seconds, resident_bytes
from bench_tunnel import NO_PROXY, Pki, answers_200, free_port, get
from umbilical.host.files import make_directory, write_file
from umbilical.host.processes import Child, start

PROGRAMS: Final = Path(sys.executable).parent
READY_SECONDS: Final = 20.0
STORM_SECONDS: Final = 150.0
POLL_SECONDS: Final = 0.1
TOKEN_SECONDS: Final = 86_400
NAMESPACE: Final = "kube-system"
ACCOUNT: Final = "konnectivity-agent"
AUDIENCE: Final = "fleet"


@dataclass(frozen=True)
class FleetSize:
    agents: int
    processes: int
    """One process may have 20,000 open files; an agent needs three."""
    idle_seconds: float


@dataclass(frozen=True)
class FleetFigures:
    first_seconds: float
    """From the agents' start until the server counts all of them."""
    storm_seconds: float
    storm_cpu_seconds: float
    """Of the server, in the storm."""
    reviews: int
    """Token reviews that the API server was asked for in the storm."""
    server_kilobytes: float
    """Resident memory of the server for each agent; of a server that has just been through a storm."""
    agent_kilobytes: float
    idle_cores: float
    """Of the server, while nothing moves."""


class ReviewApi:
    """Answers every TokenReview with yes, and GET with the number of reviews so far."""

    def __init__(self) -> None:
        self._reviews = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = head.partition("content-length:")[2].partition("\r\n")[0].strip()
                if length:
                    await reader.readexactly(int(length))
                writer.write(_response(self._answer(head.startswith("post"))))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, is_review: bool) -> dict[str, object]:
        if not is_review:
            return {"reviews": self._reviews}
        self._reviews += 1
        user = {"username": f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"}
        status = {"authenticated": True, "user": user, "audiences": [AUDIENCE]}
        return {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "status": status}


def _response(content: dict[str, object]) -> bytes:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def serve_reviews(port: int) -> None:
    server = await asyncio.start_server(ReviewApi().serve, "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()


def token(number: int) -> str:
    """A token as an API server signs it, without the signature, which only the API server would check."""
    claims = {"exp": int(time.time()) + TOKEN_SECONDS, "sub": f"agent-{number}", "aud": [AUDIENCE]}
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims))
    return ".".join(part.decode() for part in parts) + ".c2ln"


class Fleet:
    """One server and its agents; leaving the block ends all processes."""

    def __init__(self, program: Sequence[str | Path], environment: dict[str, str], pki: Pki, folder: Path) -> None:
        self._program = program
        self._environment = environment
        self._pki = pki
        self._folder = make_directory(folder)
        self._agents_port, self._health, self._admin, self._api_port = (free_port() for _ in range(4))
        self._children = ExitStack()
        self._agents: list[Child] = []
        self._server: Child | None = None

    def __enter__(self) -> "Fleet":
        try:
            command: list[str | Path] = [sys.executable, Path(__file__), "--api", str(self._api_port)]
            api = self._start("api", command)
            api.wait_ready(lambda: self.reviews() == 0, READY_SECONDS, POLL_SECONDS)
            self.restart()
        except BaseException:
            self._children.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._children.close()

    def _start(self, role: str, command: Sequence[str | Path]) -> Child:
        environment = {**NO_PROXY, **self._environment}
        child = start(command, self._folder / f"{role}.out", name=role, environment=environment)
        self._children.callback(child.kill)
        return child

    def restart(self) -> float:
        """Kill the server, if there is one, and start it; return the time of its start."""
        if self._server is not None:
            self._server.kill()
        began = time.monotonic()
        self._server = self._start("server", self._program_with_flags())
        self._server.wait_ready(lambda: answers_200(self._health, "/healthz"), READY_SECONDS, 0.005)
        return began

    def _program_with_flags(self) -> list[str | Path]:
        certificate, key = self._pki.server
        places = {"agents": self._agents_port, "health": self._health, "admin": self._admin}
        values = {
            **{name: str(port) for name, port in places.items()},
            "cert": str(certificate),
            "key": str(key),
            "kubeconfig": str(self._kubeconfig()),
            "socket": str(self._folder / "tunnel.sock"),
            "log": str(self._folder / "server.log"),
        }
        return [str(part).format(**values) for part in self._program]

    def _kubeconfig(self) -> Path:
        path = self._folder / "kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self._api_port}"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
            "current-context": "c",
        }
        path.write_text(json.dumps(content))
        return path

    def attach(self, size: FleetSize) -> None:
        tokens = make_directory(self._folder / "tokens")
        for process in range(size.processes):
            count = share(size.agents, size.processes, process)
            for number in range(count):
                write_file(tokens / f"{process}-{number}", token(number * size.processes + process).encode())
            command: list[str | Path] = [
                sys.executable,
                AGENTS_PROGRAM,
                str(count),
                str(process),
                *self._agent_flags(tokens),
            ]
            self._agents.append(self._start(f"agents-{process}", command))

    def _agent_flags(self, tokens: Path) -> list[str]:
        return [
            *("--proxy-server-host=127.0.0.1", f"--proxy-server-port={self._agents_port}", "--keepalive-time=31s"),
            *(f"--ca-cert={self._pki.authority}", f"--service-account-token-path={tokens}/{{id}}"),
            *("--health-server-host=127.0.0.1", "--health-server-port=0", "--admin-server-port=0"),
            *("--logtostderr=false", f"--log-file={self._folder / 'agents.log'}"),
        ]

    def wait_all(self, count: int) -> float:
        """Wait until the server counts so many agents; return the time then."""
        assert self._server is not None
        self._server.wait_ready(lambda: self.connected() == count, STORM_SECONDS, POLL_SECONDS)
        return time.monotonic()

    def connected(self) -> int:
        found = READY_BACKENDS.search(get(self._admin, "/metrics", METRICS_BYTES))
        return int(found[1]) if found else 0

    def reviews(self) -> int:
        with_head = get(self._api_port, "/", 1)
        return int(json.loads(with_head.partition(b"\r\n\r\n")[2])["reviews"])

    def server_pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    def agent_bytes(self) -> int:
        return sum(resident_bytes(child.pid) for child in self._agents)


def measure(fleet: Fleet, size: FleetSize) -> FleetFigures:
    """First connect, storm, rest."""
    began = time.monotonic()
    fleet.attach(size)
    first = fleet.wait_all(size.agents) - began
    reviews = fleet.reviews()
    started = fleet.restart()
    empty_bytes = resident_bytes(fleet.server_pid())
    storm = fleet.wait_all(size.agents) - started
    pid = fleet.server_pid()
    storm_cpu = cpu_seconds(pid)
    time.sleep(size.idle_seconds / 4)
    used, since = cpu_seconds(pid), time.monotonic()
    time.sleep(size.idle_seconds)
    return FleetFigures(
        first_seconds=first,
        storm_seconds=storm,
        storm_cpu_seconds=storm_cpu,
        reviews=fleet.reviews() - reviews,
        server_kilobytes=(resident_bytes(pid) - empty_bytes) / size.agents / 1e3,
        agent_kilobytes=fleet.agent_bytes() / size.agents / 1e3,
        idle_cores=(cpu_seconds(pid) - used) / (time.monotonic() - since),
    )


def programs(upstream: Path) -> dict[str, list[str | Path]]:
    """Both servers with their flags; the fields in braces are filled in by `Fleet`."""
    ours: list[str | Path] = [
        *(PROGRAMS / "umbilical", "server", "run", "--listen=unix:{socket}", "--mode=http-connect"),
        *("--agents=127.0.0.1:{agents}", "--health=127.0.0.1:{health}", "--admin=127.0.0.1:{admin}"),
        *("--agent-cert={cert}", "--agent-key={key}", "--kubeconfig={kubeconfig}"),
        *(f"--token-namespace={NAMESPACE}", f"--token-service-account={ACCOUNT}", f"--token-audience={AUDIENCE}"),
    ]
    theirs: list[str | Path] = [
        *(upstream, "--mode=http-connect", "--uds-name={socket}", "--server-port=0", "--v=0"),
        *("--agent-bind-address=127.0.0.1", "--agent-port={agents}", "--keepalive-time=31s"),
        *("--health-bind-address=127.0.0.1", "--health-port={health}", "--admin-port={admin}"),
        *("--cluster-cert={cert}", "--cluster-key={key}", "--kubeconfig={kubeconfig}"),
        *(f"--agent-namespace={NAMESPACE}", f"--agent-service-account={ACCOUNT}"),
        *(f"--authentication-audience={AUDIENCE}", "--kube-api-content-type=application/json"),
        # With its default of 5 a second the storm would take as many seconds as there are agents, divided by 5.
        *("--kubeconfig-qps=300", "--kubeconfig-burst=300"),
    ]
    return {"ours": ours, "upstream": theirs}


def lines(size: FleetSize, found: dict[str, FleetFigures]) -> list[str]:
    rows: list[tuple[str, Callable[[FleetFigures], str]]] = [
        ("first connect of all", lambda figures: f"{figures.first_seconds:,.1f} s"),
        ("restart until all are ready", lambda figures: f"{figures.storm_seconds:,.1f} s"),
        ("CPU of the server for it", lambda figures: f"{figures.storm_cpu_seconds:,.1f} s"),
        ("token reviews in it", lambda figures: f"{figures.reviews:,}"),
        ("memory of the server per agent", lambda figures: f"{figures.server_kilobytes:,.0f} kB"),
        ("memory of an agent in a process of many", lambda figures: f"{figures.agent_kilobytes:,.0f} kB"),
        ("CPU of the server when idle", lambda figures: f"{figures.idle_cores:.3f} cores"),
    ]
    head = f"{size.agents:,} agents on one server".ljust(42) + "".join(f"{name:>16}" for name in found)
    return [head] + [
        f"{name:<42}" + "".join(f"{form(figures):>16}" for figures in found.values()) for name, form in rows
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure a fleet of agents on one server, ours and upstream's.")
    parser.add_argument("--agents", type=int, default=5_000, help="number of agents (5000)")
    parser.add_argument("--servers", default="ours,upstream", help="which servers, separated by commas")
    parser.add_argument("--smoke", action="store_true", help="only check that every row runs")
    parser.add_argument("--pure", action="store_true", help="run our programs as pure Python")
    parser.add_argument("--api", type=int, help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args(arguments)
    if options.api:
        asyncio.run(serve_reviews(options.api))
    upstream = peers.binary("proxy-server")
    if upstream is None:
        print("a program is missing: run `make peers GROUP=konnectivity`", file=sys.stderr)
        return 1
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # so that all processes are ended then, too
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    environment = {} if options.smoke or options.pure else {"PYTHONPATH": str(compiled_source())}
    size = FleetSize(20, 1, 0.2) if options.smoke else FleetSize(options.agents, 4, 20.0)
    found: dict[str, FleetFigures] = {}
    with tempfile.TemporaryDirectory(prefix="umbilical-bench-") as name:
        pki = Pki(Path(name) / "pki")
        for server, program in programs(upstream).items():
            if server in options.servers.split(","):
                with Fleet(program, environment, pki, Path(name) / server) as fleet:
                    found[server] = measure(fleet, size)
    print()
    print("\n".join(lines(size, found)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
