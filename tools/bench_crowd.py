"""Measures one of our servers with many idle tunnels and agents: does the cost of a dial grow with them?"""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench_load import Generator, Running
from bench_tunnel import RunningTunnel, get
from umbilical.host.processes import Child

AGENTS_PROGRAM: Final = Path(__file__).resolve().parent / "bench_agents.py"
READY_BACKENDS: Final = re.compile(rb"^konnectivity_network_proxy_server_ready_backend_connections (\d+)", re.MULTILINE)
METRICS_BYTES: Final = 1_000_000
CONNECT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05


@dataclass(frozen=True)
class CrowdSize:
    """Numbers of agents, tunnels and processes; one process may have 20,000 open files."""

    agents: int
    tunnels: int
    processes: int

    def __str__(self) -> str:
        return f"{self.tunnels:,} idle tunnels over {self.agents} agent connections"


class CrowdServer(RunningTunnel):
    """Our server without an agent; agents are attached and detached, many per process."""

    def _begin(self) -> None:
        self._start_server()

    @contextmanager
    def agents(self, count: int, processes: int) -> Iterator[None]:
        """Attach agents and wait until all are connected; leaving the block kills them."""
        roles = [f"agents-{number}" for number in range(processes)]
        try:
            for number, role in enumerate(roles):
                self._start_agents(role, share(count, processes, number))
            self._children[roles[0]].wait_ready(lambda: self._connected() == count, CONNECT_SECONDS, POLL_SECONDS)
            yield
        finally:
            self._detach(roles)

    def _start_agents(self, role: str, count: int) -> Child:
        program = self._programs[self.pair.agent]
        log = program.log_flags(self._folder / f"{role}.log")
        # Port 0: nothing probes these agents.
        flags = [*self._agent_flags(), "--health-server-port=0", "--admin-server-port=0", *log]
        command: list[str | Path] = [sys.executable, AGENTS_PROGRAM, str(count), role, *flags]
        return self._launch(role, f"our {role}", command, program.environment)

    def _connected(self) -> int:
        found = READY_BACKENDS.search(get(self._ports.server_admin, "/metrics", METRICS_BYTES))
        return int(found[1]) if found else 0

    def _detach(self, roles: Sequence[str]) -> None:
        for role in roles:
            child = self._children.pop(role, None)
            if child is not None:
                child.kill()


def share(whole: int, parts: int, number: int) -> int:
    """Return the share of one part; all shares add up to the whole."""
    return whole * (number + 1) // parts - whole * number // parts


@contextmanager
def idle_tunnels(generator: Generator, entrance: Sequence[str], size: CrowdSize) -> Iterator[list[Running]]:
    """Open the tunnels with several generators, one after the other, and keep them open during the block."""
    with ExitStack() as stack:
        held = []
        for number in range(size.processes):
            count = share(size.tunnels, size.processes, number)
            resting = stack.enter_context(generator.rest(entrance, count))
            resting.wait_opened(count)
            held.append(resting)
        yield held
