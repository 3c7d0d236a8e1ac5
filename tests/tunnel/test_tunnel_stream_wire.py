"""docs/protocol.md step by step, with `h2` at the other end: our own wire code judges nothing here."""

import socket
import time
from collections.abc import Callable
from typing import Final

from tests.support import packet_messages
from tests.support.grpc_channel import GrpcStream
from tests.support.in_process import PATIENCE_SECONDS, RunningServer, Stage, read_to_end
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import ScriptedAgent, ScriptedServer, expect
from tests.support.tunnel_client import ConnectDial, SocketTunnel, receive_exactly

TUNNEL_PATH: Final = "/umbilical.Tunnel/Carry"
UNDERSTANDS_STREAMS: Final = ("umbilical-streams", "1")
NO_ERROR, PROTOCOL_ERROR, CONNECT_ERROR = 0, 1, 10


def until(stream: GrpcStream, fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not fact():
        stream.channel.pump(deadline)


def carried(stream: GrpcStream) -> bytes:
    """The plain bytes that have come: no gRPC message ever forms of these."""
    assert not stream.messages
    return bytes(stream._partial)


def streamed_tunnel(server: RunningServer) -> tuple[ScriptedAgent, GrpcStream, SocketTunnel]:
    agent = ScriptedAgent(server, metadata=[UNDERSTANDS_STREAMS])
    assert agent.hello["umbilical-streams"] == "1"
    dial = ConnectDial(server.frontend.connect(), "10.0.0.1:443")
    dial_id = agent.next_dial().random
    stream = agent.channel.open(TUNNEL_PATH)
    agent.send(packet_messages.dial_response(dial_id, stream.stream_id))
    return agent, stream, dial.finish()


def test_the_server_answers_before_its_bytes_and_ends_both_sides_behind_them(stage: Stage) -> None:
    server = stage.start_server()
    agent, stream, tunnel = streamed_tunnel(server)
    stream.send_raw(b"down")
    assert receive_exactly(tunnel, 4) == b"down"
    tunnel.send(b"upwards")
    until(stream, lambda: carried(stream) == b"upwards")
    assert stream.response_headers == {":status": "200"}
    tunnel.close()
    until(stream, lambda: stream.reset_code is not None)
    assert stream.reset_code == NO_ERROR
    assert agent.packets_so_far() == [], "no CLOSE_REQ: the stream has told"
    server.wait_until_quiet()


def test_an_end_of_the_agents_stream_is_an_end_of_one_direction(stage: Stage) -> None:
    server = stage.start_server()
    _, stream, tunnel = streamed_tunnel(server)
    stream.send_raw(b"all there is")
    stream.finish()
    assert receive_exactly(tunnel, 1000) == b"all there is"
    tunnel.send(b"goes on")
    until(stream, lambda: carried(stream) == b"goes on")
    tunnel.close()
    server.wait_until_quiet()


def test_payload_before_the_answer_to_its_dial_is_refused(stage: Stage) -> None:
    server = stage.start_server()
    agent = ScriptedAgent(server, metadata=[UNDERSTANDS_STREAMS])
    stray = agent.channel.open(TUNNEL_PATH)
    stray.send_raw(b"whose am I?")
    until(stray, lambda: stray.reset_code is not None)
    assert stray.reset_code == PROTOCOL_ERROR
    assert not agent.stream.ended


def test_the_agent_opens_a_stream_names_it_in_its_answer_and_carries_plain_bytes(stage: Stage) -> None:
    scripted = ScriptedServer(stage)
    agent = stage.start_agent(scripted.port)
    connect = scripted.accept(metadata=[UNDERSTANDS_STREAMS])
    assert connect.request_headers["umbilical-streams"] == "1"
    endpoint = stage.endpoint()
    connect.send(packet_messages.dial_request(endpoint.address, 77))
    answer = expect(connect, PacketType.DIAL_RSP).dialResponse
    stream = connect.channel.streams[answer.connectID]
    assert (answer.random, answer.error) == (77, "")
    assert stream.request_headers[":path"] == TUNNEL_PATH
    connect.channel.http2.send_headers(stream.stream_id, [(":status", "200")])
    stream.send_raw(b"question")
    stream.finish()
    far = endpoint.accept()
    assert read_to_end(far) == b"question"
    far.sendall(b"answer")
    far.close()
    until(stream, lambda: stream.ended)
    assert (carried(stream), stream.reset_code) == (b"answer", None)
    agent.wait_until_idle()
    assert not connect.messages, "no CLOSE_RSP: the stream has told"


def test_an_endpoint_that_breaks_off_resets_its_stream(stage: Stage) -> None:
    scripted = ScriptedServer(stage)
    agent = stage.start_agent(scripted.port)
    connect = scripted.accept(metadata=[UNDERSTANDS_STREAMS])
    endpoint = stage.endpoint()
    connect.send(packet_messages.dial_request(endpoint.address, 78))
    stream = connect.channel.streams[expect(connect, PacketType.DIAL_RSP).dialResponse.connectID]
    far = endpoint.accept()
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    far.close()
    until(stream, lambda: stream.reset_code is not None)
    assert stream.reset_code == CONNECT_ERROR
    agent.wait_until_idle()
