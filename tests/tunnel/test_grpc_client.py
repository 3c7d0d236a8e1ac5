"""Clients that speak gRPC, packet by packet: upstream's answers word for word, and none of its faults."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.support import packet_messages
from tests.support.grpc_channel import GrpcStream
from tests.support.in_process import PATIENCE_SECONDS, RunningServer, Stage, read_to_end
from tests.support.packet_messages import Packet, PacketType
from tests.support.scripted_peers import (
    Channel,
    ScriptedAgent,
    expect,
    open_client_channel,
    open_proxy_stream,
    packets_so_far,
    scripted_pair,
    take_packets,
)
from tests.support.tunnel_client import GrpcDial


def scripted_tunnel(
    server: RunningServer, agent: ScriptedAgent, connection_id: int = 1, *, channel: Channel | None = None
) -> GrpcStream:
    """A tunnel that is open on both sides."""
    stream = open_proxy_stream(server, channel)
    stream.send(packet_messages.dial_request("web:443", connection_id + 1000))
    agent.accept_dial(connection_id)
    answer = expect(stream, PacketType.DIAL_RSP).dialResponse
    assert (answer.random, answer.connectID, answer.error) == (connection_id + 1000, connection_id, "")
    return stream


def opened(stage: Stage) -> tuple[RunningServer, ScriptedAgent, GrpcStream]:
    server, agent = scripted_pair(stage, "grpc")
    return server, agent, scripted_tunnel(server, agent)


def dialling(stage: Stage) -> tuple[RunningServer, ScriptedAgent, GrpcStream, int]:
    """A dial of which the agent has heard; its ID there."""
    server, agent = scripted_pair(stage, "grpc")
    stream = open_proxy_stream(server)
    stream.send(packet_messages.dial_request("web:443", 7))
    return server, agent, stream, agent.next_dial().random


def _kind(packet: Any) -> str:
    return PacketType(packet.type).name


def close_response(stream: GrpcStream) -> tuple[int, str]:
    answer = expect(stream, PacketType.CLOSE_RSP).closeResponse
    return answer.connectID, answer.error


def test_a_dial_travels_unchanged_and_so_does_its_answer(stage: Stage) -> None:
    server, agent = scripted_pair(stage, "grpc")
    stream = open_proxy_stream(server)
    stream.send(packet_messages.dial_request("[fd00::1]:10250", 2**63 - 1, protocol="tcp6"))
    dial = agent.next_dial()
    assert (dial.protocol, dial.address, dial.random) == ("tcp6", "[fd00::1]:10250", 2**63 - 1)
    agent.send(packet_messages.dial_response(dial.random, 77))
    answer = expect(stream, PacketType.DIAL_RSP).dialResponse
    assert (answer.random, answer.connectID, answer.error) == (2**63 - 1, 77, "")


def test_data_goes_both_ways_and_a_close_is_asked_and_answered(stage: Stage) -> None:
    server, agent, stream = opened(stage)
    stream.send(packet_messages.data(1, b"up"))
    assert agent.receive(PacketType.DATA).data.data == b"up"
    agent.send(packet_messages.data(1, b"down"))
    assert expect(stream, PacketType.DATA).data.data == b"down"
    stream.send(packet_messages.close_request(1))
    assert agent.receive(PacketType.CLOSE_REQ).closeRequest.connectID == 1
    agent.send(packet_messages.close_response(1))
    assert close_response(stream) == (1, "")
    stream.finish()
    assert stream.ended_with()["grpc-status"] == "0"
    server.wait_until_quiet()


def test_without_an_agent_the_dial_is_refused_and_the_stream_ignored_until_its_end(stage: Stage) -> None:
    server = stage.start_server("grpc")
    stream = open_proxy_stream(server)
    stream.send(packet_messages.dial_request("web:443", 7))
    answer = expect(stream, PacketType.DIAL_RSP).dialResponse
    assert (answer.random, answer.connectID, answer.error) == (7, 0, "No agent available")
    stream.send(packet_messages.data(1, b"too late"))
    assert packets_so_far(stream) == []
    stream.finish()
    assert stream.ended_with()["grpc-status"] == "0"
    assert server.dial_failures() == {"no_agent": 1}
    server.wait_until_quiet()


def _turn_until_packets(turn: Callable[[], None], stream: GrpcStream) -> list[Any]:
    """What the first turn that brought anything has brought."""
    channel = stream.channel
    assert isinstance(channel, Channel)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        turn()
        channel.take_what_came()
        if found := take_packets(stream):
            return found
    raise AssertionError("nothing came")


@pytest.mark.parametrize("follower", [packet_messages.data(1, b"banner"), packet_messages.close_response(1)], ids=_kind)
def test_nothing_follows_a_dial_response_in_the_same_flush(stage: Stage, follower: Any) -> None:
    """konnectivity-client knows its connection only a moment after it has read DIAL_RSP."""
    _, agent, stream, dial_id = dialling(stage)
    with stage.stepping() as turn:
        agent.send(packet_messages.dial_response(dial_id, 1), follower)
        assert [packet.type for packet in _turn_until_packets(turn, stream)] == [PacketType.DIAL_RSP]
        assert [packet.type for packet in _turn_until_packets(turn, stream)] == [follower.type]


def test_data_and_end_in_one_read_stay_in_order(stage: Stage) -> None:
    _, agent, stream, dial_id = dialling(stage)
    agent.send(
        packet_messages.dial_response(dial_id, 1), packet_messages.data(1, b"a"), packet_messages.close_response(1)
    )
    kinds = [stream.receive(PATIENCE_SECONDS).type for _ in range(3)]
    assert kinds == [PacketType.DIAL_RSP, PacketType.DATA, PacketType.CLOSE_RSP]


def test_write_and_close_many_times_and_no_byte_is_missing(stage: Stage) -> None:
    server, agent = stage.start_pair("grpc")
    endpoint = stage.endpoint()
    channel = open_client_channel(server)
    sent = bytes(range(250)) * 400
    assert len(sent) == 100_000
    for _ in range(30):
        tunnel = GrpcDial(channel, endpoint.address, owns_channel=False).finish()
        far = endpoint.accept()
        tunnel.send(sent)
        tunnel.stream.send(packet_messages.close_request(tunnel.connection_id))
        assert read_to_end(far) == sent
        far.close()
        tunnel.close()
    server.wait_until_quiet()
    agent.wait_until_idle()


def test_a_close_before_any_dial_is_answered_and_the_stream_goes_on(stage: Stage) -> None:
    server, agent = scripted_pair(stage, "grpc")
    stream = open_proxy_stream(server)
    stream.send(packet_messages.close_request(5))
    assert close_response(stream) == (5, "backend uninitialized")
    stream.send(packet_messages.dial_request("web:443", 7))
    agent.accept_dial(1)
    expect(stream, PacketType.DIAL_RSP)


def test_data_before_any_dial_is_answered_and_ends_the_stream(stage: Stage) -> None:
    server = stage.start_server("grpc")
    stream = open_proxy_stream(server)
    stream.send(packet_messages.data(5, b"hello?"))
    assert close_response(stream) == (5, "backend not initialized")
    stream.wait_for_end()
    server.wait_until_quiet()


@pytest.mark.parametrize("foreign", [packet_messages.data(2, b"x"), packet_messages.close_request(2)], ids=_kind)
def test_a_packet_for_a_foreign_connection_ends_only_ones_own_tunnel(stage: Stage, foreign: Any) -> None:
    """Upstream closes both at the agent, so that any client can close any other's tunnel."""
    server, agent = scripted_pair(stage, "grpc")
    offender, victim = scripted_tunnel(server, agent, 1), scripted_tunnel(server, agent, 2)
    offender.send(foreign)
    assert close_response(offender) == (1, "mismatched connection IDs")
    assert close_response(offender) == (2, "mismatched connection IDs")
    assert agent.receive(PacketType.CLOSE_REQ).closeRequest.connectID == 1
    agent.send(packet_messages.close_response(1))
    victim.send(packet_messages.data(2, b"still here"))
    assert agent.receive(PacketType.DATA).data.data == b"still here"
    agent.send(packet_messages.data(2, b"indeed"))
    assert expect(victim, PacketType.DATA).data.data == b"indeed"


def test_data_for_connection_zero_is_dropped(stage: Stage) -> None:
    _, agent, stream = opened(stage)
    stream.send(packet_messages.data(0, b"nobody"))
    stream.send(packet_messages.data(1, b"somebody"))
    assert agent.receive(PacketType.DATA).data.data == b"somebody"


def test_a_second_dial_on_one_stream_is_refused_and_the_first_lives(stage: Stage) -> None:
    _, agent, stream = opened(stage)
    stream.send(packet_messages.dial_request("other:1", 8))
    answer = expect(stream, PacketType.DIAL_RSP).dialResponse
    assert (answer.random, answer.connectID, answer.error) == (8, 0, "this stream has dialled already")
    stream.send(packet_messages.data(1, b"go on"))
    assert agent.receive(PacketType.DATA).data.data == b"go on"


def test_packets_of_unknown_types_are_ignored(stage: Stage) -> None:
    server, agent = scripted_pair(stage, "grpc")
    stream = open_proxy_stream(server)
    stream.send(Packet(type=42))
    stream.send(Packet(type=PacketType.DRAIN, drain={}))
    stream.send(packet_messages.dial_request("web:443", 7))
    agent.accept_dial(1)
    expect(stream, PacketType.DIAL_RSP)


def test_a_packet_without_its_payload_ends_its_stream_and_no_other(stage: Stage) -> None:
    server, agent = scripted_pair(stage, "grpc")
    channel = open_client_channel(server)
    neighbour = scripted_tunnel(server, agent, 1, channel=channel)
    stream = open_proxy_stream(server, channel)
    stream.send(Packet(type=PacketType.DIAL_REQ))
    trailers = stream.ended_with()
    assert trailers["grpc-status"] == "3"
    assert "without its payload" in trailers["grpc-message"]
    neighbour.send(packet_messages.data(1, b"alive"))
    assert agent.receive(PacketType.DATA).data.data == b"alive"


def test_a_cancelled_dial_is_cancelled_at_the_agent_and_its_late_success_closed(stage: Stage) -> None:
    server, agent, stream, dial_id = dialling(stage)
    stream.send(packet_messages.close_dial(7))
    assert agent.receive(PacketType.DIAL_CLS).closeDial.random == dial_id
    agent.send(packet_messages.dial_response(dial_id, 1))
    assert agent.receive(PacketType.CLOSE_REQ).closeRequest.connectID == 1
    assert server.dial_failures() == {"frontend_close": 1, "unrecognized_response": 1}
    assert server.gauges().pending_dials == 0


def test_a_cancel_that_crosses_the_success_closes_the_connection(stage: Stage) -> None:
    _, agent, stream = opened(stage)
    stream.send(packet_messages.close_dial(1001))
    assert agent.receive(PacketType.CLOSE_REQ).closeRequest.connectID == 1


def test_close_and_end_during_the_dial_cancel_it(stage: Stage) -> None:
    server, agent, stream, dial_id = dialling(stage)
    stream.send(packet_messages.close_request(0))
    stream.finish()
    assert agent.receive(PacketType.DIAL_CLS).closeDial.random == dial_id
    assert close_response(stream) == (0, "")
    stream.wait_for_end()
    server.wait_until_quiet()


Leave = Callable[[GrpcStream], None]
LEAVES = pytest.mark.parametrize("leave", [GrpcStream.finish, GrpcStream.cancel, lambda stream: stream.channel.close()])


@LEAVES
def test_a_client_that_leaves_an_open_tunnel_closes_it_at_the_agent(stage: Stage, leave: Leave) -> None:
    server, agent = scripted_pair(stage, "grpc")
    leave(scripted_tunnel(server, agent))
    assert agent.receive(PacketType.CLOSE_REQ).closeRequest.connectID == 1
    agent.send(packet_messages.close_response(1))
    server.wait_until_quiet()


@LEAVES
def test_a_client_that_leaves_during_its_dial_has_it_cancelled(stage: Stage, leave: Leave) -> None:
    server, agent, stream, dial_id = dialling(stage)
    leave(stream)
    assert agent.receive(PacketType.DIAL_CLS).closeDial.random == dial_id
    server.wait_until_quiet()
    assert server.dial_failures() == {"frontend_close": 1}
