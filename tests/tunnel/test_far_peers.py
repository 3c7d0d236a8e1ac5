"""Server and agent a long way apart, with the real relay between them: windows grow for readers, and only for them."""

import socket
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest
from tests.support.in_process import RunningAgent, RunningServer, Stage, echo, source
from tests.support.tunnel_client import SocketTunnel, assert_echoes, receive_exactly

import peers
from umbilical.tunnel.round_trips import FAR_SECONDS
from umbilical.tunnel.settings import MIB, Limits
from umbilical.tunnel.transport import NEAR_TUNNEL_WINDOW_BYTES, TUNNEL_WINDOW_BYTES

pytestmark = pytest.mark.real("umbilical-relay")

ROUND_TRIP: Final = "--round-trip=60ms"
OWN, SHARED = Limits(), Limits(own_streams=False)


@pytest.fixture
def relays() -> Iterator[list[subprocess.Popen[bytes]]]:
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for relay in running:
        with relay:
            relay.kill()


def far_pair(
    stage: Stage, relays: list[subprocess.Popen[bytes]], limits: Limits = OWN
) -> tuple[RunningServer, RunningAgent]:
    server = stage.start_server("http-connect", limits=limits)
    program = peers.binary("umbilical-relay")
    assert program is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(program), f"--listen=127.0.0.1:{port}", f"--target=127.0.0.1:{server.agent_port}", ROUND_TRIP]
    relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    relays.append(relay)
    assert relay.stdout is not None
    assert relay.stdout.readline()
    agent = stage.start_agent(port, limits=limits)
    server.wait_for_agents()
    return server, agent


def opened(server: RunningServer, address: str) -> SocketTunnel:
    tunnel = server.frontend.open(address)
    assert isinstance(tunnel, SocketTunnel)
    return tunnel


def streams(server: RunningServer) -> list[Any]:
    """The Connect stream, or the tunnels' own; to be called in the loop's thread."""
    agents = server.server.core.agents.values()
    all_of_them = [stream for agent in agents for stream in agent.transport.connection.streams.by_id.values()]
    return [stream for stream in all_of_them if stream.plain] or all_of_them


@pytest.mark.parametrize(("limits", "near"), [(OWN, NEAR_TUNNEL_WINDOW_BYTES - TUNNEL_WINDOW_BYTES), (SHARED, 0)])
def test_the_window_of_a_transfer_grows_beyond_that_of_a_short_way_and_is_given_back(
    stage: Stage, relays: list[subprocess.Popen[bytes]], limits: Limits, near: int
) -> None:
    server, _ = far_pair(stage, relays, limits)
    budget = server.server.core.window_budget
    tunnel = opened(server, stage.endpoint().serve(source(96 * MIB)).address)
    receive_exactly(tunnel, 64 * MIB)
    (agent,) = stage.call(lambda: list(server.server.core.agents.values()))
    assert stage.call(lambda: agent.transport.measured().shortest_seconds) > FAR_SECONDS
    assert stage.call(lambda: budget.granted_bytes) > near
    receive_exactly(tunnel, 32 * MIB)
    tunnel.close()
    server.wait_until_quiet()
    if limits.own_streams:
        assert stage.call(lambda: budget.granted_bytes) == 0


def test_a_client_that_never_reads_holds_no_more_than_on_a_short_way(
    stage: Stage, relays: list[subprocess.Popen[bytes]]
) -> None:
    server, _ = far_pair(stage, relays)
    stuck = [opened(server, stage.endpoint().serve(source(64 * MIB)).address) for _ in range(2)]
    stage.eventually(lambda: all(stream.receive_window <= stream.window // 4 for stream in streams(server)))
    clients: list[Any] = stage.call(lambda: list(server.server.core.clients))
    waiting = stage.call(lambda: [client._outlet.waiting_bytes() for client in clients])
    assert all(0 < size <= NEAR_TUNNEL_WINDOW_BYTES for size in waiting)
    assert_echoes(opened(server, stage.endpoint().serve(echo).address))
    for tunnel in stuck:
        tunnel.close()
