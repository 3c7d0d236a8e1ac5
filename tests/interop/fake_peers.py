"""An agent and a server that a test plays by hand, packet by packet, against the real other side."""

import socket
import ssl
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from tests.support import packet_messages
from tests.support.grpc_channel import PATIENCE_SECONDS, GrpcChannel, GrpcStream
from tests.support.packet_messages import PacketType
from tests.support.tunnel_pair import TunnelPair, free_port
from tests.support.tunnel_pki import TunnelPki

CONNECT_PATH: Final = "/AgentService/Connect"


class FakeAgent:
    """Connected to a real server as an agent; the test says what it answers."""

    def __init__(self, pair: TunnelPair, agent_id: str = "fake", identifiers: str = "") -> None:
        metadata = [("agentid", agent_id), ("agentidentifiers", identifiers)]
        self.channel = open_agent_channel(pair)
        self.stream = self.channel.open(CONNECT_PATH, metadata)
        self.headers = self.stream.wait_for_headers()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.channel.close()

    def send(self, packet: Any) -> None:
        self.stream.send(packet)

    def receive(self, kind: PacketType, timeout: float = PATIENCE_SECONDS) -> Any:
        """Return the next packet, which must be of this kind."""
        packet = self.stream.receive(timeout)
        assert packet is not None, f"expected {kind.name}, the stream ended: {self.stream.trailers}"
        assert packet.type == kind, f"expected {kind.name}, got {packet}"
        return packet

    def accept_dial(self, connection_id: int) -> int:
        """Answer the next dial with success; return its id."""
        dial_id: int = self.receive(PacketType.DIAL_REQ).dialRequest.random
        self.send(packet_messages.dial_response(dial_id, connection_id))
        return dial_id


def open_agent_channel(pair: TunnelPair) -> GrpcChannel:
    """Return an HTTP/2 connection to the agent port, with the agent's certificate."""
    context = pair.pki.authority.client_context(pair.pki.agent, ["h2"])
    tcp = socket.create_connection(("127.0.0.1", pair.ports.agent), timeout=PATIENCE_SECONDS)
    return GrpcChannel(context.wrap_socket(tcp, server_hostname="127.0.0.1"), f"127.0.0.1:{pair.ports.agent}")


class FakeServer:
    """Listens where a real agent connects; the test says what it sends."""

    def __init__(self, pki: TunnelPki, server_id: str = "fake-server") -> None:
        self.port = free_port()
        self._server_id = server_id
        self._context = pki.authority.server_context(pki.server, ["h2"])
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listener.settimeout(PATIENCE_SECONDS)
        self._channels: list[GrpcChannel] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for channel in self._channels:
            channel.close()

    def accept(self) -> GrpcStream:
        """Take the next agent that comes and answer its Connect."""
        while True:
            tcp, _ = self._listener.accept()
            tcp.settimeout(PATIENCE_SECONDS)
            try:
                tls = self._context.wrap_socket(tcp, server_side=True)
            except (ssl.SSLError, OSError):
                tcp.close()
                continue
            break
        channel = GrpcChannel(tls, client_side=False)
        self._channels.append(channel)
        stream = channel.accept()
        assert stream.request_headers[":path"] == CONNECT_PATH
        channel.respond(stream, [("serverid", self._server_id), ("servercount", "1")])
        return stream


def packets_until(stream: GrpcStream, kind: PacketType, timeout: float = PATIENCE_SECONDS) -> list[Any]:
    """Return what comes up to and including the first packet of this kind."""
    deadline = time.monotonic() + timeout
    seen: list[Any] = []
    while not seen or seen[-1].type != kind:
        packet = stream.receive(max(0.01, deadline - time.monotonic()))
        assert packet is not None, f"the stream ended after {seen}"
        seen.append(packet)
    return seen


def count_of(packets: Sequence[Any], kind: PacketType) -> int:
    return sum(packet.type == kind for packet in packets)
