"""One run: a server, its agents and clients in one thread, on virtual time, until every tunnel is over."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.simulation import faults
from tests.simulation.agents import OurAgent, SimAgent, UpstreamAgent
from tests.simulation.callers import ConnectCaller, GrpcCaller
from tests.simulation.network import Network
from tests.simulation.plan import RunPlan, plan_of
from tests.simulation.process import Process, simulated
from tests.simulation.sockets import SimListener
from tests.simulation.strangers import FieldProbe, Flood
from tests.simulation.tunnels import TunnelRun

from umbilical.tunnel.server import Server
from umbilical.tunnel.settings import (
    FrontendMode,
    Keepalive,
    Limits,
    ListenAddress,
    ServerSettings,
    TlsFiles,
    UnixFrontend,
)

AGENT_PORT: Final = 8091
CONNECTING_SECONDS: Final = 0.2
HANG_SECONDS: Final = 400.0
"""Virtual time after which a tunnel that is not over hangs; the longest limit of the server is 120 s."""
REST_SECONDS: Final = 150.0
"""Virtual time in which all timers of a stopped server run out."""
MOST_TURNS: Final = 200_000
"""A run that needs more is a loop that never rests."""
LINGER_SECONDS: Final = 5.0
"""After the last tunnel: what lingers, and the last packets."""
REMAINING_SECONDS: Final = {"vanish": 130.0, "silence": 30.0}
"""The same where a peer is gone without a word: until the server gives up the last bytes, and until keepalive."""
KEEPALIVE: Final = Keepalive(interval_seconds=10.0, answer_seconds=5.0)
IDLE_SECONDS: Final = 30.0


class World:
    def __init__(self, plan: RunPlan, network: Network) -> None:
        self.plan: Final = plan
        self.network: Final = network
        self.server_process: Final = Process("server", network)
        self.server: Final = Server(_settings(plan), self.server_process.loop, None)
        with self.server_process.running():
            self.server.listen()
        self.agent_listener: Final = _listener(self.server._agents)
        self.frontend: Final = _listener(self.server._frontend)
        self.agents: Final[list[SimAgent]] = [
            self._agent(f"agent-{number}", form) for number, form in enumerate(plan.agents)
        ]
        self._processes: Final = [self.server_process, *(agent.process for agent in self.our_agents())]
        self.runs: Final = [TunnelRun(each, network) for each in plan.tunnels]
        self.probes: Final[list[FieldProbe]] = []
        self.floods: Final[list[Flood]] = []
        self.callers: Final[list[ConnectCaller | GrpcCaller]] = []
        self.connecting_seconds: Final = CONNECTING_SECONDS
        self.planted = False
        """A callback was made to raise: exceptions are expected."""

    def _agent(self, name: str, form: str) -> SimAgent:
        if form == "upstream":
            return UpstreamAgent(name, self.network, self.agent_listener)
        limits = Limits(own_streams=form == "streams")
        return OurAgent(name, self.network, self.agent_listener, limits, KEEPALIVE)

    def our_agents(self) -> list[OurAgent]:
        return [agent for agent in self.agents if isinstance(agent, OurAgent)]

    def processes(self) -> list[Process]:
        return self._processes

    def start(self) -> None:
        network, plan = self.network, self.plan
        for agent in self.agents:
            network.after(network.random.random() * 0.05, agent.connect)
        network.after(CONNECTING_SECONDS, self._probe)
        for run in self.runs:
            faults.listen(network, run)
        self._plan_callers()
        network.after(CONNECTING_SECONDS + plan.fault_after, faults.strike, self)
        if plan.drains and self.our_agents():
            network.after(CONNECTING_SECONDS + 0.7, self.our_agents()[0].drain)
        if plan.stops:
            network.after(CONNECTING_SECONDS + 1.8, self.begin_stop)

    def _plan_callers(self) -> None:
        waiting = list(self.runs)
        sizes = self.plan.groups if self.plan.grpc else (1,) * len(waiting)
        for size in sizes:
            group, waiting = waiting[:size], waiting[size:]
            self.network.after(CONNECTING_SECONDS + group[0].plan.starts_after, self._call, group)

    def _call(self, group: list[TunnelRun]) -> None:
        if self.plan.grpc:
            self.callers.append(GrpcCaller(self.network, self.frontend, group))
        else:
            self.callers.append(ConnectCaller(group[0], self.frontend))

    def _probe(self) -> None:
        self.probes.append(FieldProbe(self.network, self.agent_listener, tls=True))
        if self.plan.grpc:
            self.probes.append(FieldProbe(self.network, self.frontend, tls=False))

    def begin_stop(self) -> None:
        with self.server_process.running():
            self.server.stop_accepting()
            self.server.announce_leave()

    def is_over(self) -> bool:
        return all(run.is_over() for run in self.runs)

    def run_until_over(self) -> None:
        deadline = self.network.now + HANG_SECONDS
        while not self.is_over() and self.network.now < deadline:
            if not self._step(deadline):
                return
        self.run_for(REMAINING_SECONDS.get(self.plan.fault, LINGER_SECONDS))

    def run_for(self, seconds: float) -> None:
        deadline = self.network.now + seconds
        while self.network.now < deadline and self._step(deadline):
            pass

    def _step(self, deadline: float) -> bool:
        """One turn of one process that has something to do, or the next moment at which something happens."""
        network = self.network
        network.run_due()
        busy = [process for process in self.processes() if process.is_busy()]
        if busy:
            assert network.turn < MOST_TURNS, f"no rest after {MOST_TURNS} turns"
            (busy[0] if len(busy) == 1 else network.random.choice(busy)).turn()
            return True
        for process in self.processes():
            process.sleeps()
        following = min(network.next_at(), *(process.next_timer() for process in self.processes()))
        if following == float("inf"):
            network.now = deadline
            return False
        network.now = max(network.now, min(following, deadline))
        return True

    def stop(self) -> None:
        """Everything leaves; afterwards nothing may be left."""
        with self.server_process.running():
            self.server.close()
        for agent in self.agents:
            agent.leave()
        for probe in self.probes:
            probe.wire.close()
        for flood in self.floods:
            flood.wire.close()
        self.run_for(REST_SECONDS)


def _listener(listener: object) -> SimListener:
    sock = getattr(listener, "_sock", None)
    assert isinstance(sock, SimListener)
    return sock


def _settings(plan: RunPlan) -> ServerSettings:
    return ServerSettings(
        server_id="simulated",
        frontend=UnixFrontend(Path("/nonexistent/simulated.sock")),
        agent_listen=ListenAddress("10.0.0.1", AGENT_PORT),
        agent_tls=TlsFiles(),
        mode=FrontendMode.GRPC if plan.grpc else FrontendMode.HTTP_CONNECT,
        agent_keepalive=KEEPALIVE,
        frontend_keepalive=KEEPALIVE,
        dial_timeout_seconds=30.0,
        idle_tunnel_seconds=IDLE_SECONDS if plan.fault == "vanish" else 0.0,
    )


class Outcome:
    """What is left of a run."""

    def __init__(self, plan: RunPlan, network: Network) -> None:
        self.plan: Final = plan
        self.digest = network.digest()
        self.lines: Final = network.last_lines()
        self.faults: Final[list[str]] = []
        self.bytes_moved = 0
        self.tunnels = 0
        self.turns = network.turn
        self.seconds = network.now


class _ErrorLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: Final[list[str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "internal error" in text or record.exc_info:
            self.lines.append(text)


@contextmanager
def _log() -> Iterator[list[str]]:
    """Only lines that tell of a bug are made; formatting the others would take most of the time."""
    logger, errors = logging.getLogger("umbilical"), _ErrorLines()
    level, propagates = logger.level, logger.propagate
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    logger.addHandler(errors)
    try:
        yield errors.lines
    finally:
        logger.removeHandler(errors)
        logger.setLevel(level)
        logger.propagate = propagates


def simulate(seed: int, plan: RunPlan | None = None) -> Outcome:
    """Run one seed and check everything."""
    from tests.simulation import checks

    plan = plan or plan_of(seed)
    network = Network(seed)
    with simulated(network), _log() as errors:
        world = World(plan, network)
        world.start()
        broken = ""
        try:
            world.run_until_over()
        except Exception as error:
            broken = f"an exception left the loop: {error!r}"
        outcome = Outcome(plan, network)
        outcome.bytes_moved = sum(run.at_client.count for run in world.runs)
        outcome.bytes_moved += sum(end.arrivals.count for run in world.runs for end in run.connections)
        outcome.tunnels = sum(run.opened for run in world.runs)
        if broken:
            outcome.faults.append(broken)
            return outcome
        outcome.faults.extend(checks.of_run(world, errors))
        world.stop()
        outcome.faults.extend(checks.of_rest(world))
    return outcome
