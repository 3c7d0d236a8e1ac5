"""Silent peers are detected within seconds; TCP counters show whether the peer or the network is at fault."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from tests.support import packet_messages
from tests.support.compiled_unit import is_compiled
from tests.support.data_plane import settle, turn_until
from tests.support.fixture_types import Logged, Patch
from tests.support.in_process import PATIENCE_SECONDS, Stage, echo
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import ScriptedAgent, expect, open_proxy_stream
from tests.support.transports import Line, connection, is_greeted, joined
from tests.support.tunnel_client import assert_echoes

from umbilical.tunnel import keepalive
from umbilical.tunnel.keepalive import PathWatch
from umbilical.tunnel.loop import Handler, Loop, Timer
from umbilical.tunnel.tcp_facts import TcpFacts, tcp_facts


class Told:
    """Records the reports of a watch as texts."""

    def __init__(self, line: Line, monkeypatch: Patch) -> None:
        self.lines: list[str] = []
        monkeypatch.setattr(line, "on_silent", lambda seconds, ack: self.lines.append(f"silent {ack}"))
        monkeypatch.setattr(line, "on_answered", lambda seconds: self.lines.append("answered"))
        monkeypatch.setattr(line, "on_loss", lambda again, sent, seconds: self.lines.append(f"lost {again}/{sent}"))


@pytest.fixture
def quick(monkeypatch: Patch) -> None:
    if is_compiled():
        pytest.skip("its times are constants, and those are part of the compiled code")
    for name, seconds in (
        ("TICK", 0.01),
        ("QUIET_TICK", 0.01),
        ("SILENCE", 0.02),
        ("ANSWER", 0.02),
        ("TOGETHER", 0.001),
    ):
        monkeypatch.setattr(keepalive, f"{name}_SECONDS", seconds)


def watched(plane: Loop, monkeypatch: Patch) -> tuple[Line, Line, Told]:
    """Both ends of a connection after its start, and the reports of ours."""
    ours, peer = joined(plane, connection(True), connection(False))
    turn_until(plane, lambda: is_greeted(ours, peer))
    settle(plane)
    return ours, peer, Told(ours, monkeypatch)


def turns(plane: Loop, count: int) -> None:
    for _ in range(count):
        plane.turn(0.01)


def facts(monkeypatch: Patch, tell: Callable[[], TcpFacts | None]) -> None:
    monkeypatch.setattr(keepalive, "tcp_facts", lambda sock: tell())


@pytest.mark.usefixtures("quick")
def test_quiet_connections_look_at_common_times(plane: Loop, monkeypatch: Patch) -> None:
    """Otherwise each of thousands of agents would wake the loop alone."""
    monkeypatch.setattr(keepalive, "QUIET_TICK_SECONDS", 0.08)
    monkeypatch.setattr(keepalive, "TOGETHER_SECONDS", 0.02)
    ours, peer, _ = watched(plane, monkeypatch)
    due: list[float] = []
    after = plane.after

    def noted(seconds: float, handler: Handler) -> Timer:
        if seconds > 0.05:
            due.append((plane.now + seconds) / 0.02)
        return after(seconds, handler)

    monkeypatch.setattr(plane, "after", noted)
    watches = [PathWatch(ours), PathWatch(peer)]
    turn_until(plane, lambda: len(due) >= 6)
    for watch in watches:
        watch.stop()
    assert due == pytest.approx([round(time) for time in due])


@pytest.mark.usefixtures("quick")
def test_a_peer_that_answers_is_asked_once_behind_its_activity(plane: Loop, monkeypatch: Patch) -> None:
    monkeypatch.setattr(keepalive, "ANSWER_SECONDS", PATIENCE_SECONDS)  # a stall of this machine is no silence
    ours, peer, told = watched(plane, monkeypatch)
    pings: list[bytes] = []
    ping = ours.connection.sender.ping

    def noted(payload: bytes) -> None:
        pings.append(payload)
        ping(payload)

    monkeypatch.setattr(ours.connection.sender, "ping", noted)
    watch = PathWatch(ours)
    turn_until(plane, lambda: len(pings) == 1)
    turns(plane, 30)
    assert len(pings) == 1, "nothing happens, so nothing is asked"
    peer.connection.sender.ping(b"12345678")
    peer.touch()
    turn_until(plane, lambda: len(pings) == 2)
    turns(plane, 30)
    assert len(pings) == 2
    assert told.lines == []
    watch.stop()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("unacknowledged", "word"), [(0, "silent True"), (2, "silent False")])
def test_a_peer_that_answers_nothing_is_told_and_so_is_its_return(
    plane: Loop, monkeypatch: Patch, unacknowledged: int, word: str
) -> None:
    ours, peer, told = watched(plane, monkeypatch)
    facts(monkeypatch, lambda: TcpFacts(unacknowledged, 0, 10))
    plane.remove(peer.channel.descriptor)
    watch = PathWatch(ours)
    turn_until(plane, lambda: bool(told.lines))
    assert told.lines[0] == word
    plane.add(peer.channel.descriptor, peer.channel, writable=False)
    turn_until(plane, lambda: told.lines[-1] == "answered")
    count = len(told.lines)
    turns(plane, 20)
    assert len(told.lines) == count
    watch.stop()


@pytest.mark.usefixtures("quick")
def test_losses_are_reported_above_a_number_and_a_share(plane: Loop, monkeypatch: Patch) -> None:
    monkeypatch.setattr(keepalive, "SILENCE_SECONDS", PATIENCE_SECONDS)  # no question of its own on a slow machine
    ours, peer, told = watched(plane, monkeypatch)
    seen = [TcpFacts(0, 2, 20), TcpFacts(0, 4, 60), TcpFacts(0, 6, 9_000)]
    looks: list[TcpFacts] = []

    def look() -> TcpFacts:
        looks.append(seen[min(len(looks), len(seen) - 1)])
        return looks[-1]

    facts(monkeypatch, look)
    watch = PathWatch(ours)
    for count in range(1, 7):
        peer.connection.sender.ping(b"12345678")  # something is heard before every look
        peer.touch()
        turn_until(plane, lambda: len(looks) >= count)  # noqa: B023
    assert told.lines == ["lost 4/60"]
    watch.stop()


@pytest.mark.usefixtures("quick")
def test_where_nothing_at_all_gets_through_no_losses_are_reported(plane: Loop, monkeypatch: Patch) -> None:
    ours, peer, told = watched(plane, monkeypatch)
    plane.remove(peer.channel.descriptor)
    facts(monkeypatch, lambda: TcpFacts(4, 4, 10))
    watch = PathWatch(ours)
    turn_until(plane, lambda: len(told.lines) > 3)
    assert set(told.lines) == {"silent False"}
    watch.stop()


@pytest.mark.usefixtures("quick")
def test_a_ping_that_got_through_with_pains_is_a_loss_and_no_fault_of_the_peer(plane: Loop, monkeypatch: Patch) -> None:
    ours, peer, told = watched(plane, monkeypatch)
    plane.remove(peer.channel.descriptor)
    again = iter(range(100))
    facts(monkeypatch, lambda: TcpFacts(0, next(again), 100))
    watch = PathWatch(ours)
    turn_until(plane, lambda: bool(told.lines))
    assert told.lines[0].startswith("lost ")
    watch.stop()


@pytest.mark.usefixtures("quick")
def test_silence_behind_a_single_loss_is_the_peers(plane: Loop, monkeypatch: Patch) -> None:
    ours, peer, told = watched(plane, monkeypatch)
    plane.remove(peer.channel.descriptor)
    seen = [TcpFacts(0, 0, 100), TcpFacts(0, 1, 100)]
    facts(monkeypatch, lambda: seen.pop(0) if len(seen) > 1 else seen[0])
    watch = PathWatch(ours)
    turn_until(plane, lambda: len(told.lines) >= 2)
    assert told.lines[:2] == ["lost 1/100", "silent True"]
    watch.stop()


def warnings(caplog: Logged, code: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith(code)]


def test_a_server_reports_an_agent_that_is_stopped_and_its_return(
    stage: Stage, caplog: Logged, monkeypatch: Patch
) -> None:
    """A real process, really stopped: its kernel goes on acknowledging, so the network is not to blame."""
    monkeypatch.setattr(keepalive, "ANSWER_SECONDS", PATIENCE_SECONDS)  # one that is only slow is not told of
    caplog.set_level("INFO", "umbilical")
    server = stage.start_server("grpc")
    agent = _agent_process(stage, server.agent_port)
    try:
        server.wait_for_agents()
        os.kill(agent.pid, signal.SIGSTOP)
        stream = open_proxy_stream(server)
        stream.send(packet_messages.dial_request("127.0.0.1:9", 7))
        stage.eventually(lambda: server.server.core.gauges().pending_dials == 1)
        (agent_stream,) = server.server.core.agents.values()
        # Two segments on the way at once would be sent again before a stopped process's kernel acknowledges them.
        stage.eventually(lambda: _is_acknowledged(agent_stream.transport.channel.sock))
        for _ in range(3):  # looks: it has moved, it is silent, it was asked
            stage.skip(keepalive.SILENCE_SECONDS + 1, monkeypatch)
        stage.eventually(lambda: _is_acknowledged(agent_stream.transport.channel.sock))
        stage.skip(PATIENCE_SECONDS, monkeypatch)
        _until(lambda: bool(warnings(caplog, "UMB406")))
        line = warnings(caplog, "UMB406")[0]  # told again after a while, which the moved clock may have brought
        assert "agent=stopped " in line
        assert "tunnels=0 dials=1: it does not even answer a ping, though its machine takes what we send" in line
        os.kill(agent.pid, signal.SIGCONT)
        assert "connection refused" in expect(stream, PacketType.DIAL_RSP).dialResponse.error
        _until(lambda: "agent answers again after" in caplog.text)
    finally:
        agent.kill()
        agent.wait(PATIENCE_SECONDS)


def test_a_network_that_acknowledges_nothing_is_distinguished(stage: Stage, caplog: Logged, monkeypatch: Patch) -> None:
    monkeypatch.setattr(keepalive, "TICK_SECONDS", 0.05)
    facts(monkeypatch, lambda: TcpFacts(3, 0, 40))
    server = stage.start_server("grpc")
    ScriptedAgent(server)
    stage.skip(2.5, monkeypatch)
    time.sleep(0.2)
    stage.skip(2.5, monkeypatch)
    stage.eventually(lambda: bool(warnings(caplog, "UMB407")))
    assert "its machine acknowledges nothing: the network between is broken" in warnings(caplog, "UMB407")[0]


def test_losses_on_the_path_to_an_agent_are_reported_while_tunnels_continue(
    stage: Stage, caplog: Logged, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(keepalive, "TICK_SECONDS", 0.05)
    facts(monkeypatch, lambda: TcpFacts(1, 30, 100))
    server, _ = stage.start_pair()
    tunnel = server.frontend.open(stage.endpoint().serve(echo).address)
    assert_echoes(tunnel, b"hello")
    stage.eventually(lambda: bool(warnings(caplog, "UMB409")))
    (line,) = warnings(caplog, "UMB409")
    assert "agent=agent-0 peer=127.0.0.1:" in line
    assert "packets to it get lost, 30 of 100 segments within " in line
    tunnel.close()


def _is_acknowledged(sock: socket.socket) -> bool:
    found = tcp_facts(sock)
    return found is not None and found.unacknowledged == 0


def _until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not fact():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def _agent_process(stage: Stage, port: int) -> "subprocess.Popen[bytes]":
    pki = stage.pki
    command = [
        sys.executable, "-m", "umbilical", "agent", "run", "--server", f"127.0.0.1:{port}", "--id", "stopped",
        "--ca", str(pki.authority.certificate_file), "--cert", str(pki.agent.certificate),
        "--key", str(pki.agent.key), "--health", "127.0.0.1:0", "--admin", "127.0.0.1:0",
        "--allow-destination", "127.0.0.1:9",
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
