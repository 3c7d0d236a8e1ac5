"""Between our own ends every tunnel has a stream of its own: half-close, windows that follow the reader, resets."""

import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.support import packet_messages
from tests.support.grpc_channel import GrpcStream
from tests.support.in_process import PATIENCE_SECONDS, RunningServer, Stage, echo, read_to_end, source
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import ScriptedAgent, ScriptedServer, expect, scripted_pair
from tests.support.socket_pairs import reset
from tests.support.tunnel_client import ConnectDial, SocketTunnel, assert_echoes, receive_exactly

from umbilical.tunnel.settings import Limits
from umbilical.tunnel.transport import LARGEST_TUNNEL_WINDOW_BYTES, NEAR_TUNNEL_WINDOW_BYTES, TUNNEL_WINDOW_BYTES

MIB: Final = 1024 * 1024


def open_tunnel(server: RunningServer, address: str) -> SocketTunnel:
    tunnel = server.frontend.open(address)
    assert isinstance(tunnel, SocketTunnel)
    return tunnel


def own_streams(server: RunningServer) -> list[Any]:
    """The tunnels' streams at the server; to be called in the loop's thread."""
    agents = server.server.core.agents.values()
    streams = [agent.transport.connection.streams.by_id.values() for agent in agents]
    return [stream for some in streams for stream in some if stream.plain]


def test_a_half_closed_tunnel_in_which_nothing_moves_is_not_kept_for_ever(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "umbilical.tunnels")
    server, agent = stage.start_pair()
    endpoint = stage.endpoint()
    tunnel = open_tunnel(server, endpoint.address)
    far = endpoint.accept()
    tunnel.socket.shutdown(socket.SHUT_WR)
    assert read_to_end(far) == b""
    stage.eventually(lambda: len(server.server.core.half_closed) == 1)
    stage.skip(121, monkeypatch)
    assert tunnel.receive(1) == b""
    server.wait_until_quiet()
    agent.wait_until_idle()
    assert "client ended its side, and the other moved nothing for 120 s" in caplog.text


def test_an_endpoint_that_resets_its_connection_ends_the_tunnel_with_the_cause(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "umbilical.tunnels")
    server, agent = stage.start_pair()
    endpoint = stage.endpoint()
    tunnel = open_tunnel(server, endpoint.address)
    far = endpoint.accept()
    reset(far)
    assert tunnel.receive(1) == b""
    server.wait_until_quiet()
    agent.wait_until_idle()
    assert 'end="endpoint failed (HTTP/2 error 10 from the agent)"' in caplog.text


def test_what_waits_for_a_client_that_never_reads_is_bounded_by_its_window(stage: Stage) -> None:
    server, _ = stage.start_pair()
    endpoint = stage.endpoint().serve(source(64 * MIB))
    stuck = [open_tunnel(server, endpoint.address) for _ in range(4)]
    stage.eventually(lambda: all(stream.receive_window <= stream.window // 4 for stream in own_streams(server)))
    waiting = stage.call(
        lambda: [client._outlet.waiting_bytes() for client in server.server.core.clients]  # type: ignore[attr-defined]
    )
    assert len(waiting) == 4
    assert all(0 < size <= NEAR_TUNNEL_WINDOW_BYTES for size in waiting)
    with_echo = open_tunnel(server, stage.endpoint().serve(echo).address)
    assert_echoes(with_echo)
    for tunnel in stuck:
        tunnel.close()


def test_what_waits_for_an_endpoint_that_never_reads_is_bounded_by_its_window(stage: Stage) -> None:
    server, agent = stage.start_pair()
    endpoint = stage.endpoint()
    tunnel = open_tunnel(server, endpoint.address)
    endpoint.accept()
    sender = threading.Thread(target=_send_for_ever, args=(tunnel,), daemon=True)
    sender.start()

    def waiting() -> list[int]:
        links = agent.agent._links.values()
        endpoints: list[Any] = [record.endpoint for link in links for record in link.session.connections.values()]
        return [endpoint._outlet.waiting_bytes() for endpoint in endpoints]

    stage.eventually(lambda: all(stream.send_window < 8192 for stream in own_streams(server)) and min(waiting()) > 0)
    assert max(stage.call(waiting)) <= NEAR_TUNNEL_WINDOW_BYTES
    neighbour = open_tunnel(server, stage.endpoint().serve(echo).address)
    assert_echoes(neighbour)
    tunnel.socket.shutdown(socket.SHUT_RDWR)  # wakes the sender
    sender.join(PATIENCE_SECONDS)


def _send_for_ever(tunnel: SocketTunnel) -> None:
    try:
        for _ in range(1024):
            tunnel.send(bytes(64 * 1024))
    except OSError:
        return


def test_a_window_grows_while_its_reader_keeps_up_with_bulk_and_not_before(stage: Stage) -> None:
    server, _ = stage.start_pair()
    quiet = open_tunnel(server, stage.endpoint().serve(echo).address)
    for _ in range(50):
        quiet.send(bytes(1000))
        receive_exactly(quiet, 1000)
    assert [stream.window for stream in stage.call(lambda: own_streams(server))] == [TUNNEL_WINDOW_BYTES]
    bulk = open_tunnel(server, stage.endpoint().serve(source(64 * MIB)).address)
    receive_exactly(bulk, 60 * MIB)
    windows = sorted(stream.window for stream in stage.call(lambda: own_streams(server)))
    assert windows[0] == TUNNEL_WINDOW_BYTES
    assert TUNNEL_WINDOW_BYTES < windows[1] <= LARGEST_TUNNEL_WINDOW_BYTES


@pytest.mark.parametrize("who", ["server", "agent"])
@pytest.mark.parametrize("mode", ["http-connect", "grpc"])
def test_an_end_that_offers_no_streams_is_served_in_upstreams_form(stage: Stage, who: str, mode: str) -> None:
    plain = Limits(own_streams=False)
    server = stage.start_server(mode, limits=plain if who == "server" else Limits())
    agent = stage.start_agent(server.agent_port, limits=plain if who == "agent" else Limits())
    server.wait_for_agents()
    agent.wait_until_ready()
    tunnel = server.frontend.open(stage.endpoint().serve(echo).address)
    assert_echoes(tunnel, b"hello")
    assert stage.call(lambda: own_streams(server)) == []
    tunnel.close()
    server.wait_until_quiet()


def test_a_connection_whose_stream_numbers_run_out_gets_a_successor_in_time(stage: Stage) -> None:
    server, agent = stage.start_pair()
    address = stage.endpoint().serve(echo).address

    def use_up() -> None:
        (link,) = agent.agent._links.values()
        link.connection.streams.next_own = 0x7FFFFFFF - 2 * 99_000

    stage.call(use_up)
    old = open_tunnel(server, address)
    assert_echoes(old)
    server.wait_for_agents(2)
    for _ in range(3):
        new = open_tunnel(server, address)
        assert_echoes(new)
        assert new is not old
    assert_echoes(old)
    old.close()
    server.wait_for_agents(1)
    agent.wait_until_ready()


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
    _, agent = scripted_pair(stage, metadata=[UNDERSTANDS_STREAMS])
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
