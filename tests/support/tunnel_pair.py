"""A running server and agent, each ours or upstream's, and the ways to kill and restart them.

Both speak upstream's flags, so which of them runs is a path and nothing more.
"""

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.tunnel_client import Frontend
from tests.support.tunnel_pki import TunnelPki, make_tunnel_pki

import peers

READY_SECONDS: Final = 60.0
LOG_TAIL_BYTES: Final = 6000
# UMBILICAL_TEST_WORKERS=2 runs every test of a pair with so many workers in our servers.
WORKERS: Final = int(os.environ.get("UMBILICAL_TEST_WORKERS", "1"))
# Below Linux' ephemeral range, so that no outgoing connection takes one in between; upstream refuses ports below 1024.
# Drawn, so that two runs of the tests do not take each other's; none twice in a run of this length; each worker has
# its own.
_WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS: Final = range(15000 + _WORKER, 30000, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
_candidate_ports: Final = itertools.cycle(random.sample(_PORTS, len(_PORTS)))


def free_port() -> int:
    """Return a port on loopback that nothing listens on now."""
    while True:
        port = next(_candidate_ports)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def program(implementation: str, name: str) -> Path:
    """Return where `proxy-server` or `proxy-agent` lies for "ours", "upstream" or "oldest" (of upstream)."""
    if implementation == "ours":
        return Path(sys.executable).parent / name
    found = peers.binary(oldest(name) if implementation == "oldest" else name)
    assert found is not None, f"no program {name}: run `make peers`"
    return found


def oldest(name: str) -> str:
    """Return the name of upstream's oldest supported version of a program."""
    return f"{name}-{peers.OLDER_UPSTREAM[-1]}"


def wait_until(claim: Callable[[], bool], what: str, timeout: float = READY_SECONDS) -> None:
    """Poll until the claim holds. Raises TimeoutError that says what did not come true."""
    deadline = time.monotonic() + timeout
    while not claim():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout:.0f} s: {what}")
        time.sleep(0.02)


def http_get(url: str, timeout: float = 20.0) -> tuple[int, str]:
    """Return status and body; status 0 where nobody answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


class Daemon:
    """One process with its log; `prefix` puts it elsewhere (`nsenter …`)."""

    def __init__(self, command: Sequence[str], log: Path, prefix: Sequence[str] = ()) -> None:
        self.command = [*prefix, *command]
        self.log = log
        self.passed: tuple[int, ...] = ()
        """Open files that the process gets, with their numbers."""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, pass_fds=self.passed
            )

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL and reap: upstream's agent does not leave on SIGTERM."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    def wait(self, timeout: float = READY_SECONDS) -> int:
        assert self.process is not None
        return self.process.wait(timeout)

    def log_tail(self) -> str:
        if not self.log.exists():
            return ""
        octets = self.log.read_bytes()
        return f"--- {self.log.name}\n{octets[-LOG_TAIL_BYTES:].decode('utf-8', 'replace')}"

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))


@dataclass(frozen=True)
class Shape:
    """One cell of the matrix."""

    server: str = "ours"
    agent: str = "ours"
    mode: str = "http-connect"
    frontend: str = "uds"
    workers: int = WORKERS
    """Of the server, if it is ours."""

    def __str__(self) -> str:
        workers = f"-{self.workers}-workers" if self.has_workers else ""
        return f"{self.server}-{self.agent}-{self.mode}-{self.frontend}{workers}"

    @property
    def has_workers(self) -> bool:
        return self.server == "ours" and self.workers > 1

    @property
    def is_ours_alone(self) -> bool:
        return self.server == self.agent == "ours"


@dataclass
class Ports:
    frontend: int = field(default_factory=free_port)
    agent: int = field(default_factory=free_port)
    server_health: int = field(default_factory=free_port)
    server_admin: int = field(default_factory=free_port)
    agent_health: int = field(default_factory=free_port)
    agent_admin: int = field(default_factory=free_port)


class TunnelPair:
    """A server and its agent on loopback."""

    def __init__(
        self,
        shape: Shape,
        pki: TunnelPki,
        folder: Path,
        server_flags: Sequence[str] = (),
        agent_flags: Sequence[str] = (),
    ) -> None:
        self.shape = shape
        self.pki = pki
        self.folder = folder
        self.ports = Ports()
        self.socket_path = folder / "frontend.sock"
        server = [str(program(shape.server, "proxy-server")), *self._server_flags(), *server_flags]
        agent = [str(program(shape.agent, "proxy-agent")), *self._agent_flags(), *agent_flags]
        self.server = Daemon(server, folder / f"server-{shape.server}.log")
        self.agent = Daemon(agent, folder / f"agent-{shape.agent}.log")

    def frontend(self) -> Frontend:
        """Say how a client reaches the server."""
        if self.shape.frontend == "uds":
            return Frontend(self.shape.mode, unix_path=self.socket_path)
        alpn = ("h2",) if self.shape.mode == "grpc" else ()
        tls = self.pki.authority.client_context(self.pki.client, alpn)
        return Frontend(self.shape.mode, port=self.ports.frontend, tls=tls)

    def start(self) -> None:
        self.start_server()
        self.start_agent()

    def start_server(self) -> None:
        self.server.start()
        self._wait_for(self.server, self.ports.server_health, "/healthz")
        wait_until(self._frontend_accepts, "the frontend accepts clients")

    def start_agent(self) -> None:
        self.agent.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the server has a backend and the agent a server."""
        self._wait_for(self.agent, self.ports.agent_health, "/readyz")
        self._wait_for(self.server, self.ports.server_health, "/readyz")

    def revive(self) -> None:
        """Start again what has died, so that one test's victim is not the next one's failure."""
        if not self.server.is_running():
            self.start_server()
        if not self.agent.is_running():
            self.agent.start()
        self.wait_ready()

    def stop(self) -> None:
        self.agent.kill()
        self.server.kill()

    def server_metric(self, name: str) -> float:
        return metric(self.ports.server_admin, f"konnectivity_network_proxy_server_{name}")

    def worker_pids(self) -> list[int]:
        """The children of the server."""
        pid = self.server.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def agent_metric(self, name: str) -> float:
        return metric(self.ports.agent_health, f"konnectivity_network_proxy_agent_{name}")

    def server_health(self, path: str) -> tuple[int, str]:
        return http_get(f"http://127.0.0.1:{self.ports.server_health}{path}")

    def agent_health(self, path: str) -> tuple[int, str]:
        return http_get(f"http://127.0.0.1:{self.ports.agent_health}{path}")

    def logs(self) -> str:
        return f"{self.server.log_tail()}\n{self.agent.log_tail()}"

    def _wait_for(self, daemon: Daemon, port: int, path: str) -> None:
        def answers() -> bool:
            assert daemon.is_running(), f"{daemon.command[0]} has died\n{self.logs()}"
            return http_get(f"http://127.0.0.1:{port}{path}")[0] == 200

        try:
            wait_until(answers, f"{daemon.command[0]} answers 200 on {path}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.logs()}") from None

    def _frontend_accepts(self) -> bool:
        try:
            self.frontend().connect().close()
        except OSError:
            return False
        return True

    def _server_flags(self) -> Iterator[str]:
        pki, ports = self.pki, self.ports
        yield from ("--v=0", f"--mode={self.shape.mode}", "--server-id=s1")
        yield from ("--agent-bind-address=127.0.0.1", f"--agent-port={ports.agent}")
        yield from ("--health-bind-address=127.0.0.1", f"--health-port={ports.server_health}")
        yield f"--admin-port={ports.server_admin}"
        if self.shape.has_workers:
            yield f"--workers={self.shape.workers}"
        yield f"--cluster-ca-cert={pki.authority.certificate_file}"
        yield from (f"--cluster-cert={pki.server.certificate}", f"--cluster-key={pki.server.key}")
        if self.shape.frontend == "uds":
            yield from (f"--uds-name={self.socket_path}", "--server-port=0")
            return
        yield from ("--server-bind-address=127.0.0.1", f"--server-port={ports.frontend}")
        yield f"--server-ca-cert={pki.authority.certificate_file}"
        yield from (f"--server-cert={pki.server.certificate}", f"--server-key={pki.server.key}")

    def _agent_flags(self) -> Iterator[str]:
        pki, ports = self.pki, self.ports
        yield from ("--v=0", "--agent-id=a1", f"--ca-cert={pki.authority.certificate_file}")
        yield from (f"--agent-cert={pki.agent.certificate}", f"--agent-key={pki.agent.key}")
        yield from ("--proxy-server-host=127.0.0.1", f"--proxy-server-port={ports.agent}")
        yield from ("--health-server-host=127.0.0.1", f"--health-server-port={ports.agent_health}")
        yield f"--admin-server-port={ports.agent_admin}"
        # Short, so that a restarted server is found again within a test's patience.
        yield from ("--sync-interval=100ms", "--sync-interval-cap=500ms", "--probe-interval=100ms")


def metric(port: int, name: str) -> float:
    """Return the sum of a metric over its labels; 0 where it has no sample yet."""
    status, text = http_get(f"http://127.0.0.1:{port}/metrics")
    assert status == 200, f"/metrics on {port}: {status}"
    lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@contextmanager
def upstream_pair(folder: Path, *flags: str) -> Iterator[TunnelPair]:
    """The real programs, for the test to start; stopped at the end."""
    pair = TunnelPair(Shape("upstream", "upstream"), make_tunnel_pki(folder), folder, flags, flags)
    try:
        yield pair
    finally:
        pair.stop()
