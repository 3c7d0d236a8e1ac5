"""The one fault of a run. Each marks the tunnels that it touches; all others must do what was planned."""

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.agents import UpstreamAgent
from tests.simulation.callers import ConnectCaller
from tests.simulation.network import START_SECONDS, Network
from tests.simulation.sockets import SimSocket, SimulatedBug
from tests.simulation.strangers import FLOODS, Flood
from tests.simulation.tunnels import Ending, TunnelRun

if TYPE_CHECKING:
    from tests.simulation.agents import SimAgent
    from tests.simulation.world import World

EXHAUSTED_SECONDS: Final = 1.0
STALL_SECONDS: Final = (0.3, 3.0)
AGAIN_SECONDS: Final = 0.03
SPLIT_BYTES: Final = 2_000
JITTER_SECONDS: Final = 0.03
CLIENT_CALLBACKS: Final = ("deliver", "closed", "peer_ended")
ENDPOINT_CALLBACKS: Final = ("deliver", "peer_ended", "flush_and_close", "abort")


def listen(network: Network, run: TunnelRun) -> None:
    """What a dial of this tunnel meets."""
    if run.plan.ending is Ending.REFUSED:
        network.endpoints[run.target] = errno.ECONNREFUSED
    elif run.plan.ending in (Ending.TIMEOUT, Ending.CANCEL):
        network.endpoints[run.target] = None
    else:
        network.endpoints[run.target] = run.dialled


def strike(world: "World") -> None:
    world.network.note(b"fault " + world.plan.fault.encode(), 0, 0)
    _FAULTS[world.plan.fault](world)


def _ends(agent: "SimAgent") -> tuple[SimSocket, SimSocket]:
    sock = agent.sock
    assert sock.peer is not None
    return sock, sock.peer


def _touch_agent(world: "World", agent: "SimAgent", what: str) -> int:
    """Mark the tunnels of this agent; return how many there are."""
    touched = [run for run in world.runs if not run.is_over() and agent.name in run.processes()]
    for run in touched:
        run.hit = what
    return len(touched)


def _later(world: "World") -> bool:
    """Nothing to strike at now: try again soon, as long as tunnels may come."""
    if world.is_over():
        return False
    world.network.after(AGAIN_SECONDS, strike, world)
    return True


def cut(world: "World") -> None:
    """An agent's connection is reset."""
    agent = world.network.random.choice(world.agents)
    if not _touch_agent(world, agent, "cut") and _later(world):
        return
    agent.sock.cut()


def stall(world: "World") -> None:
    """An agent's connection carries nothing for a while, in one direction or both, and then goes on."""
    random = world.network.random
    until = world.network.now + random.uniform(*STALL_SECONDS)
    ends = _ends(random.choice(world.agents))
    for end in random.choice((ends, ends[:1], ends[1:])):
        end.line.stalled_until = until


def split(world: "World") -> None:
    """An agent's connection carries one byte at a time."""
    for end in _ends(world.network.random.choice(world.agents)):
        end.line.single_bytes = SPLIT_BYTES


def jitter(world: "World") -> None:
    """Every connection has its own, changing delay: what happens on two is seen in any order."""
    for sock in list(world.network.sockets.values()):
        if isinstance(sock, SimSocket):
            sock.line.jitter_seconds = JITTER_SECONDS


def flood(world: "World") -> None:
    """A stranger, or an agent, sends frames without end."""
    kind = world.network.random.choice(("packets", *FLOODS))
    world.floods.append(Flood(world.network, world.agent_listener, kind))


def vanish(world: "World") -> None:
    """A client's machine is gone without a word."""
    open_now = [run for run in world.runs if run.opened and not run.client_end]
    callers = [caller for caller in world.callers if isinstance(caller, ConnectCaller) and not caller.wire.closed]
    if not open_now or not callers:
        _later(world)
        return
    caller = world.network.random.choice(callers)
    run = caller.run
    run.hit = "vanish"
    run.client_end = run.client_end or "vanished"
    sock = caller.wire.sock
    sock.on_edge = None
    assert sock.peer is not None
    sock.line.is_dead = sock.peer.line.is_dead = True


def exhausted(world: "World") -> None:
    """Nobody gets a descriptor for a while."""
    network = world.network
    network.exhausted_until = network.now + EXHAUSTED_SECONDS
    since_start = network.now - START_SECONDS - world.connecting_seconds
    for run in world.runs:
        if not run.opened and run.plan.starts_after < since_start + EXHAUSTED_SECONDS + 0.2:
            run.hit = "exhausted"


def silence(world: "World") -> None:
    """An agent's machine is gone without a word; keepalive finds out."""
    agent = world.network.random.choice(world.agents)
    if not _touch_agent(world, agent, "silence") and _later(world):
        return
    for end in _ends(agent):
        end.line.is_dead = True
    if isinstance(agent, UpstreamAgent):
        agent.notice_silence()


def raising(world: "World") -> None:
    """A callback of one end of one tunnel raises, once; perhaps while its agent is lost with all its tunnels."""
    random = world.network.random
    found = _raisers(world)
    if not found:
        _later(world)
        return
    owner, method, address, agent = found[random.randrange(len(found))]
    for run in world.runs:
        if address == f"{run.target[0]}:{run.target[1]}":
            run.hit = f"raise in {type(owner).__name__}.{method}"
    world.planted = True
    setattr(owner, method, _Raiser(owner, method))
    world.network.note(f"raise {type(owner).__name__}.{method} {address}".encode(), 0, 0)
    if method in ("closed", "abort"):
        _touch_agent(world, agent, "cut beside a callback that raises")
        agent.sock.cut()


def _raisers(world: "World") -> list[tuple[Any, str, str, "SimAgent"]]:
    by_name = {agent.name: agent for agent in world.agents}
    found: list[tuple[Any, str, str, SimAgent]] = []
    for link in world.server.core.links():
        for tunnel in link.connections.values():
            for method in CLIENT_CALLBACKS:
                if hasattr(tunnel.client, method) and link.agent_id in by_name:
                    found.append((tunnel.client, method, tunnel.address, by_name[link.agent_id]))
    for agent in world.our_agents():
        for own in agent.links:
            for record in own.session.connections.values():
                if record.endpoint is not None:
                    found += [(record.endpoint, method, record.address, agent) for method in ENDPOINT_CALLBACKS]
    return found


class _Raiser:
    """In place of a method: raises once."""

    def __init__(self, owner: Any, method: str) -> None:
        self._owner: Final = owner
        self._method: Final = method

    def __call__(self, *arguments: Any) -> None:
        delattr(self._owner, self._method)
        raise SimulatedBug(f"{type(self._owner).__name__}.{self._method}")


_FAULTS: Final[dict[str, Callable[["World"], None]]] = {
    "cut": cut,
    "stall": stall,
    "split": split,
    "jitter": jitter,
    "flood": flood,
    "raise": raising,
    "vanish": vanish,
    "exhausted": exhausted,
    "silence": silence,
}
