"""What must hold when every tunnel of a run is over, and when server and agents have left."""

import re
from typing import TYPE_CHECKING, Final

from tests.simulation.agents import OurAgent
from tests.simulation.sockets import SimSocket

from umbilical.tunnel.transport import Transport

if TYPE_CHECKING:
    from tests.simulation.world import World

READS_PER_TURN: Final = 2
"""Of one connection with many tunnels: one for its event, and one because the turn before left something."""

IDLE_TURNS: Final = 50
"""In a row; a few happen where timers or queues find nothing to do."""


def of_run(world: "World", error_lines: list[str]) -> list[str]:
    """While server and agents still run."""
    found = [fault for run in world.runs for fault in run.faults()]
    for probe in world.probes:
        found += probe.faults
    found += _crashes(world, error_lines)
    found += _reads(world)
    found += [
        f"{process.name} spins: {process.most_idle_turns} turns without a rest that moved nothing"
        for process in world.processes()
        if process.most_idle_turns > IDLE_TURNS
    ]
    if not found:
        found += _tables(world)
    return found


def of_rest(world: "World") -> list[str]:
    """After everything has left."""
    found: list[str] = []
    core = world.server.core
    counts = {
        "transports": len(core.transports),
        "clients": len(core.clients),
        "agents": len(core.agents),
        "lingering": len(core.lingering),
        "handshakes": len(core.handshakes),
        "flushing": len(core.flushing),
        "stuck": len(core.stuck),
        "half closed": len(core.half_closed),
    }
    found += [f"server stopped with {name}: {count}" for name, count in counts.items() if count]
    for process in world.processes():
        if process.watched() or process.loop._handlers:
            found.append(f"{process.name} still watches {process.watched()} descriptors")
        if process.live_timers():
            found.append(f"{process.name} has timers left: {process.live_timers()}")
    ours = {process.name for process in world.processes()}
    left = [each for each in world.network.sockets.values() if each.process in ours and not each.closed]
    if left:
        found.append(f"{len(left)} sockets were never closed: {sorted(each.process for each in left)}")
    return found


def _crashes(world: "World", error_lines: list[str]) -> list[str]:
    if world.planted:
        return []
    found = [f"raised: {crash.text}" for process in world.processes() for crash in process.crashes]
    found += [f"logged: {line}" for line in error_lines]
    counted = re.findall(r"^umbilical_faults_total\S* (\d+)", world.server.render_metrics().decode(), re.MULTILINE)
    if sum(map(int, counted)):
        found.append(f"umbilical_faults_total is {counted}")
    return found[:5]


def _reads(world: "World") -> list[str]:
    """Work for one peer within one turn is bounded, whatever it sends."""
    most = world.network.most_reads_per_turn
    watched = {end.number for agent in world.our_agents() for end in (agent.sock, agent.sock.peer) if end is not None}
    strangers = [flood.wire.sock for flood in world.floods] + [probe.wire.sock for probe in world.probes]
    for far in [*(agent.sock for agent in world.agents), *strangers]:
        if isinstance(far.peer, SimSocket):
            watched.add(far.peer.number)
    return [
        f"connection {number} was read {most[number]} times in one turn"
        for number in sorted(watched)
        if most.get(number, 0) > READS_PER_TURN
    ]


def _tables(world: "World") -> list[str]:
    """Nothing is left of tunnels that are over; only agents are still connected."""
    core, found = world.server.core, []
    registry = core.registry
    counts = {
        "pending dials": registry.pending_count(),
        "established tunnels": registry.established_count(),
        "closing tunnels": registry.closing_count(),
        "clients": len(core.clients),
        "proxy streams": core.proxy_streams,
        "lingering": len(core.lingering),
        "stuck": len(core.stuck),
        "half closed": len(core.half_closed),
        "flushing": len(core.flushing),
    }
    found += [f"server has {name}: {count}" for name, count in counts.items() if count]
    for agent in core.agents.values():
        if agent.link.connections or agent.link.pending:
            found.append(f"link of {agent.link.agent_id} has tunnels")
        found += _connection(agent.transport, {agent.stream.stream_id}, f"server, {agent.link.agent_id}")
    for each in world.agents:
        if isinstance(each, OurAgent):
            found += _agent(each)
    return found


def _agent(agent: OurAgent) -> list[str]:
    found: list[str] = []
    if agent.dialer.under_way() or agent.dialer.queued():
        found.append(f"{agent.name} has dials")
    context = agent.context
    counts = {"lingering": len(context.lingering), "flushing": len(context.flushing), "stuck": len(context.stuck)}
    found += [f"{agent.name} has {name}: {count}" for name, count in counts.items() if count]
    for link in agent.links:
        if not link.is_idle():
            found.append(f"{agent.name} has connections: {sorted(link.session.connections)}")
        if link.stream is not None:
            found += _connection(link, {link.stream.stream_id}, agent.name)
    return found


def _connection(transport: Transport, expected: set[int], where: str) -> list[str]:
    connection, found = transport.connection, []
    if set(connection.streams.by_id) - expected:
        found.append(f"{where}: streams left: {sorted(set(connection.streams.by_id) - expected)}")
    if transport._waiting or transport._parked:
        found.append(f"{where}: {len(transport._waiting)} wait for room, {len(transport._parked)} for credit")
    if not connection.outbox.is_empty() or connection.outbox._block is not None:
        found.append(f"{where}: the outbox has {connection.outbox.queued_bytes()} bytes or a block")
    if any(stream.backlog for stream in connection.streams.by_id.values()):
        found.append(f"{where}: packets wait in a backlog")
    return found
