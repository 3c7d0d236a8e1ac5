"""Starts a server and an agent on loopback for the benchmark."""

import random
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self

from bench_processes import bench_cpu_seconds, cpu_seconds, machine_cpu_seconds, resident_bytes
from bench_rows import Cpu, Pair
from umbilical.host.files import make_directory, write_file, write_public
from umbilical.host.processes import Child, start
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, Profile, client_profile, server_profile

READY_SECONDS: Final = 20.0
# A start takes tens of milliseconds; polling each millisecond is precise enough and cheap.
POLL_SECONDS: Final = 0.001
LIFETIME: Final = timedelta(days=1)
# Upstream refuses ports above 49151, and outgoing connections use those above 32768.
PORTS: Final = range(22000, 32000)
# Traffic on loopback must not use the proxy of this machine's environment.
NO_PROXY: Final = {"HTTPS_PROXY": "", "https_proxy": ""}


_given: Final[set[int]] = set()


@dataclass(frozen=True)
class TunnelPrograms:
    """One implementation: its two executables and their log flags."""

    server: Path
    agent: Path
    logs_to_file: bool
    environment: Mapping[str, str] = field(default_factory=dict)

    def log_flags(self, log: Path) -> list[str]:
        # Ours writes one line per tunnel at every verbosity; it goes to a file, as in production.
        return ["--v=0", *(["--logtostderr=false", f"--log-file={log}"] if self.logs_to_file else [])]


class Pki:
    """A CA in memory and the files for the programs; the CA's key is never written."""

    def __init__(self, folder: Path) -> None:
        self._folder = make_directory(folder)
        self._now = datetime.now(UTC)
        self._authority = Authority.create("umbilical-bench", self._now, LIFETIME, KeyType.ECDSA_P256)
        self.authority = write_public(folder / "ca.crt", self._authority.certificate_pem)
        self.server = self._issue("server", server_profile("server", ["127.0.0.1"], KeyType.ECDSA_P256))
        self.agent = self._issue("agent", client_profile("agent", key_type=KeyType.ECDSA_P256))

    def _issue(self, name: str, profile: Profile) -> tuple[Path, Path]:
        pair = self._authority.issue(profile, self._now, LIFETIME)
        certificate = write_public(self._folder / f"{name}.crt", pair.certificate)
        return certificate, write_file(self._folder / f"{name}.key", pair.key)


def free_port() -> int:
    """Return a free port on loopback, each only once: the caller listens on it later."""
    for port in random.sample(PORTS, len(PORTS)):
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise OSError(f"no free port from {PORTS.start} to {PORTS.stop - 1}")


def answers_200(port: int, path: str) -> bool:
    """Send one request. Raises OSError while nothing listens."""
    return get(port, path, 1).startswith(b"HTTP/1.1 200 ")


def get(port: int, path: str, most_bytes: int) -> bytes:
    """Return the head of a response and its body, up to about `most_bytes`."""
    with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        answer = connection.recv(4096)
        while len(answer) < most_bytes and (more := connection.recv(65536)):
            answer += more
    return answer


@dataclass(frozen=True)
class _Ports:
    agents: int = field(default_factory=free_port)
    server_health: int = field(default_factory=free_port)
    server_admin: int = field(default_factory=free_port)
    agent_health: int = field(default_factory=free_port)
    agent_admin: int = field(default_factory=free_port)


class Carrier(ABC):
    """Processes that carry bytes from a Unix socket to an endpoint. Leaving its `with` block kills them."""

    def __init__(self, pair: Pair, folder: Path) -> None:
        self.pair = pair
        self.connected_at = 0.0
        self._folder = make_directory(folder)
        self.socket_path = folder / "tunnel.sock"
        self._children: dict[str, Child] = {}
        self._cleanup = ExitStack()

    @property
    @abstractmethod
    def entrance(self) -> list[str]:
        """The generator's flags for connecting."""

    @abstractmethod
    def _begin(self) -> None:
        """Start everything and wait until connections work."""

    def __enter__(self) -> Self:
        """Start the processes.

        Raises:
            HostError: one of them ended or did not become ready.
        """
        try:
            self._begin()
            self.connected_at = time.monotonic()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def ended(self) -> str | None:
        """Return which process has ended; None while all run."""
        gone = [child for child in self._children.values() if not child.is_running]
        return ", ".join(f"{child.name} ended with {child.exit_code}" for child in gone) or None

    def cpu(self, held: Iterable[int] = ()) -> Cpu:
        """Read the CPU times; `held` are running generators, which count for the benchmark."""
        used = {role: cpu_seconds(child.pid) for role, child in self._children.items()}
        server = used.pop("server")
        bench = bench_cpu_seconds() + sum(map(cpu_seconds, held))
        return Cpu(server, sum(used.values()), bench, machine_cpu_seconds())

    def resident_megabytes(self) -> dict[str, float]:
        held = {role: resident_bytes(child.pid) / 1e6 for role, child in self._children.items()}
        server = held.pop("server")
        agent = sum(held.values())
        return {"server": server, "agent": agent, "value": server + agent}

    def _launch(self, role: str, name: str, command: Sequence[str | Path], environment: Mapping[str, str]) -> Child:
        child = start(command, self._folder / f"{role}.out", name=name, environment={**NO_PROXY, **environment})
        self._cleanup.callback(child.kill)
        self._children[role] = child
        return child


class RunningTunnel(Carrier):
    """A running pair, killed at the end: upstream's agent does not end on SIGTERM."""

    def __init__(self, pair: Pair, mode: str, programs: dict[str, TunnelPrograms], pki: Pki, folder: Path) -> None:
        super().__init__(pair, folder)
        self.start_milliseconds: dict[str, float] = {}
        self._mode = mode
        self._programs = programs
        self._pki = pki
        self._ports = _Ports()

    @property
    def entrance(self) -> list[str]:
        return [f"--mode={self._mode}", f"--uds={self.socket_path}"]

    @property
    def agent_port(self) -> int:
        return self._ports.agents

    def _begin(self) -> None:
        """Start the server, then the agent, and wait until they are connected."""
        self._start_server()
        agent = self._programs[self.pair.agent]
        log = agent.log_flags(self._folder / "agent.log")
        self._start("agent", [agent.agent, *self._agent_flags(), *log], agent.environment)
        self._wait("server", self._ports.server_health, "/readyz")

    def _start_server(self) -> None:
        server = self._programs[self.pair.server]
        log = server.log_flags(self._folder / "server.log")
        self._start("server", [server.server, *self._server_flags(), *log], server.environment)

    def _start(self, role: str, command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
        name = f"{self.pair.server if role == 'server' else self.pair.agent} {role}"
        began = time.monotonic()
        self._launch(role, name, command, environment)
        port = self._ports.server_health if role == "server" else self._ports.agent_health
        self._wait(role, port, "/healthz")
        self.start_milliseconds[role] = (time.monotonic() - began) * 1e3

    def _wait(self, role: str, port: int, path: str) -> None:
        self._children[role].wait_ready(lambda: answers_200(port, path), READY_SECONDS, POLL_SECONDS)

    def _server_flags(self) -> list[str]:
        ports, (certificate, key) = self._ports, self._pki.server
        return [
            *(f"--mode={self._mode}", f"--uds-name={self.socket_path}", "--server-port=0"),
            *("--agent-bind-address=127.0.0.1", f"--agent-port={ports.agents}"),
            *("--health-bind-address=127.0.0.1", f"--health-port={ports.server_health}"),
            f"--admin-port={ports.server_admin}",
            *(f"--cluster-ca-cert={self._pki.authority}", f"--cluster-cert={certificate}", f"--cluster-key={key}"),
        ]

    def _agent_flags(self) -> list[str]:
        ports, (certificate, key) = self._ports, self._pki.agent
        return [
            *("--proxy-server-host=127.0.0.1", f"--proxy-server-port={ports.agents}"),
            *(f"--ca-cert={self._pki.authority}", f"--agent-cert={certificate}", f"--agent-key={key}"),
            *("--health-server-host=127.0.0.1", f"--health-server-port={ports.agent_health}"),
            f"--admin-server-port={ports.agent_admin}",
        ]
