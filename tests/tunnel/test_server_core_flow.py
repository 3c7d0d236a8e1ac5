"""Slow readers, whichever way they came in: a neighbour never waits for them, and their buffers have a bound."""

import contextlib
import threading
import time
from typing import Any, Final

import h2.events
import pytest
from tests.support import packet_messages
from tests.support.in_process import PATIENCE_SECONDS, RunningServer, Stage, echo, source
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import (
    PAUSE,
    RESUME,
    UNDERSTANDS_PAUSE,
    Channel,
    ScriptedAgent,
    control,
    expect,
    scripted_pair,
)
from tests.support.tunnel_client import PROXY_PATH, GrpcDial, Tunnel, assert_echoes, receive_exactly

from umbilical.tunnel.settings import Limits
from umbilical.tunnel.transport import TUNNEL_WINDOW_BYTES

KIB: Final = 1024
MIB: Final = 1024 * KIB
BULK: Final = 64 * MIB
SMALL: Final = Limits(tunnel_buffer_bytes=2 * MIB, pause_above_bytes=256 * KIB)
MODES = pytest.mark.parametrize("mode", ["http-connect", "grpc"])


def _waiting_bytes(server: RunningServer) -> int:
    """What the server holds for its slowest client."""
    tunnels = [tunnel for link in server.server.core.links() for tunnel in link.connections.values()]
    return max((_held_by(tunnel.client) for tunnel in tunnels), default=0)


def _held_by(client: Any) -> int:
    return len(client._down) if hasattr(client, "_down") else client._outlet.waiting_bytes()


@MODES
def test_a_slow_reader_gets_64_mib_whole_and_within_the_bound(stage: Stage, mode: str) -> None:
    """Between our own ends the endpoint is paused and resumed; nothing is lost, and little is held."""
    server = stage.start_server(mode, limits=SMALL)
    agent = stage.start_agent(server.agent_port)
    agent.wait_until_ready()
    tunnel = server.frontend.open(stage.endpoint().serve(source(BULK)).address)
    stage.eventually(lambda: _waiting_bytes(server) > TUNNEL_WINDOW_BYTES >> 1)  # it does not read at all yet
    time.sleep(0.1)
    received, most = 0, stage.call(lambda: _waiting_bytes(server))
    while chunk := tunnel.receive(MIB):
        received += len(chunk)
        if received % (4 * MIB) < len(chunk):
            most = max(most, stage.call(lambda: _waiting_bytes(server)))
            time.sleep(0.005)
    assert received == BULK
    assert most <= SMALL.tunnel_buffer_bytes
    tunnel.close()
    server.wait_until_quiet()


class ReluctantChannel(Channel):
    """Takes the bytes of one stream without giving it credit for more."""

    reluctant = 0

    def _apply(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived) and event.stream_id == self.reluctant:
            self.http2.increment_flow_control_window(event.flow_controlled_length)
        else:
            super()._apply(event)


def test_a_stream_that_does_not_read_stalls_no_other_stream_of_its_connection(stage: Stage) -> None:
    server, _ = stage.start_pair("grpc")
    channel = ReluctantChannel(server.frontend.connect())
    idle = channel.open(PROXY_PATH)
    channel.reluctant = idle.stream_id
    idle.send(packet_messages.dial_request(stage.endpoint().serve(source(16 * MIB)).address, 1))
    neighbour = GrpcDial(channel, stage.endpoint().serve(echo).address, owns_channel=False).finish()
    for number in range(50):
        neighbour.send(b"%d" % number)
        assert receive_exactly(neighbour, len(b"%d" % number)) == b"%d" % number


REASON: Final = f"client reads nothing: more than {2 * MIB} bytes waited 5 s"


def _fill_past_the_cap(stage: Stage, server: RunningServer, agent: ScriptedAgent, connection_id: int) -> None:
    while stage.call(lambda: _waiting_bytes(server)) <= SMALL.tunnel_buffer_bytes:
        agent.send(packet_messages.data(connection_id, bytes(32 * KIB)))


def test_without_pause_a_grpc_reader_that_stands_still_is_given_up_alone_and_told_why(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, agent = scripted_pair(stage, "grpc", limits=SMALL)
    slow, healthy = agent.carry_proxied(1), agent.carry_proxied(2)
    _fill_past_the_cap(stage, server, agent, 1)
    assert agent.packets_so_far() == []
    stage.skip(6, monkeypatch)
    assert agent.receive(PacketType.CLOSE_REQ).closeRequest.connectID == 1
    while (packet := slow.receive(PATIENCE_SECONDS)).type == PacketType.DATA:
        pass
    assert packet.closeResponse.error == REASON
    agent.send(packet_messages.data(2, b"and you?"))
    assert expect(healthy, PacketType.DATA).data.data == b"and you?"


def test_without_pause_a_connect_reader_that_stands_still_is_given_up_alone_and_the_log_says_why(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "umbilical.tunnels")
    server, agent = scripted_pair(stage, limits=SMALL)
    slow = agent.carry()
    healthy = agent.carry(2)
    _fill_past_the_cap(stage, server, agent, 1)
    assert agent.packets_so_far() == []
    stage.skip(6, monkeypatch)
    assert agent.receive(PacketType.CLOSE_REQ).closeRequest.connectID == 1
    assert f'code=UMB403 end="{REASON}"' in caplog.text
    assert f": tunnel closed: {REASON}" in caplog.text
    agent.send(packet_messages.close_response(1), packet_messages.data(2, b"and you?"))
    assert receive_exactly(healthy, 8) == b"and you?"
    slow.close()
    healthy.close()


@MODES
def test_without_pause_a_reader_that_is_slow_but_moves_gets_every_byte(stage: Stage, mode: str) -> None:
    """Its agent is held back by the window of the stream; ten times the cap arrives."""
    server, agent = scripted_pair(stage, mode, limits=SMALL)
    tunnel = agent.carry()
    sending = threading.Thread(target=_send_packets, args=(agent, 640))
    sending.start()
    received = most = 0
    while received < 640 * 32 * KIB and (chunk := tunnel.receive(64 * KIB)):
        received += len(chunk)
        if received % (512 * KIB) < len(chunk):
            time.sleep(0.005)
            most = max(most, stage.call(lambda: _waiting_bytes(server)))
    sending.join(PATIENCE_SECONDS)
    assert received == 640 * 32 * KIB
    assert most <= SMALL.tunnel_buffer_bytes + 5 * MIB  # what the window had let out already


def _send_packets(agent: ScriptedAgent, count: int) -> None:
    for _ in range(count):
        agent.send(packet_messages.data(1, bytes(32 * KIB)))


@MODES
def test_an_agent_that_knows_pause_is_asked_and_released(stage: Stage, mode: str) -> None:
    _, agent = scripted_pair(stage, mode, limits=SMALL, metadata=[UNDERSTANDS_PAUSE])
    tunnel = agent.carry()
    sent = 0
    while not (asked := agent.packets_so_far()):
        agent.send(packet_messages.data(1, bytes(32 * KIB)))
        sent += 32 * KIB
        assert sent < BULK
    assert [packet.type for packet in asked] == [PAUSE]
    assert len(receive_exactly(tunnel, sent)) == sent
    assert agent.receive(RESUME).type == RESUME
    tunnel.abort()


@MODES
def test_a_paused_client_is_not_read_and_its_bytes_follow_the_resume(stage: Stage, mode: str) -> None:
    _, agent = scripted_pair(stage, mode, metadata=[UNDERSTANDS_PAUSE])
    tunnel = agent.carry()
    agent.stream.send_raw(control(PAUSE, 1))
    agent.channel.catch_up()
    tunnel.send(b"held")
    assert agent.packets_so_far() == []
    agent.stream.send_raw(control(RESUME, 1))
    assert agent.receive(PacketType.DATA).data.data == b"held"


def test_a_grpc_client_that_closes_while_paused_has_its_bytes_delivered_first(stage: Stage) -> None:
    _, agent = scripted_pair(stage, "grpc", metadata=[UNDERSTANDS_PAUSE])
    stream = agent.carry_proxied()
    agent.stream.send_raw(control(PAUSE, 1))
    agent.channel.catch_up()
    stream.send(packet_messages.data(1, b"held"))
    stream.send(packet_messages.close_request(1))
    agent.stream.send_raw(control(RESUME, 1))
    assert agent.receive(PacketType.DATA).data.data == b"held"
    assert agent.receive(PacketType.CLOSE_REQ).closeRequest.connectID == 1


@MODES
def test_a_dial_is_not_kept_waiting_by_bulk_on_the_same_agent(stage: Stage, mode: str) -> None:
    """The agent reads nothing while a client uploads without end; the next dial still reaches it at once."""
    server, agent = scripted_pair(stage, mode)
    tunnel = agent.carry()
    sending = threading.Thread(target=_send_until_stuck, args=(tunnel,))
    sending.start()
    time.sleep(0.3)
    late = server.frontend.dial("late:1")
    stage.eventually(lambda: server.server.core.gauges().pending_dials == 1)
    ahead = 0
    while (packet := agent.stream.receive(PATIENCE_SECONDS)).type == PacketType.DATA:
        ahead += len(packet.data.data)
    assert packet.dialRequest.address == "late:1"
    assert ahead <= 1200 * KIB, "the dial stood behind more than what the window had let out already"
    late.abandon()
    agent.close()
    sending.join(PATIENCE_SECONDS)


def _send_until_stuck(tunnel: Tunnel) -> None:
    with contextlib.suppress(OSError):
        for _ in range(64):
            tunnel.send(bytes(MIB))


@MODES
def test_a_tunnel_leaves_one_line_on_each_side_however_many_packets_it_carried(
    stage: Stage, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    server, _ = stage.start_pair(mode)
    address = stage.endpoint().serve(echo).address
    caplog.set_level("INFO", "umbilical")
    caplog.clear()
    tunnel = server.frontend.open(address)
    for _ in range(100):
        assert_echoes(tunnel, b"ping")
    tunnel.close()
    server.wait_until_quiet()
    stage.eventually(lambda: len(caplog.records) >= 2)
    assert [record.name for record in caplog.records] == ["umbilical.tunnels"] * 2


@MODES
def test_a_client_that_reads_nothing_is_told_while_its_agent_pauses(
    stage: Stage, mode: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = stage.start_server(mode, limits=SMALL)
    agent = stage.start_agent(server.agent_port)
    agent.wait_until_ready()
    endpoint = stage.endpoint().serve(source(BULK))
    tunnel = server.frontend.open(endpoint.address)
    stage.eventually(lambda: _waiting_bytes(server) > TUNNEL_WINDOW_BYTES >> 1)
    _let_it_stand_still(stage, monkeypatch)
    stage.eventually(lambda: "UMB403" in caplog.text)
    (line,) = [record.getMessage() for record in caplog.records if "UMB403" in record.getMessage()]
    assert f"agent=agent-0 target={endpoint.address}: client reads nothing, " in line
    assert line.endswith("its agent pauses this tunnel, others go on")
    tunnel.close()


def test_an_endpoint_that_reads_nothing_is_told_by_its_agent(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = stage.start_server()
    agent = stage.start_agent(server.agent_port, limits=SMALL)
    agent.wait_until_ready()
    endpoint = stage.endpoint()
    tunnel = server.frontend.open(endpoint.address)
    connection = endpoint.accept()
    sender = threading.Thread(target=_send_until_it_breaks, args=(tunnel,))
    sender.start()
    (link,) = agent.agent._links.values()
    (record,) = link.session.connections.values()
    stage.eventually(lambda: getattr(record.endpoint, "_backlog", None) is not None)
    _let_it_stand_still(stage, monkeypatch)
    stage.eventually(lambda: "UMB403" in caplog.text)
    assert f"target={endpoint.address}: endpoint reads nothing, " in caplog.text
    connection.close()
    tunnel.close()
    sender.join(PATIENCE_SECONDS)


def _let_it_stand_still(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two looks of its watch: before the first it may have moved."""
    for _ in range(2):
        stage.skip(6, monkeypatch)
        time.sleep(0.1)


def _send_until_it_breaks(tunnel: Tunnel) -> None:
    with contextlib.suppress(OSError):
        for _ in range(BULK // MIB):
            tunnel.send(bytes(MIB))
