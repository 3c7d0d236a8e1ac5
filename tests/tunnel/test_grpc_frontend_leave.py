"""How a server that stops leaves its gRPC clients: two GOAWAYs, and tunnels that go on."""

import asyncio

from tests.support import packet_messages
from tests.support.fixture_types import Patch
from tests.support.in_process import PATIENCE_SECONDS, RunningServer, Stage
from tests.support.packet_messages import PacketType
from tests.support.proxy_client_by_hand import ProxyClient
from tests.support.scripted_peers import scripted_pair

from umbilical.wire.http2 import frames

EVERY_STREAM = 2**31 - 1


def connected(server: RunningServer) -> ProxyClient:
    sock = server.frontend.connect()
    server.stage.leftovers.callback(sock.close)
    return ProxyClient(sock)


def test_a_client_hears_of_the_leave_at_once_and_its_tunnel_goes_on_while_new_streams_are_refused(stage: Stage) -> None:
    server, agent = scripted_pair(stage, "grpc")
    client = connected(server)
    stream = client.call()
    client.send(stream, packet_messages.dial_request("web:443", 7))
    agent.accept_dial(1)
    client.read_until("data", 1)
    stage.call(server.server.announce_leave)
    client.read_until("goaway", 1)
    assert client.goaways() == [(EVERY_STREAM, frames.NO_ERROR)]
    client.read_until("goaway", 2)
    assert client.goaways()[1] == (stream.stream_id, frames.NO_ERROR)
    refused = client.call()
    client.read_until("reset", 1)
    reset = client.end.last("reset")
    assert (reset.stream_id, reset.code) == (refused.stream_id, frames.REFUSED_STREAM)
    client.send(stream, packet_messages.data(1, b"still here"))
    assert agent.receive(PacketType.DATA).data.data == b"still here"
    agent.send(packet_messages.data(1, b"so are we"))
    client.read_until("data", 2)
    assert client.payload(stream) == [b"so are we"]
    assert server.gauges().proxy_streams == 1


def test_a_stream_that_crosses_the_first_goaway_is_served(stage: Stage) -> None:
    server, agent = scripted_pair(stage, "grpc")
    client = connected(server)
    client.call()
    client.read_until("headers", 1)
    stage.call(server.server.announce_leave)
    crossing = client.call()  # it has not read the GOAWAY yet
    client.send(crossing, packet_messages.dial_request("web:443", 8))
    agent.accept_dial(1)
    client.read_until("goaway", 2)
    assert client.goaways() == [(EVERY_STREAM, frames.NO_ERROR), (crossing.stream_id, frames.NO_ERROR)]
    assert "reset" not in client.end.names()


def test_a_client_that_answers_no_ping_gets_the_second_goaway_all_the_same(stage: Stage, monkeypatch: Patch) -> None:
    server, _ = scripted_pair(stage, "grpc")
    client = connected(server)
    client.call()
    client.read_until("headers", 1)
    stage.call(server.server.announce_leave)
    stage.skip(2.0, monkeypatch)
    (transport,) = stage.call(server.server._grpc_clients)
    stage.eventually(lambda: transport.connection.sender.refuses_streams)
    client.read_until("goaway", 2)
    assert [last for last, _ in client.goaways()] == [EVERY_STREAM, 1]


def test_a_client_that_connected_right_before_the_leave_may_still_call(stage: Stage) -> None:
    server, agent = scripted_pair(stage, "grpc")
    client = connected(server)
    client.flush()
    stage.eventually(lambda: len(server.server._grpc_clients()) == 1)
    with stage.stepping() as turn:  # so that its time to call does not pass
        server.server.announce_leave()
        turn()
        assert server.server._may_be_asked()
        stream = client.call()
        for _ in range(3):
            turn()
        assert not server.server._may_be_asked()
    client.send(stream, packet_messages.dial_request("web:443", 7))
    agent.accept_dial(1)
    client.read_until("goaway", 2)
    assert [last for last, _ in client.goaways()] == [EVERY_STREAM, stream.stream_id]
    assert "reset" not in client.end.names()


def test_a_client_that_never_calls_delays_no_leave(stage: Stage) -> None:
    server = stage.start_server("grpc")
    client = connected(server)
    client.flush()
    stage.eventually(lambda: len(server.server._grpc_clients()) == 1)
    stage.call(server.server.stop_accepting)
    stage.call(server.server.announce_leave)
    leaving = asyncio.run_coroutine_threadsafe(server.server.until_idle(10 * PATIENCE_SECONDS), stage.loop)
    assert leaving.result(PATIENCE_SECONDS)
