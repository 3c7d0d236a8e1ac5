"""Idle tunnels are closed if configured, and those with traffic are not."""

import socket
import time

import pytest
from tests.support.data_plane import HandClock, settle, turn_until
from tests.support.in_process import RunningServer, Stage, echo
from tests.support.scripted_peers import ScriptedAgent
from tests.support.socket_pairs import tcp_pair, unix_pair
from tests.support.transports import REQUEST, Line, Source, connection, is_greeted, joined
from tests.support.tunnel_client import assert_echoes
from tests.wire.http2.ends import frame, greeting, split

from umbilical.cli.options import duration
from umbilical.tunnel.channel import Channel
from umbilical.tunnel.keepalive import Heartbeat
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.settings import PING_AFTER, PING_ANSWER, Keepalive
from umbilical.tunnel.tcp_facts import tcp_facts
from umbilical.wire.http2 import frames
from umbilical.wire.http2.events import HeadersReceived, PingAnswered
from umbilical.wire.http2.streams import Stream

SOON = Keepalive(interval_seconds=0.03, answer_seconds=0.03)
FAR = 3600.0


class Mute:
    """A peer at a raw socket: it sends the preface, and then answers only on request of the test."""

    def __init__(self, plane: Loop) -> None:
        ours, self.sock = unix_pair()
        self.line = Line(plane, Channel(plane, ours), connection(False))
        self.line.start()
        self.sock.send(greeting())
        turn_until(plane, lambda: is_greeted(self.line))
        settle(plane)
        self.sock.setblocking(False)
        self.heard()

    def heard(self) -> list[bytes]:
        """The payload of every PING since the last call."""
        try:
            octets = self.sock.recv(65_536)
        except BlockingIOError:
            return []
        return [one.payload for one in split(octets) if one.kind == frames.PING and not one.flags & frames.ACK]


def test_a_peer_that_does_not_answer_is_lost(plane: Loop) -> None:
    mute = Mute(plane)
    Heartbeat(mute.line, SOON)
    turn_until(plane, lambda: mute.line.closed)
    assert mute.line.reasons == ["keepalive: no answer to a PING within 0.03 s"]
    assert mute.heard(), "it must have been asked before"


def test_any_traffic_counts_as_an_answer(plane: Loop, clock: HandClock) -> None:
    """The peer never answers the PING itself, but it talks."""
    mute = Mute(plane)
    Heartbeat(mute.line, Keepalive(10.0, 10.0))
    asked = 0
    for _ in range(10):
        clock.advance(5.0)
        if mute.heard():
            asked += 1
            mute.sock.send(frame(frames.WINDOW_UPDATE, 0, 0, b"\x00\x00\x00\x01"))
    assert asked > 1
    assert mute.line.reasons == []


def test_a_peer_that_talks_all_the_time_is_not_asked(plane: Loop, clock: HandClock) -> None:
    client, server = joined(plane, connection(True), connection(False))
    turn_until(plane, lambda: is_greeted(client, server))
    stream = server_stream(plane, client, server)
    Heartbeat(client, Keepalive(10.0, FAR))
    for _ in range(10):
        Source(server, stream, b"x").pump()
        clock.advance(9.0)
    assert client.events.count(PingAnswered) == 0
    clock.advance(10.0)
    turn_until(plane, lambda: client.events.count(PingAnswered) == 1)


def server_stream(plane: Loop, client: Line, server: Line) -> Stream:
    client.connection.sender.open_stream(REQUEST)
    client.touch()
    turn_until(plane, lambda: HeadersReceived in server.events)
    (stream,) = server.connection.streams.by_id.values()
    server.connection.sender.send_headers(stream, [(b":status", b"200")])
    return stream


def test_a_stopped_heartbeat_sends_nothing(plane: Loop, clock: HandClock) -> None:
    mute = Mute(plane)
    heartbeat = Heartbeat(mute.line, Keepalive(0.01, 0.01))
    heartbeat.stop()
    clock.advance(0.05)
    clock.advance(0.05)
    assert mute.heard() == []
    assert mute.line.reasons == []


def test_a_transport_that_is_over_is_not_asked(plane: Loop, clock: HandClock) -> None:
    mute = Mute(plane)
    Heartbeat(mute.line, Keepalive(0.01, 0.01))
    mute.line.lose("we leave")
    clock.advance(0.05)
    clock.advance(0.05)
    assert mute.line.reasons == ["we leave"]
    assert plane._timers == []


def test_a_heartbeat_costs_one_timer(plane: Loop, clock: HandClock) -> None:
    client, server = joined(plane, connection(True), connection(False))
    turn_until(plane, lambda: is_greeted(client, server))
    Heartbeat(client, Keepalive(10.0, 10.0))
    for _ in range(20):
        clock.advance(5.0)
    assert client.events.count(PingAnswered) > 1
    assert len(plane._timers) == 1


@pytest.mark.parametrize("mode", ["http-connect", "grpc"])
def test_an_idle_tunnel_is_closed_with_the_cause_and_a_busy_one_stays(
    stage: Stage, mode: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "umbilical.tunnels")
    server, agent = stage.start_pair(mode, idle_tunnel_seconds=600.0)
    address = stage.endpoint().serve(echo).address
    idle, busy = server.frontend.open(address), server.frontend.open(address)
    for _ in range(6):  # looks are 150 s apart, and each must be seen to happen
        assert_echoes(busy, b"x")
        stage.skip(151, monkeypatch)
    assert idle.receive(1) == b""
    assert 'end="idle for 600 s"' in caplog.text
    assert_echoes(busy)
    busy.close()
    idle.close()
    server.wait_until_quiet()
    agent.wait_until_idle()


def test_without_the_option_nothing_looks(stage: Stage) -> None:
    server, _ = stage.start_pair()
    assert server.server._reaper is None


OUT_OF_USE_SECONDS = 45


class StandingClock:
    """A clock that only the test moves; the loop runs enough turns after it."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self._stage = stage
        self._now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: self._now)

    def advance(self, seconds: float) -> None:
        self._now += seconds
        for _ in range(10):  # a ping out, its answer, and both behind what else had to be said
            self._stage.call(lambda: None)
            time.sleep(0.001)


def agents_of(server: RunningServer) -> list[str]:
    return server.stage.call(lambda: [link.agent_id for link in server.server.core.links()])


def test_a_dead_agent_is_out_of_use_in_time_and_a_live_one_stays(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Detected without a dial. The socket of the dead peer stays open and is not read."""
    server = stage.start_server(agent_keepalive=Keepalive(duration(PING_AFTER), duration(PING_ANSWER)))
    ScriptedAgent(server, "dead")
    stage.start_agent(server.agent_port).wait_until_ready()
    server.wait_for_agents(2)
    clock = StandingClock(stage, monkeypatch)
    seconds = 0
    while "dead" in agents_of(server):
        assert seconds < OUT_OF_USE_SECONDS, "still in use"
        clock.advance(1.0)
        seconds += 1
    assert agents_of(server) == ["agent-0"]
    assert seconds >= duration(PING_AFTER), "it was given up before it was asked"


def test_a_healthy_connection_acknowledges_everything() -> None:
    ours, peer = tcp_pair()
    for _ in range(3):
        ours.send(b"hello")
        peer.recv(5)
    deadline = time.monotonic() + 10
    facts = tcp_facts(ours)
    while facts is not None and facts.unacknowledged and time.monotonic() < deadline:
        time.sleep(0.01)
        facts = tcp_facts(ours)
    assert facts is not None
    assert (facts.unacknowledged, facts.sent_again) == (0, 0)
    assert facts.segments_out >= 3


def test_other_sockets_have_no_such_facts() -> None:
    ours, peer = socket.socketpair()
    with ours, peer:
        assert tcp_facts(ours) is None
    assert tcp_facts(ours) is None
