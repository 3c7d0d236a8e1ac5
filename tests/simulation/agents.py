"""Agents of a run: ours, with the real link, dialer and endpoints on a loop; and an actor in upstream's way."""

from typing import Any, Final, Protocol, cast

from tests.simulation.http2_peer import Fields, Http2Peer
from tests.simulation.network import Network
from tests.simulation.process import Process
from tests.simulation.sockets import SimListener, SimSocket
from tests.simulation.tls import PlainContext
from tests.simulation.wire import Wire

from umbilical.konnectivity import metadata
from umbilical.tunnel.dialing import Dial, EndpointDialer
from umbilical.tunnel.endpoint import EndpointContext
from umbilical.tunnel.metrics import AgentMetrics
from umbilical.tunnel.round_trips import WindowBudget
from umbilical.tunnel.server_link import LinkKeeper, ServerLink
from umbilical.tunnel.settings import Keepalive, Limits
from umbilical.tunnel.tls_channel import TlsChannel
from umbilical.wire import packets

RECONNECT_SECONDS: Final = 1.0
DIAL_SECONDS: Final = 5.0
MESSAGE_BYTES: Final = 15_000
FLUSHED_SECONDS: Final = 1.0
KEEPALIVE_SECONDS: Final = 15.0


class SimAgent(Protocol):
    name: str
    sock: SimSocket

    def connect(self) -> None:
        """Open the connection to the server."""

    def leave(self) -> None:
        """Stop: close the connection and connect no more."""


class OurAgent(LinkKeeper):
    def __init__(
        self, name: str, network: Network, listener: SimListener, limits: Limits, keepalive: Keepalive
    ) -> None:
        self.name = name
        self.process: Final = Process(name, network)
        self.dialer: Final = EndpointDialer(self.process.loop, _NoNames(), DIAL_SECONDS, limits.concurrent_dials)
        self.context: Final = EndpointContext(
            self.process.loop, self.dialer, limits, AgentMetrics(), WindowBudget.of(limits)
        )
        self.sock: SimSocket
        self.links: Final[list[ServerLink]] = []
        """Now connected, or on the way."""
        self._network: Final = network
        self._listener: Final = listener
        self._keepalive: Final = keepalive
        self._leaves = False

    def connect(self) -> None:
        if self._leaves or self._listener.closed:
            return
        with self.process.running():
            self.sock = self._network.connect(self._listener, self.name)
            channel = TlsChannel(self.process.loop, cast(Any, self.sock), cast(Any, PlainContext()), "server")
            hello = metadata.agent_hello_headers(self.name, "", None, streams=self.context.limits.own_streams)
            link = ServerLink(channel, hello, "server:8091", self, self.context)
            self.links.append(link)
            link.start()

    def link_ready(self, link: ServerLink) -> None:
        link.keep_alive(self._keepalive)

    def link_over(self, link: ServerLink, reason: str) -> None:
        self.links.remove(link)
        self._network.note(b"link over " + reason.encode(), self.sock.number, 0)
        self._network.after(RECONNECT_SECONDS, self.connect)

    def drain(self) -> None:
        with self.process.running():
            for link in self.links:
                link.drain()

    def leave(self) -> None:
        self._leaves = True
        with self.process.running():
            for link in list(self.links):
                link.lose("agent is leaving")


class _NoNames:
    def resolve(self, dial: Dial, host: str, port: int) -> None:
        raise AssertionError("simulated endpoints have addresses")


class UpstreamAgent:
    """One Connect stream for everything, without our metadata; its endpoints are reached without a loop."""

    def __init__(self, name: str, network: Network, listener: SimListener) -> None:
        self.name = name
        self.sock: SimSocket
        self.peer: Http2Peer
        self._network: Final = network
        self._listener: Final = listener
        self._leaves = False
        self._ends: Final[dict[int, _UpstreamEnd]] = {}
        self._cancelled: Final[set[int]] = set()
        self._last_id = 0

    def connect(self) -> None:
        if self._leaves or self._listener.closed:
            return
        self.sock = self._network.connect(self._listener)
        self.peer = Http2Peer(self)
        self.peer.greet(Wire(self.sock, self.peer, tls=True))
        fields: Fields = [
            (b":method", b"POST"), (b":scheme", b"https"), (b":path", b"/AgentService/Connect"),
            (b":authority", b"server:8091"), (b"content-type", b"application/grpc"), (b"te", b"trailers"),
            (b"user-agent", b"grpc-go/1.79"), (b"agentid", self.name.encode()), (b"agentidentifiers", b""),
        ]  # fmt: skip
        self.peer.open(fields, frozenset(name for name, _ in fields))

    def on_fields(self, stream_id: int, fields: Fields, ended: bool) -> None:
        if ended:
            self.on_connection_over("the server ended the stream")

    def on_stream_over(self, stream_id: int, reason: str) -> None:
        self.on_connection_over(reason)

    def on_connection_over(self, reason: str) -> None:
        self._network.note(b"upstream over " + reason.encode(), self.sock.number, 0)
        for end in list(self._ends.values()):
            end.wire.close()
        self._ends.clear()
        self.peer.wire.close()
        self._network.after(RECONNECT_SECONDS, self.connect)

    def notice_silence(self) -> None:
        """Its keepalive, some time after the server fell silent."""
        self._network.after(KEEPALIVE_SECONDS, self._lose, self.peer)

    def _lose(self, peer: Http2Peer) -> None:
        if peer is self.peer and not peer.is_over:
            peer.failed("keepalive")

    def on_message(self, stream_id: int, message: bytes) -> None:
        packet = packets.decode_packet(message, 0, len(message))
        match packet:
            case packets.DialRequest():
                self._dial(packet)
            case packets.CloseDial():
                self._cancelled.add(packet.dial_id)
            case packets.Data():
                end = self._ends.get(packet.connection_id)
                if end is not None:
                    end.wire.write(packet.payload)
            case packets.CloseRequest():
                self._close(packet.connection_id)

    def send(self, message: bytes) -> None:
        if not self.peer.is_over:
            self.peer.send_message(1, message)

    def _dial(self, request: packets.DialRequest) -> None:
        host, _, port = request.address.rpartition(":")
        answer = self._network.endpoints.get((host, int(port)), 111)
        if answer is None:
            text = f"dial tcp {request.address}: i/o timeout"
            self._network.after(DIAL_SECONDS, self._refuse, request.dial_id, text, self.peer)
        elif isinstance(answer, int):
            text = f"dial tcp {request.address}: connect: connection refused"
            self._network.after(0.001, self._refuse, request.dial_id, text, self.peer)
        else:
            near, far = self._network.pair(2, self.name, "actor")
            self._last_id += 1
            self._ends[self._last_id] = _UpstreamEnd(self, near, self._last_id)
            self.send(packets.encode_dial_response("", self._last_id, request.dial_id))
            answer(far)

    def _refuse(self, dial_id: int, text: str, peer: Http2Peer) -> None:
        if dial_id not in self._cancelled and peer is self.peer:
            self.send(packets.encode_dial_response(text, 0, dial_id))

    def _close(self, connection_id: int) -> None:
        end = self._ends.pop(connection_id, None)
        if end is not None:
            end.finish()
        self.send(packets.encode_close_response("" if end is not None else "Unknown connectID", connection_id))

    def endpoint_ended(self, connection_id: int) -> None:
        end = self._ends.pop(connection_id, None)
        if end is not None:
            end.finish()
            self.send(packets.encode_close_response("", connection_id))

    def leave(self) -> None:
        self._leaves = True
        if not self.sock.closed:
            self.peer.is_over = True
            self.peer.wire.close()


class _UpstreamEnd:
    """The agent's side of a connection to an endpoint."""

    def __init__(self, agent: UpstreamAgent, sock: SimSocket, connection_id: int) -> None:
        self._agent: Final = agent
        self._network: Final = sock.network
        self._connection_id: Final = connection_id
        self.wire: Final = Wire(sock, self)

    def received(self, octets: bytes) -> None:
        for at in range(0, len(octets), MESSAGE_BYTES):
            self._agent.send(packets.encode_data(self._connection_id, octets[at : at + MESSAGE_BYTES]))

    def ended(self) -> None:
        self._agent.endpoint_ended(self._connection_id)

    def failed(self, reason: str) -> None:
        self._agent.endpoint_ended(self._connection_id)

    def finish(self) -> None:
        """Close once the endpoint has taken everything."""
        self.wire.end()
        self._network.after(FLUSHED_SECONDS, self.finish if self.wire.unsent() else self.wire.close)
