"""Agents at the server's door: metadata, packets out of place, streams that end, and two streams of one agent."""

import socket
from collections.abc import Callable

import pytest
from tests.support import packet_messages
from tests.support.in_process import PATIENCE_SECONDS, Stage, read_to_end
from tests.support.packet_messages import Packet, PacketType
from tests.support.scripted_peers import (
    CONNECT_PATH,
    Channel,
    ScriptedAgent,
    expect,
    open_agent_channel,
    open_ended,
    packets_so_far,
    refusal,
    scripted_pair,
)
from tests.support.tunnel_client import DialRefused, receive_exactly


def test_the_server_says_hello_before_any_packet(stage: Stage) -> None:
    _, agent = scripted_pair(stage, server_id="s-7", server_count=3)
    assert agent.hello["serverid"] == "s-7"
    assert agent.hello["servercount"] == "3"
    assert agent.hello["content-type"] == "application/grpc"
    assert agent.packets_so_far() == []


def test_metadata_that_breaks_the_rules_is_refused_in_upstreams_words(stage: Stage) -> None:
    server = stage.start_server()
    metadata = [("agentid", "a"), ("agentid", "b")]
    assert refusal(server, metadata) == ("2", "expected one agent ID in the context, got [a b]")
    assert server.gauges().connect_streams == 0


def test_an_unknown_method_is_unimplemented(stage: Stage) -> None:
    server = stage.start_server()
    path = "/AgentService/Disconnect"
    assert refusal(server, [("agentid", "a")], path) == ("12", f"unknown method {path}")


def test_a_call_that_ends_before_it_begins_is_refused(stage: Stage) -> None:
    server = stage.start_server()
    stream = open_ended(open_agent_channel(server), CONNECT_PATH)
    trailers = stream.ended_with()
    assert (trailers[":status"], trailers["grpc-status"]) == ("200", "13")
    assert server.gauges().connect_streams == 0


def test_an_agent_without_alpn_is_turned_away(stage: Stage) -> None:
    server = stage.start_server()
    context = stage.pki.authority.client_context(stage.pki.agent)
    tcp = socket.create_connection(("127.0.0.1", server.agent_port), timeout=PATIENCE_SECONDS)
    with context.wrap_socket(tcp, server_hostname="127.0.0.1") as tls:
        assert tls.recv(1) == b""
    stage.eventually(lambda: not server.server.core.transports)


def test_a_handshake_that_does_not_come_ends_the_connection(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    server = stage.start_server()
    with socket.create_connection(("127.0.0.1", server.agent_port), timeout=PATIENCE_SECONDS) as tcp:
        stage.eventually(lambda: len(server.server.core.transports) == 1)
        stage.skip(21, monkeypatch)
        assert tcp.recv(1) == b""


def test_data_of_nobodys_connection_is_answered_once(stage: Stage) -> None:
    _, agent = scripted_pair(stage)
    agent.send(*[packet_messages.data(9, b"orphan")] * 50, packet_messages.data(0, b"nobody"))
    (answer,) = agent.packets_so_far()
    assert (answer.type, answer.closeRequest.connectID) == (PacketType.CLOSE_REQ, 9)


def test_data_behind_the_end_of_a_tunnel_is_answered_once(stage: Stage) -> None:
    _, agent = scripted_pair(stage, "grpc")
    stream = agent.carry_proxied()
    agent.send(packet_messages.close_response(1), *[packet_messages.data(1, b"late")] * 20)
    assert expect(stream, PacketType.CLOSE_RSP).closeResponse.connectID == 1
    assert [packet.type for packet in agent.packets_so_far()] == [PacketType.CLOSE_REQ]
    assert packets_so_far(stream) == []


def test_packets_of_unknown_types_and_those_that_agents_do_not_send_are_ignored(stage: Stage) -> None:
    server, agent = scripted_pair(stage)
    agent.send(Packet(type=42), packet_messages.dial_request("web:1", 5), packet_messages.close_dial(6))
    assert agent.packets_so_far() == []
    assert server.gauges().connect_streams == 1


def test_a_packet_without_its_payload_ends_its_stream_and_the_server_lives(stage: Stage) -> None:
    server = stage.start_server()
    channel = open_agent_channel(server)
    offender = ScriptedAgent(server, "offender", channel=channel)
    neighbour = ScriptedAgent(server, "neighbour", channel=channel)
    offender.send(Packet(type=PacketType.CLOSE_REQ))
    trailers = offender.stream.ended_with()
    assert trailers["grpc-status"] == "3"
    assert "without its payload" in trailers["grpc-message"]
    server.wait_for_agents(1)
    neighbour.carry().close()


def test_an_agent_may_close_with_a_request_too(stage: Stage) -> None:
    server, agent = scripted_pair(stage)
    tunnel = agent.carry()
    agent.send(packet_messages.close_request(1))
    assert tunnel.receive(1) == b""
    server.wait_until_quiet()


def test_an_agent_that_closes_a_dial_ends_it(stage: Stage) -> None:
    server, agent = scripted_pair(stage, "grpc")
    dial = server.frontend.dial("web:443")
    agent.send(packet_messages.close_dial(agent.next_dial().random))
    with pytest.raises(DialRefused, match=r"^dial closed$"):
        dial.finish()


LEAVES = pytest.mark.parametrize(
    "leave",
    [lambda agent: agent.stream.finish(), lambda agent: agent.stream.cancel(), lambda agent: agent.channel.close()],
    ids=["ends its stream", "resets its stream", "vanishes"],
)
Leave = Callable[[ScriptedAgent], None]


@LEAVES
def test_a_pending_grpc_dial_fails_at_once_when_its_agent_goes(stage: Stage, leave: Leave) -> None:
    server, agent = scripted_pair(stage, "grpc")
    dial = server.frontend.dial("web:443")
    agent.next_dial()
    leave(agent)
    with pytest.raises(DialRefused, match="agent disconnected before the dial was answered"):
        dial.finish()
    server.wait_until_quiet()
    assert server.dial_failures() == {"backend_close": 1}


@LEAVES
def test_a_pending_connect_dial_fails_at_once_when_its_agent_goes(stage: Stage, leave: Leave) -> None:
    server, agent = scripted_pair(stage)
    sock = server.frontend.connect()
    sock.sendall(b"CONNECT web:443 HTTP/1.1\r\n\r\n")
    agent.next_dial()
    leave(agent)
    assert read_to_end(sock) == (
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
        b"Backend context error: context canceled\r\n"
    )
    server.wait_until_quiet()


def test_open_tunnels_end_with_their_agent_in_grpc_mode(stage: Stage) -> None:
    server, agent = scripted_pair(stage, "grpc")
    stream = agent.carry_proxied()
    agent.send(packet_messages.data(1, b"last words"))
    agent.close()
    assert expect(stream, PacketType.DATA).data.data == b"last words"
    answer = expect(stream, PacketType.CLOSE_RSP).closeResponse
    assert (answer.connectID, answer.error) == (1, "")
    assert server.gauges().established_connections == 0


@pytest.mark.parametrize("same_connection", [True, False])
def test_two_streams_of_one_agent_id_do_not_cross(stage: Stage, same_connection: bool) -> None:
    """Both number their connections from 1. The old stream's end leaves the new one's tunnel alone."""
    server = stage.start_server("grpc")
    channel: Channel = open_agent_channel(server)
    old = ScriptedAgent(server, "twin", channel=channel)
    old_tunnel = old.carry()
    new = ScriptedAgent(server, "twin", channel=channel if same_connection else None)
    server.wait_for_agents(2)
    old.send(packet_messages.data(1, b"old"))
    assert receive_exactly(old_tunnel, 3) == b"old"
    new.send(packet_messages.data(1, b"stray"))  # nobody's: the other stream's connection 1 is another one
    assert new.receive(PacketType.CLOSE_REQ).closeRequest.connectID == 1
    old.send(packet_messages.data(1, b"more"))
    assert receive_exactly(old_tunnel, 4) == b"more"
    old.stream.finish()
    assert old_tunnel.receive(1) == b""
    server.wait_for_agents(1)
    new_tunnel = new.carry(2)
    new.send(packet_messages.data(2, b"new"))
    assert receive_exactly(new_tunnel, 3) == b"new"


def test_a_draining_agent_is_spared_while_another_is_there_and_serves_when_alone(stage: Stage) -> None:
    server = stage.start_server()
    draining, steady = ScriptedAgent(server, "draining"), ScriptedAgent(server, "steady")
    draining.send(Packet(type=PacketType.DRAIN, drain={}))
    draining.channel.catch_up()
    for number in range(1, 11):
        steady.carry(number)
    assert draining.packets_so_far() == []
    steady.close()
    server.wait_for_agents(1)
    draining.carry()
