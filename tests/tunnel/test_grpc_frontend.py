"""Connections of gRPC clients: many streams or one, and calls that are none of ours."""

import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import h2.errors
import pytest
from tests.support import packet_messages
from tests.support.grpc_channel import GrpcChannel, GrpcStream
from tests.support.in_process import Stage, echo
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import open_client_channel, open_ended, open_proxy_stream
from tests.support.tunnel_client import PROXY_PATH, GrpcDial, receive_exactly

from umbilical.tunnel import proxy_call
from umbilical.tunnel.proxy_call import ProxyCall
from umbilical.wire.http2.frames import ping_frame


def test_many_streams_on_one_connection_are_many_tunnels(stage: Stage) -> None:
    server, agent = stage.start_pair("grpc")
    endpoint = stage.endpoint().serve(echo)
    channel = open_client_channel(server)
    tunnels = [GrpcDial(channel, endpoint.address, owns_channel=False).finish() for _ in range(200)]
    assert server.gauges().proxy_streams == 200
    for number, tunnel in enumerate(tunnels):
        tunnel.send(b"%03d" % number * 1000)
    for number, tunnel in enumerate(tunnels):
        assert receive_exactly(tunnel, 3000) == b"%03d" % number * 1000
    for tunnel in tunnels:
        tunnel.close()
    server.wait_until_quiet()
    agent.wait_until_idle()


def test_a_message_beyond_four_mib_ends_its_stream(stage: Stage) -> None:
    server = stage.start_server("grpc")
    stream = open_proxy_stream(server)
    stream.send_raw(b"\0" + (4 * 1024 * 1024 + 1).to_bytes(4, "big"))
    assert stream.ended_with()["grpc-status"] == "8"


def test_an_unknown_method_is_unimplemented_by_trailers_alone(stage: Stage) -> None:
    server = stage.start_server("grpc")
    stream = open_client_channel(server).open("/ProxyService/Nothing")
    stream.wait_for_end()
    assert stream.response_headers is not None
    assert stream.response_headers[":status"] == "200"
    assert stream.response_headers["grpc-status"] == "12"
    assert stream.response_headers["grpc-message"] == "unknown method /ProxyService/Nothing"


def test_a_stream_that_ends_before_it_begins_is_ok_by_trailers_alone(stage: Stage) -> None:
    stream = open_ended(open_client_channel(stage.start_server("grpc")), PROXY_PATH)
    trailers = stream.ended_with()
    assert (trailers[":status"], trailers["grpc-status"]) == ("200", "0")


PATIENT = 60.0


class Scene:
    """A call whose bytes the test moves, and the server's end of it."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(PATIENT)
        theirs.settimeout(PATIENT)
        self.received = bytearray()
        self.call = ProxyCall(b"authority", b"http", b"test", self.received.extend, 1 << 20)
        self.channel = GrpcChannel(theirs, client_side=False)

    def dial(self) -> GrpcStream:
        self.call.dial("10.0.0.1:443")
        self.flush()
        return self.channel.accept(PATIENT)

    def opened(self) -> GrpcStream:
        stream = self.dial()
        request = stream.receive(PATIENT)
        assert request.dialRequest.address == "10.0.0.1:443"
        assert request.dialRequest.protocol == "tcp"
        self.channel.respond(stream, ())
        stream.send(packet_messages.dial_response(request.dialRequest.random, 7))
        self.read_until(lambda: self.call.answer is not None)
        return stream

    def flush(self) -> None:
        connection = self.call.connection
        while not connection.outbox.is_empty():
            while (view := connection.outbox.pending()) is not None:
                self.ours.sendall(view)
                connection.outbox.sent(len(view))
            connection.sender.after_flush()

    def read_until(self, claim: Callable[[], object]) -> None:
        while not claim():
            count = self.ours.recv_into(self.call.connection.receive_room())
            assert count
            self.call.received(count)
            self.flush()

    def close(self) -> None:
        self.ours.close()
        self.channel.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.close()


def test_a_dial_is_answered_and_bytes_pass(scene: Scene) -> None:
    stream = scene.opened()
    assert scene.call.answer is not None
    assert (scene.call.answer.connection_id, scene.call.answer.error) == (7, "")
    scene.call.send(b"question")
    scene.flush()
    packet = stream.receive(PATIENT)
    assert (packet.type, packet.data.connectID, packet.data.data) == (PacketType.DATA, 7, b"question")
    stream.send(packet_messages.data(7, b"answer"))
    scene.read_until(lambda: scene.received)
    assert scene.received == b"answer"


def test_the_answer_to_another_dial_is_not_ours(scene: Scene) -> None:
    stream = scene.dial()
    dial_id = stream.receive(PATIENT).dialRequest.random
    scene.channel.respond(stream, ())
    stream.send(packet_messages.dial_response(dial_id ^ 1, 8))
    stream.send(packet_messages.dial_response(dial_id, 7))
    scene.read_until(lambda: scene.call.answer is not None)
    assert scene.call.answer is not None
    assert scene.call.answer.connection_id == 7


def test_a_goodbye_is_said_once_there_is_somebody_to_say_it_to(scene: Scene) -> None:
    scene.call.say_goodbye()
    stream = scene.opened()
    scene.call.say_goodbye()
    scene.flush()
    assert stream.receive(PATIENT).type == PacketType.CLOSE_REQ
    stream.send(packet_messages.close_response(7, ""))
    scene.read_until(lambda: scene.call.end is not None)
    assert scene.call.end == ""
    scene.call.lost()
    assert scene.call.end == ""


def test_a_server_that_drains_says_goaway_and_lets_the_tunnel_go_on(scene: Scene) -> None:
    stream = scene.opened()
    scene.channel.http2.close_connection(last_stream_id=stream.stream_id)
    data = scene.channel.http2.data_to_send()
    scene.channel.socket.sendall(data)
    scene.channel.socket.sendall(_data_frame(stream.stream_id, packet_messages.data(7, b"later").SerializeToString()))
    scene.read_until(lambda: scene.received)
    assert scene.received == b"later"
    assert scene.call.end is None


def _data_frame(stream_id: int, message: bytes) -> bytes:
    """By hand: h2 sends nothing behind a GOAWAY."""
    body = b"\0" + len(message).to_bytes(4) + message
    return len(body).to_bytes(3) + b"\0\0" + stream_id.to_bytes(4) + body


def test_a_goaway_that_knows_nothing_of_our_stream_ends_it(scene: Scene) -> None:
    scene.dial()
    scene.channel.http2.close_connection(last_stream_id=0)
    scene.channel.socket.sendall(scene.channel.http2.data_to_send())
    scene.read_until(lambda: scene.call.end is not None)
    assert scene.call.end is not None
    assert "connection ended: GOAWAY" in scene.call.end


def test_a_refused_stream_says_that_another_server_may_be_tried(scene: Scene) -> None:
    stream = scene.dial()
    scene.channel.http2.reset_stream(stream.stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)
    scene.channel.flush()
    scene.read_until(lambda: scene.call.end is not None)
    assert scene.call.end is not None
    assert scene.call.end.startswith("rpc error: code = Unavailable")


def test_rubbish_ends_the_call(scene: Scene) -> None:
    stream = scene.opened()
    stream.send_raw(b"\0\0\0\0\2\xff\xff")
    scene.read_until(lambda: scene.call.end is not None)
    assert scene.call.end is not None
    assert scene.call.end.startswith("rpc error: code = Internal")


def test_an_idle_call_outlives_pings_for_a_day(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget for pings refills with time."""
    scene.opened()
    now = 1000.0
    monkeypatch.setattr(proxy_call, "time", SimpleNamespace(monotonic=lambda: now))
    ping = ping_frame(b"????????", 0)
    for _ in range(24 * 120):
        now += 30.0
        for _ in range(2):
            room = scene.call.connection.receive_room()
            room[: len(ping)] = ping
            scene.call.received(len(ping))
        scene.call.connection.outbox.release()
    assert scene.call.end is None
