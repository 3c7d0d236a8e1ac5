"""One client, endpoint or handler that raises: what broke is closed, counted and logged, and the rest lives."""

import logging
import socket
from typing import Any

import pytest
from tests.support import packet_messages
from tests.support.data_plane import Diary, settle, turn_until
from tests.support.fixture_types import Logged
from tests.support.in_process import RunningAgent, RunningServer, Stage, echo
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import (
    ScriptedServer,
    dial_through,
    expect,
    open_client_channel,
    open_proxy_stream,
    scripted_pair,
)
from tests.support.socket_pairs import unix_pair
from tests.support.tunnel_client import DialRefused, Tunnel, assert_echoes

from umbilical.konnectivity import links
from umbilical.konnectivity.dial_failure import DialFailure
from umbilical.konnectivity.links import ESTABLISHED, AgentLink
from umbilical.tunnel import faults
from umbilical.tunnel.dialing import Dial
from umbilical.tunnel.faults import FaultLog
from umbilical.tunnel.loop import Deadlines, Loop
from umbilical.tunnel.settings import Limits

SHARED = Limits(own_streams=False)


class BrokenEnd:
    """An end of a tunnel that raises in all its methods; the real one, if any, closes after it."""

    def __init__(self, end: Any = None) -> None:
        self._end = end
        self.crashes: list[str] = []

    def _raise(self) -> None:
        raise RuntimeError("a bug of ours")

    def published_ids(self) -> dict[tuple[str, int], set[str]]:
        raise RuntimeError("a bug of ours")

    def deliver(self, view: memoryview) -> None:
        self._raise()

    def peer_ended(self) -> None:
        self._raise()

    def peer_reset(self, code: int) -> None:
        self._raise()

    def opened(self, tunnel: links.Tunnel) -> None:
        self._raise()

    def refused(self, failure: DialFailure) -> None:
        self._raise()

    def closed(self, error: str, cause: str) -> None:
        self._raise()

    def pause(self) -> None:
        self._raise()

    def resume(self) -> None:
        self._raise()

    def end_idle(self, cause: str) -> None:
        self._raise()

    def flush_and_close(self) -> None:
        self._raise()

    def abort(self, cause: str) -> None:
        self._raise()

    def byte_counts(self) -> tuple[int, int]:
        return 0, 0

    def identity(self) -> str:
        return "CN=a client"

    def waiting(self) -> tuple[int, bool]:
        return 0, False

    def on_crash(self, error: Exception) -> None:
        self.crashes.append(str(error))
        if self._end is not None:
            self._end.on_crash(error)


def raised(place: str) -> RuntimeError:
    try:
        raise RuntimeError(place)
    except RuntimeError as error:
        return error


def counted(stage: Stage) -> dict[str, int]:
    counts = stage.call(lambda: dict(stage.loop.data_plane.faults.counts))
    return {place: count for place, count in counts.items() if count}


@pytest.mark.parametrize("place", ["events", "again", "flush", "timer"])
def test_a_handler_that_raises_at_its_own_end_ends_nobody_else(plane: Loop, place: str) -> None:
    ours, peer = unix_pair()
    broken, sound = Diary(), Diary()
    broken.fails_in, broken.fails_at_its_end = place, True
    plane.add(ours.fileno(), broken, False)
    peer.send(b"x")
    for diary in (broken, sound):
        plane.again(diary)
        plane.touch(diary)
        plane.after(0.0, diary)
    settle(plane)
    assert sorted(sound.lines) == ["again", "flush", "timer"]
    assert plane.faults.counts[faults.CLOSE] == 1
    plane.remove(ours.fileno())


def test_deadlines_survive_a_handler_that_raises_at_its_own_end(plane: Loop) -> None:
    deadlines = Deadlines(plane, 0.01)
    broken, sound, later = Diary(), Diary(), Diary()
    broken.fails_in, broken.fails_at_its_end = "timer", True
    deadlines.add(broken)
    deadlines.add(sound)
    turn_until(plane, lambda: sound.lines)
    deadlines.add(later)
    turn_until(plane, lambda: later.lines)
    assert plane.faults.counts == dict.fromkeys(faults.PLACES, 0) | {faults.TIMER: 1, faults.CLOSE: 1}


def test_a_bug_is_logged_with_its_trace_once_and_counted_each_time(caplog: Logged) -> None:
    log = FaultLog()
    for _ in range(100):
        log.note(faults.COMMAND, raised("first"), 10.0)
    assert caplog.text.count("UMB425 internal error in command: RuntimeError at test_faults.py") == 1
    assert caplog.text.count("Traceback") == 1
    assert log.counts[faults.COMMAND] == 100
    log.note(faults.DELIVERY, raised("elsewhere"), 10.0)
    assert caplog.text.count("Traceback") == 2
    caplog.clear()
    log.note(faults.COMMAND, raised("much later"), 1_000.0)
    assert "(99 more since the last such line)" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_bug_is_counted_although_the_log_is_broken_too(request: pytest.FixtureRequest) -> None:
    def drop(_: logging.LogRecord) -> bool:
        raise RuntimeError("a bug of the log")

    log = logging.getLogger("umbilical.tunnel.faults")
    log.addFilter(drop)
    request.addfinalizer(lambda: log.removeFilter(drop))
    noted, broken = FaultLog(), BrokenEnd()
    noted.crash(broken, faults.EVENT, raised("x"), 10.0)
    assert (noted.counts[faults.EVENT], broken.crashes) == (1, ["x"])


def test_faults_are_in_the_metrics_from_the_start(stage: Stage) -> None:
    server, agent = stage.start_pair()
    for text in (server.server.render_metrics(), agent.agent.metrics.render(agent.gauges())):
        for place in faults.PLACES:
            assert f'umbilical_faults_total{{place="{place}"}} 0\n' in text.decode()


def own_ends(server: RunningServer) -> list[Any]:
    """The streams of all tunnels at the server, oldest first."""
    (agent,) = server.server.core.agents.values()
    return [stream for stream in agent.transport.connection.streams.by_id.values() if stream.owner is not None]


def break_stream(stream: Any) -> None:
    stream.owner = BrokenEnd(stream.owner)


def three_tunnels(stage: Stage, server: RunningServer) -> tuple[list[Tunnel], list[socket.socket]]:
    endpoint = stage.endpoint()
    tunnels, far = [], []
    for _ in range(3):
        tunnels.append(server.frontend.open(endpoint.address))
        far.append(endpoint.accept())
    return tunnels, far


def is_over(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def is_closed(tunnel: Tunnel) -> bool:
    try:
        return tunnel.receive(1) == b""
    except (ConnectionResetError, DialRefused):
        return True


def assert_others_live(tunnels: list[Tunnel], far: list[socket.socket]) -> None:
    for tunnel, sock in list(zip(tunnels, far, strict=True))[::2]:
        tunnel.send(b"there")
        assert sock.recv(5) == b"there"
        sock.sendall(b"back")
        assert tunnel.receive(4) == b"back"


@pytest.mark.parametrize("mode", ["http-connect", "grpc"])
def test_a_client_that_raises_costs_its_tunnel_and_the_endpoint_learns_of_it(stage: Stage, mode: str) -> None:
    server, _ = stage.start_pair(mode)
    tunnels, far = three_tunnels(stage, server)
    stage.call(lambda: break_stream(own_ends(server)[1]))
    far[1].sendall(b"payload that nobody takes")
    assert is_over(far[1])
    assert is_closed(tunnels[1])
    assert_others_live(tunnels, far)
    assert counted(stage) == {faults.DELIVERY: 1}
    assert server.gauges().established_connections == 2
    assert b'umbilical_faults_total{place="delivery"} 1\n' in server.server.render_metrics()


@pytest.mark.parametrize("how", ["end", "reset"])
def test_a_client_that_raises_at_the_end_of_its_endpoint_costs_its_tunnel_alone(stage: Stage, how: str) -> None:
    server, _ = stage.start_pair()
    tunnels, far = three_tunnels(stage, server)
    stage.call(lambda: break_stream(own_ends(server)[1]))
    if how == "reset":
        far[1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    far[1].close()
    assert is_closed(tunnels[1])
    assert_others_live(tunnels, far)
    assert counted(stage) == {faults.DELIVERY: 1}


def plant(server: RunningServer, connection_id: int) -> tuple[AgentLink, BrokenEnd]:
    """A tunnel of the only agent whose client raises, ahead of all its others."""
    (link,) = server.server.core.links()
    broken = BrokenEnd()
    tunnel = links.Tunnel(broken, 99, "web:443", 0.0)
    tunnel.state, tunnel.link, tunnel.connection_id = ESTABLISHED, link, connection_id
    others = dict(link.connections)
    link.connections.clear()
    link.connections.update({connection_id: tunnel} | others)
    server.server.core.registry._established += 1
    return link, broken


def test_payload_for_a_client_that_raises_on_the_shared_stream_costs_its_tunnel_alone(stage: Stage) -> None:
    server, agent = scripted_pair(stage)
    tunnel = agent.carry(1)
    _, broken = stage.call(lambda: plant(server, 50))
    agent.send(packet_messages.data(50, b"lost"), packet_messages.data(1, b"in the same frame"))
    assert tunnel.receive(17) == b"in the same frame"
    assert broken.crashes == ["a bug of ours"]
    assert server.gauges().connect_streams == 1
    assert counted(stage) == {faults.DELIVERY: 1}


def test_a_client_that_raises_does_not_keep_the_others_from_learning_that_their_agent_is_gone(stage: Stage) -> None:
    server, agent = scripted_pair(stage)
    tunnels = [agent.carry(number) for number in (1, 2)]
    _, broken = stage.call(lambda: plant(server, 50))
    agent.close()
    assert [tunnel.receive(1) for tunnel in tunnels] == [b"", b""]
    assert broken.crashes == ["a bug of ours"]
    assert counted(stage) == {faults.COMMAND: 1}
    server.wait_until_quiet()


def test_a_client_that_raises_does_not_keep_idle_tunnels_from_their_end(stage: Stage) -> None:
    server, agent = scripted_pair(stage, idle_tunnel_seconds=0.2)
    tunnel = agent.carry(1)
    _, broken = stage.call(lambda: plant(server, 50))
    assert tunnel.receive(1) == b""
    assert set(broken.crashes) == {"a bug of ours"}


def _raise_for_the_first(line: logging.LogRecord) -> bool:
    if "connection=1 " in line.getMessage():
        raise RuntimeError("a bug of ours")
    return True


def test_a_client_that_raises_does_not_keep_its_connections_other_clients_from_their_end(
    stage: Stage, caplog: Logged, request: pytest.FixtureRequest
) -> None:
    server, agent = scripted_pair(stage, "grpc")
    channel = open_client_channel(server)
    for number in (1, 2):
        stream = open_proxy_stream(server, channel)
        stream.send(packet_messages.dial_request("web:443", number))
        agent.accept_dial(number)
        expect(stream, PacketType.DIAL_RSP)

    caplog.set_level(logging.INFO, "umbilical.tunnels")
    log = logging.getLogger("umbilical.tunnels")
    log.addFilter(_raise_for_the_first)
    request.addfinalizer(lambda: log.removeFilter(_raise_for_the_first))
    channel.close()
    assert [agent.receive(PacketType.CLOSE_REQ).closeRequest.connectID for _ in range(2)] == [1, 2]
    assert counted(stage) == {faults.CLOSE: 1}
    stage.eventually(lambda: server.server.core.proxy_streams == 0)


def sessions(agent: RunningAgent) -> list[Any]:
    return [link.session for link in agent.agent._links.values()]


def break_endpoint(agent: RunningAgent, index: int) -> None:
    record = list(sessions(agent)[0].connections.values())[index]
    broken = BrokenEnd(record.endpoint)
    (link,) = agent.agent._links.values()
    stream = link.connection.streams.by_id.get(record.connection_id)
    if stream is not None and stream.owner is not None:
        stream.owner = broken
    record.endpoint = broken


@pytest.mark.parametrize("limits", [Limits(), SHARED], ids=["own streams", "a shared stream"])
def test_an_endpoint_that_raises_costs_its_tunnel_and_the_client_learns_of_it(stage: Stage, limits: Limits) -> None:
    server, agent = stage.start_pair(limits=limits)
    tunnels, far = three_tunnels(stage, server)
    stage.call(lambda: break_endpoint(agent, 1))
    tunnels[1].send(b"payload that nobody takes")
    assert is_over(far[1])
    assert is_closed(tunnels[1])
    assert_others_live(tunnels, far)
    assert counted(stage) == {faults.DELIVERY: 1}
    assert agent.gauges().open_endpoint_connections == 2


def test_an_endpoint_that_raises_does_not_keep_the_others_from_learning_that_their_server_is_gone(
    stage: Stage,
) -> None:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port)
    stream = server.accept()
    agent.wait_until_ready()
    endpoint = stage.endpoint()
    far = []
    for dial_id in (1, 2, 3):
        dial_through(stream, endpoint.address, dial_id)
        far.append(endpoint.accept())
    stage.call(lambda: break_endpoint(agent, 0))
    stream.channel.close()
    assert all(is_over(sock) for sock in far)
    assert counted(stage) == {faults.COMMAND: 1}
    server.accept()
    agent.wait_until_ready()


def test_a_dial_that_raises_is_answered_and_its_link_lives(stage: Stage) -> None:
    server, agent = stage.start_pair()
    tunnel = server.frontend.open(stage.endpoint().serve(echo).address)

    def resolve(dial: Dial, host: str, port: int) -> None:
        raise RuntimeError("a bug of ours")

    agent.resolver.resolve = resolve  # type: ignore[method-assign]  # an object of the test, not of the data plane
    with pytest.raises(DialRefused, match="internal error"):
        server.frontend.open("web.example:443")
    assert_echoes(tunnel)
    assert counted(stage) == {faults.COMMAND: 1}
    stage.eventually(lambda: agent.agent.context.dialer.under_way() == 0)


class BrokenCounter:
    """Raises as often as it is asked."""

    def server_count(self) -> int | None:
        return None

    def published_addresses(self) -> list[tuple[str, int]]:
        raise RuntimeError("a bug of ours")


def test_a_task_that_raises_does_not_end_the_agent(stage: Stage, caplog: Logged) -> None:
    server, agent = stage.start_pair()
    tunnel = server.frontend.open(stage.endpoint().serve(echo).address)
    with caplog.at_level(logging.ERROR):
        stage.call(lambda: setattr(agent.agent, "counter", BrokenCounter()))
        stage.call(agent.agent.leases_changed)
        stage.eventually(lambda: stage.loop.data_plane.faults.counts[faults.TASK] > 3)
    assert_echoes(tunnel)
    assert not agent.connecting.done()
    assert caplog.text.count("Traceback") == 1
    stage.call(lambda: setattr(agent.agent, "counter", None))
