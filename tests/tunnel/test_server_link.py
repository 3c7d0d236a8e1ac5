"""The agent's end of its connection to a server, packet by packet."""

from typing import Any

import pytest
from tests.support import packet_messages
from tests.support.fixture_types import Logged
from tests.support.grpc_channel import GrpcStream
from tests.support.in_process import RunningAgent, Stage, echo
from tests.support.packet_messages import Packet, PacketType
from tests.support.scripted_peers import (
    CONNECT_PATH,
    GOAWAY,
    ScriptedServer,
    dial_through,
    expect,
    hello,
    packets_so_far,
    say_goodbye,
)


def linked(stage: Stage, **settings: object) -> tuple[ScriptedServer, RunningAgent, GrpcStream]:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port, **settings)
    stream = server.accept()
    agent.wait_until_ready()
    return server, agent, stream


def close_answers(packets: list[Any]) -> list[tuple[int, str]]:
    assert all(packet.type == PacketType.CLOSE_RSP for packet in packets)
    return [(packet.closeResponse.connectID, packet.closeResponse.error) for packet in packets]


def test_the_agent_introduces_itself_as_upstreams_does(stage: Stage) -> None:
    server = ScriptedServer(stage)
    stage.start_agent(server.port, agent_id="a-7", agent_identifiers="host=x&ipv4=10.0.0.1")
    headers = server.accept_call().request_headers
    assert headers[":path"] == CONNECT_PATH
    assert headers[":scheme"] == "https"
    assert headers["content-type"] == "application/grpc"
    assert headers["te"] == "trailers"
    assert headers["agentid"] == "a-7"
    assert headers["agentidentifiers"] == "host=x&ipv4=10.0.0.1"
    assert "authorization" not in headers


def test_a_server_without_a_proper_hello_is_left_and_tried_again(stage: Stage, caplog: Logged) -> None:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port)
    stream = server.accept_call()
    stream.channel.respond(stream, [("serverid", "s")])
    server.accept()
    agent.wait_until_ready()
    assert "expected one server count, got 0" in caplog.text


def test_a_refusal_by_trailers_alone_is_told_with_the_servers_words(stage: Stage, caplog: Logged) -> None:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port)
    stream = server.accept_call()
    refusal = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "2"), ("grpc-message", "no")]
    stream.channel.http2.send_headers(stream.stream_id, refusal, end_stream=True)
    stream.channel.flush()
    server.accept()
    agent.wait_until_ready()
    assert "server ended the stream: Unknown: no" in caplog.text


def test_the_dial_response_comes_before_the_endpoints_first_byte(stage: Stage) -> None:
    _, _, stream = linked(stage)
    endpoint = stage.endpoint().serve(lambda sock: sock.sendall(b"banner"))
    for dial_id in range(20):
        stream.send(packet_messages.dial_request(endpoint.address, dial_id))
        expect(stream, PacketType.DIAL_RSP)
        assert expect(stream, PacketType.DATA).data.data == b"banner"
        expect(stream, PacketType.CLOSE_RSP)


def test_data_for_no_connection_is_answered_once(stage: Stage) -> None:
    _, _, stream = linked(stage)
    for _ in range(30):
        stream.send(packet_messages.data(5, b"stray"))
    stream.send(packet_messages.data(0, b"nobody"))
    assert close_answers(packets_so_far(stream)) == [(5, "unrecognized connectID")]


def test_empty_data_changes_nothing(stage: Stage) -> None:
    _, _, stream = linked(stage)
    connection_id = dial_through(stream, stage.endpoint().serve(echo).address)
    stream.send(packet_messages.data(connection_id, b""))
    stream.send(packet_messages.data(connection_id, b"x"))
    assert expect(stream, PacketType.DATA).data.data == b"x"


def test_packets_of_unknown_types_are_ignored(stage: Stage) -> None:
    _, _, stream = linked(stage)
    stream.send(Packet(type=42))
    stream.send(Packet(type=PacketType.DRAIN, drain={}))
    stream.send(packet_messages.dial_response(3, 4))
    stream.send(packet_messages.close_response(4))
    assert packets_so_far(stream) == []


def test_a_packet_without_its_payload_costs_the_link_and_not_the_agent(stage: Stage) -> None:
    server, agent, stream = linked(stage)
    connection_id = dial_through(stream, stage.endpoint().address)
    assert connection_id == 1
    stream.send(Packet(type=PacketType.DIAL_REQ))
    stream.wait_for_end()
    again = server.accept()
    agent.wait_until_ready()
    assert dial_through(again, stage.endpoint().address) == 1


@pytest.mark.parametrize("how", ["stream ended", "stream reset", "connection lost"])
def test_a_lost_server_closes_every_endpoint_and_cancels_every_dial(stage: Stage, how: str) -> None:
    server, agent, stream = linked(stage)
    endpoint = stage.endpoint()
    dial_through(stream, endpoint.address)
    far = endpoint.accept()
    stream.send(packet_messages.dial_request("never.answered:1", 8))
    stage.eventually(lambda: len(agent.resolver.asked) == 1)
    if how == "stream ended":
        stream.channel.http2.send_headers(stream.stream_id, [("grpc-status", "0")], end_stream=True)
        stream.channel.flush()
    elif how == "stream reset":
        stream.cancel()
    else:
        stream.channel.close()
    assert far.recv(1) == b""
    server.accept()
    agent.wait_until_ready()
    assert agent.gauges().open_endpoint_connections == 0
    assert stage.call(agent.agent.is_idle)


def test_a_dial_that_would_succeed_after_its_server_was_lost_leaves_no_socket(stage: Stage) -> None:
    """Upstream's agent leaks the connection whose DIAL_RSP it could not send."""
    server, agent, stream = linked(stage)
    endpoint = stage.endpoint()
    stream.send(packet_messages.dial_request("late.example:1", 8))
    stage.eventually(lambda: len(agent.resolver.asked) == 1)
    stream.channel.close()
    server.accept()
    before = stage.call(stage.watched)
    stage.call(lambda: agent.resolver.answer(endpoint.address))
    assert stage.call(stage.watched) == before
    assert stage.call(agent.agent.is_idle)


def test_a_goaway_keeps_tunnels_while_a_new_link_opens(stage: Stage) -> None:
    server, agent, stream = linked(stage)
    connection_id = dial_through(stream, stage.endpoint().serve(echo).address)
    say_goodbye(stream)
    fresh = server.accept("another")
    agent.wait_until_ready()
    assert dial_through(fresh, stage.endpoint().address) == 1
    stream.send(packet_messages.data(connection_id, b"still here"))
    assert expect(stream, PacketType.DATA).data.data == b"still here"
    assert agent.gauges().open_endpoint_connections == 2
    assert agent.gauges().open_server_connections == 1
    stream.send(packet_messages.close_request(connection_id))
    expect(stream, PacketType.CLOSE_RSP)
    stream.wait_for_end()  # the last tunnel has ended, so the agent leaves too
    assert dial_through(fresh, stage.endpoint().address) == 2


def test_a_goaway_that_does_not_know_a_tunnels_stream_ends_that_tunnel(stage: Stage) -> None:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port)
    stream = server.accept(metadata=[("umbilical-pause", "1"), ("umbilical-streams", "1")])
    agent.wait_until_ready()
    endpoint = stage.endpoint()
    far, last = [], 0
    for dial_id in (1, 2):
        last = dial_through(stream, endpoint.address, dial_id)
        far.append(endpoint.accept())
    stream.channel.socket.sendall(GOAWAY[:9] + (last - 2).to_bytes(4) + bytes(4))
    with pytest.raises(ConnectionResetError):
        far[1].recv(1)
    assert agent.gauges().open_endpoint_connections == 1
    (link,) = stage.call(lambda: list(agent.agent._leaving))
    assert not stage.call(link.connection.sender.can_open_stream)


def test_a_link_whose_server_left_is_closed_once_it_is_idle(stage: Stage) -> None:
    """Upstream's server waits for the stream to end; an idle one must not use up its whole grace."""
    server, agent, stream = linked(stage)
    say_goodbye(stream)
    server.accept("another")
    stream.wait_for_end()
    assert agent.agent.is_ready()


@pytest.mark.parametrize("leaves", ["says goodbye", "ends the stream"])
def test_a_leave_in_the_same_read_as_the_hello_is_not_overlooked(stage: Stage, leaves: str) -> None:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port)
    stream = server.accept_call()
    http2 = stream.channel.http2
    http2.send_headers(stream.stream_id, [(":status", "200"), *hello("leaving")])
    if leaves == "ends the stream":
        http2.send_headers(stream.stream_id, [("grpc-status", "14")], end_stream=True)
    stream.channel.socket.sendall(http2.data_to_send() + (GOAWAY if leaves == "says goodbye" else b""))
    server.accept("staying")
    agent.wait_for_servers("staying")
