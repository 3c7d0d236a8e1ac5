"""An agent and a server that a test plays by hand, packet by packet, against the real other side in this process.

They speak through `h2` and `protobuf`, so that our own wire code judges nothing here.
"""

import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any, Final

import h2.events
import h2.settings
from tests.support import packet_messages
from tests.support.grpc_channel import GrpcChannel, GrpcStream
from tests.support.in_process import PATIENCE_SECONDS, RunningServer, Stage
from tests.support.packet_messages import Packet, PacketType
from tests.support.tunnel_client import PROXY_PATH, Tunnel

CONNECT_PATH: Final = "/AgentService/Connect"
PAUSE: Final = 64
RESUME: Final = 65
UNDERSTANDS_PAUSE: Final = ("umbilical-pause", "1")
GOAWAY: Final = bytes((0, 0, 8, 7, 0, 0, 0, 0, 0)) + b"\x7f\xff\xff\xff" + bytes(4)
"""That every stream is still served."""
Metadata = Sequence[tuple[str, str]]


class Channel(GrpcChannel):
    """A channel that can tell when the peer has dealt with everything that it was sent."""

    ping_answers = 0

    def _apply(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.PingAckReceived):
            self.ping_answers += 1
        super()._apply(event)

    def catch_up(self) -> None:
        """Ask for an answer and read up to it: the peer sends it behind what it had to say."""
        self.http2.ping(b"caughtup")
        self.flush()
        before, deadline = self.ping_answers, time.monotonic() + PATIENCE_SECONDS
        while self.ping_answers == before and not self.ended:
            self.pump(deadline)

    def take_what_came(self) -> None:
        """Read without waiting."""
        try:
            while not self.ended:
                self.pump(time.monotonic())
        except TimeoutError:
            pass


def open_agent_channel(server: RunningServer) -> Channel:
    """An HTTP/2 connection to the agent port, with the agent's certificate."""
    pki = server.stage.pki
    context = pki.authority.client_context(pki.agent, ["h2"])
    tcp = socket.create_connection(("127.0.0.1", server.agent_port), timeout=PATIENCE_SECONDS)
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    channel = Channel(context.wrap_socket(tcp, server_hostname="127.0.0.1"), f"127.0.0.1:{server.agent_port}")
    server.stage.leftovers.callback(channel.close)
    return channel


class ScriptedAgent:
    """Connected to a real server; the test says what it answers."""

    def __init__(
        self,
        server: RunningServer,
        agent_id: str = "scripted",
        identifiers: str = "",
        *,
        channel: Channel | None = None,
        metadata: Metadata = (),
    ) -> None:
        self._server: Final = server
        self.channel: Final = channel or open_agent_channel(server)
        hello = [("agentid", agent_id), ("agentidentifiers", identifiers), *metadata]
        self.stream: Final = self.channel.open(CONNECT_PATH, hello)
        self.hello: Final = self.stream.wait_for_headers(PATIENCE_SECONDS)
        server.stage.eventually(lambda: any(link.agent_id == agent_id for link in _links(server)))

    def send(self, *packets: Any) -> None:
        """Send packets, all in one write."""
        self.stream.send_raw(b"".join(framed(packet) for packet in packets))

    def receive(self, kind: int) -> Any:
        return expect(self.stream, kind)

    def next_dial(self) -> Any:
        return self.receive(PacketType.DIAL_REQ).dialRequest

    def accept_dial(self, connection_id: int) -> int:
        """Answer the next dial with success; return its id."""
        dial_id = int(self.next_dial().random)
        self.send(packet_messages.dial_response(dial_id, connection_id))
        return dial_id

    def carry(self, connection_id: int = 1, address: str = "web:443") -> Tunnel:
        """Have a client ask for a tunnel, which this agent must get to carry."""
        dial = self._server.frontend.dial(address)
        request = self.next_dial()
        assert request.address == address
        self.send(packet_messages.dial_response(request.random, connection_id))
        return dial.finish()

    def carry_proxied(self, connection_id: int = 1) -> GrpcStream:
        """The same in gRPC, with the client's own stream in the hands of the test."""
        stream = open_proxy_stream(self._server)
        stream.send(packet_messages.dial_request("web:443", 7))
        self.accept_dial(connection_id)
        expect(stream, PacketType.DIAL_RSP)
        return stream

    def packets_so_far(self) -> list[Any]:
        return packets_so_far(self.stream)

    def close(self) -> None:
        self.channel.close()


def scripted_pair(
    stage: Stage, mode: str = "http-connect", *, metadata: Metadata = (), **settings: Any
) -> tuple[RunningServer, ScriptedAgent]:
    """A real server and its only agent, which the test plays."""
    server = stage.start_server(mode, **settings)
    return server, ScriptedAgent(server, metadata=metadata)


def _links(server: RunningServer) -> list[Any]:
    return list(server.server.core.links())


def open_without_window(server: RunningServer) -> GrpcStream:
    """The Connect stream of an agent, `stalled`, to which the server may send nothing."""
    channel = open_agent_channel(server)
    channel.http2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
    stream = _begin(channel, CONNECT_PATH, [("te", "trailers"), ("agentid", "stalled")])
    stream.wait_for_headers(PATIENCE_SECONDS)
    server.wait_for_agents()
    return stream


class ScriptedServer:
    """Listens where a real agent connects; the test says what it sends."""

    def __init__(self, stage: Stage, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._stage: Final = stage
        self._context: Final = stage.pki.authority.server_context(stage.pki.server, ["h2"])
        self._listener: Final = socket.create_server((host, port))
        self._listener.settimeout(PATIENCE_SECONDS)
        self.port: Final = int(self._listener.getsockname()[1])
        stage.leftovers.callback(self._listener.close)

    def accept_socket(self) -> ssl.SSLSocket:
        """The next agent's connection, for a test that writes its frames itself and closes it."""
        tcp, _ = self._listener.accept()
        tcp.settimeout(PATIENCE_SECONDS)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._context.wrap_socket(tcp, server_side=True)

    def accept_channel(self) -> Channel:
        channel = Channel(self.accept_socket(), client_side=False)
        self._stage.leftovers.callback(channel.close)
        return channel

    def accept_call(self) -> GrpcStream:
        """The next agent's Connect, not answered yet."""
        return self.accept_channel().accept(PATIENCE_SECONDS)

    def accept(self, server_id: str = "scripted", count: int = 1, *, metadata: Metadata = ()) -> GrpcStream:
        """Take the next agent that comes and say hello."""
        stream = self.accept_call()
        stream.channel.respond(stream, hello(server_id, count, metadata))
        return stream


def hello(server_id: str = "scripted", count: int = 1, metadata: Metadata = ()) -> list[tuple[str, str]]:
    return [("serverid", server_id), ("servercount", str(count)), *metadata]


def say_goodbye(stream: GrpcStream) -> None:
    """As a server does that will go; past h2, which would say no more afterwards."""
    stream.channel.socket.sendall(GOAWAY)


def refusal(server: RunningServer, metadata: Metadata, path: str = CONNECT_PATH) -> tuple[str, str]:
    """The status of a Connect that must be refused, by trailers alone."""
    stream = open_agent_channel(server).open(path, metadata)
    trailers = stream.ended_with()
    assert trailers is stream.response_headers
    assert trailers[":status"] == "200"
    assert "serverid" not in trailers
    return trailers["grpc-status"], trailers["grpc-message"]


def framed(packet: Any) -> bytes:
    return _message(packet.SerializeToString())


def control(kind: int, connection_id: int) -> bytes:
    """PAUSE or RESUME, which upstream's messages do not know."""
    return _message(bytes((0x08, kind, 0x7A, 2, 0x08, connection_id)))


def _message(body: bytes) -> bytes:
    return b"\0" + len(body).to_bytes(4, "big") + body


def dial_through(stream: GrpcStream, address: str, dial_id: int = 7) -> int:
    """Have a real agent dial; the connection ID."""
    stream.send(packet_messages.dial_request(address, dial_id))
    answer = expect(stream, PacketType.DIAL_RSP).dialResponse
    assert (answer.random, answer.error) == (dial_id, "")
    return int(answer.connectID)


def expect(stream: GrpcStream, kind: int) -> Any:
    """The next packet, which must be of this kind."""
    packet = stream.receive(PATIENCE_SECONDS)
    assert packet is not None, f"expected {kind!r}, the stream ended: {stream.trailers}"
    assert packet.type == kind, f"expected {kind!r}, got {packet}"
    return packet


def open_client_channel(server: RunningServer) -> Channel:
    """A gRPC client's connection to the frontend."""
    channel = Channel(server.frontend.connect())
    server.stage.leftovers.callback(channel.close)
    return channel


def open_proxy_stream(server: RunningServer, channel: Channel | None = None) -> GrpcStream:
    return (channel or open_client_channel(server)).open(PROXY_PATH)


def open_ended(channel: Channel, path: str) -> GrpcStream:
    """Begin a call and end it with the same frame."""
    return _begin(channel, path, [("agentid", "hasty")], end_stream=True)


def _begin(channel: Channel, path: str, metadata: Metadata, *, end_stream: bool = False) -> GrpcStream:
    stream = GrpcStream(channel, channel.http2.get_next_available_stream_id())
    channel.streams[stream.stream_id] = stream
    pseudo = [(":method", "POST"), (":scheme", "https"), (":path", path), (":authority", "localhost")]
    channel.http2.send_headers(stream.stream_id, [*pseudo, *metadata], end_stream=end_stream)
    channel.flush()
    return stream


def packets_so_far(stream: GrpcStream) -> list[Any]:
    """Every packet that has arrived and was not received yet."""
    channel = stream.channel
    assert isinstance(channel, Channel)
    channel.catch_up()
    return take_packets(stream)


def take_packets(stream: GrpcStream) -> list[Any]:
    packets = [Packet.FromString(message) for message in stream.messages]
    stream.messages.clear()
    return packets
