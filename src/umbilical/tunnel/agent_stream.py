"""The server's end of an agent's connection: hello, authentication, packets to and from the switchboard."""

import logging
from typing import Final, cast

from umbilical.konnectivity import metadata
from umbilical.konnectivity.links import CLOSING, ESTABLISHED, AgentLink
from umbilical.tunnel import causes
from umbilical.tunnel.backlog import Brake
from umbilical.tunnel.channel import TlsChannel
from umbilical.tunnel.client import Client
from umbilical.tunnel.exchange import AgentShell, Exchange
from umbilical.tunnel.keepalive import Heartbeat, PathWatch
from umbilical.tunnel.tcp_facts import round_trip_seconds
from umbilical.tunnel.transport import SHARED_WINDOW_BYTES, Transport, agent_side_connection
from umbilical.tunnel.tunnel_stream import TunnelStream
from umbilical.wire import grpc, packet_data, packets
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2 import connection as http2
from umbilical.wire.http2 import frames
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import find_data
from umbilical.wire.packets import decode_packet

logger = logging.getLogger(__name__)

CONNECT_PATH: Final = b"/AgentService/Connect"


class AgentStream(AgentShell):
    """One Connect stream; `link.shell` points here."""

    def __init__(self, transport: "AgentTransport", stream: Stream, link: AgentLink) -> None:
        self.transport: Final = transport
        self.stream: Final = stream
        self.link: Final = link
        self.brake: Final = Brake(transport, stream)
        self._waiting_on: object | None = None
        """What stood first in line when the stream was last looked at."""
        self._waiting_since = 0.0

    def send(self, kind: int, message: bytes) -> None:
        transport = self.transport
        if transport.closed:
            return
        if kind == packets.CLOSE_REQ:
            transport.connection.send_ordered(self.stream, message)
        else:
            transport.connection.send_message(self.stream, message)
        transport.touch()

    def own_stream(self, connection_id: int, client: Client) -> TunnelStream | None:
        """The stream that the agent opened for this tunnel, handed to its client; None in upstream's form."""
        if not self.link.has_own_streams:
            return None
        stream = self.transport.connection.streams[connection_id]
        stream.owner = client
        own = TunnelStream(self.transport, stream)
        own.answer_later()
        return own

    def is_stalled(self, now: float, seconds: float) -> bool:
        waiting_on: object | None = None
        if self.stream.backlog:
            waiting_on = self.stream.backlog[0]
        elif self.transport.has_unsent():
            waiting_on = self.transport.progress
        if waiting_on is None or waiting_on != self._waiting_on:
            self._waiting_on = waiting_on
            self._waiting_since = now
            return False
        return now - self._waiting_since >= seconds

    def retire(self, reason: str) -> None:
        self.transport.end_stream(self.stream, reason)


class Admission:
    """Lets agents in; with token authentication it asks first. Lives in the control plane."""

    def ask(self, transport: "AgentTransport", stream: Stream, hello: metadata.AgentHello) -> None:
        """Call `transport.admitted` or `transport.refuse`, now or later."""
        transport.admitted(stream, hello)


class AgentTransport(Transport):
    def __init__(self, channel: TlsChannel, exchange: Exchange, admission: Admission) -> None:
        super().__init__(exchange.loop, channel, agent_side_connection(is_client=False))
        self._exchange: Final = exchange
        self._admission: Final = admission
        self._received: Final = exchange.metrics.from_agent
        self._peer: Final = channel.peer()
        self._heartbeat: Heartbeat | None = None
        self._watch: PathWatch | None = None
        self._streams: Final[set[AgentStream]] = set()
        self._tls: Final = channel
        self._has_own_streams = False

    def on_open(self) -> None:
        if self._tls.tls.selected_alpn_protocol() != "h2":
            self.lose("the agent does not speak HTTP/2: no ALPN protocol in common")
            return
        self._exchange.handshakes.discard(self)
        self._heartbeat = Heartbeat(self, self._exchange.settings.agent_keepalive)
        self._watch = PathWatch(self)

    def on_timer(self) -> None:
        """From the handshakes' deadlines."""
        self.lose("TLS handshake took too long")

    def on_silent(self, seconds: float, acknowledges: bool) -> None:
        for agent in list(self._streams):
            self._exchange.agent_silent(agent.link)
        code = "UMB406" if acknowledges else "UMB407"
        if self._exchange.hush.due(f"{code} {self._peer}", self.loop.now) is None:
            return
        words = (
            "it does not even answer a ping, though its machine takes what we send: the agent hangs"
            if acknowledges
            else "its machine acknowledges nothing: the network between is broken"
        )
        tunnels, dials = self._load()
        logger.warning(
            "%s agent silent for %.1f s agent=%s peer=%s tunnels=%d dials=%d: %s",
            code,
            seconds,
            self._names(),
            self._peer,
            tunnels,
            dials,
            words,
            extra=causes.FailureCause(code, words).fields,
        )

    def on_answered(self, seconds: float) -> None:
        logger.info("agent answers again after %.1f s agent=%s peer=%s", seconds, self._names(), self._peer)

    def on_loss(self, sent_again: int, sent: int, seconds: float) -> None:
        cause = causes.FailureCause("UMB409", "packets to it get lost")
        if self._exchange.hush.due(f"{cause.code} {self._peer}", self.loop.now) is None:
            return
        logger.warning(
            "%s agent=%s peer=%s: %s, %d of %d segments within %.0f s had to be sent again",
            cause.code,
            self._names(),
            self._peer,
            cause.text,
            sent_again,
            sent,
            seconds,
            extra=cause.fields,
        )

    def _names(self) -> str:
        return ",".join([agent.link.agent_id for agent in self._streams]) or "-"

    def _load(self) -> tuple[int, int]:
        """Tunnels and dials that wait for it."""
        links = [agent.link for agent in self._streams]
        return sum([len(link.connections) for link in links]), sum([len(link.pending) for link in links])

    def on_event(self, event: int) -> None:
        connection = self.connection
        stream = connection.stream
        if event == http2.HEADERS and stream is not None:
            if stream.plain:
                self._on_tunnel_end(stream)
            elif stream.owner is None and not connection.end_stream:
                self._on_call(stream, connection.headers)
            elif stream.owner is not None:
                self.end_stream(stream, "agent ended its stream")
            else:
                self.finish(stream, grpc.INTERNAL, "the stream ended before it began")
        elif event == http2.RESET and stream is not None and stream.plain:
            self._on_tunnel_reset(stream, connection.code)
        elif event == http2.RESET and stream is not None:
            self._drop(stream, f"agent reset its stream (HTTP/2 error {connection.code})")

    def _on_call(self, stream: Stream, headers: metadata.Headers) -> None:
        path = dict(headers).get(b":path", b"")
        if path == packet_data.TUNNEL_PATH and self._has_own_streams:
            stream.plain = True  # its dial's answer, which follows, says whose it is
            stream.credited_by_shell = True
            return
        if path != CONNECT_PATH:
            self._refuse(stream, grpc.UNIMPLEMENTED, f"unknown method {path.decode('utf-8', 'replace')}")
            return
        try:
            hello = metadata.agent_hello(headers)
        except metadata.MetadataRefused as refused:
            self._refuse(stream, grpc.UNKNOWN, refused.text)
            return
        stream.owner = self  # taken, though not admitted yet
        self._admission.ask(self, stream, hello)

    def _refuse(self, stream: Stream, status: int, text: str, code: str = "UMB308") -> None:
        cause = causes.FailureCause(code, text)
        if self._is_news(cause.code):
            logger.warning("%s agent refused peer=%s: %s", cause.code, self._peer, text, extra=cause.fields)
        self.finish(stream, status, text)

    def refuse(self, stream: Stream, text: str) -> None:
        """Authentication failed."""
        if not self.closed and stream.can_send():
            self._refuse(stream, grpc.UNKNOWN, text)

    def admitted(self, stream: Stream, hello: metadata.AgentHello) -> None:
        """Authentication is done, if there is any: say hello and take part."""
        if self.closed or not stream.can_send():
            return
        exchange = self._exchange
        forbidden = exchange.agent_gate.refusal(self._tls.tls, hello.identifiers)
        if forbidden:
            self._refuse(stream, grpc.PERMISSION_DENIED, forbidden, "UMB346")
            return
        settings = exchange.settings
        link = AgentLink(
            exchange.next_key(), hello.agent_id, hello.identifiers, understands_pause=hello.understands_pause
        )
        link.has_own_streams = hello.understands_streams and settings.limits.own_streams
        self._has_own_streams = self._has_own_streams or link.has_own_streams
        agent = AgentStream(self, stream, link)
        link.shell = agent
        stream.owner = agent
        self._streams.add(agent)
        streams = settings.limits.own_streams
        answer = metadata.server_hello_headers(settings.server_id, settings.server_count, streams=streams)
        self.connection.send_headers(stream, [*grpc.RESPONSE_HEADERS, *answer])
        self.connection.enlarge(stream, SHARED_WINDOW_BYTES)
        self.connection.credit(stream, 0)
        self.fit_window(round_trip_seconds(self.channel.sock))
        self.touch()
        exchange.agent_connected(link)
        logger.info("agent connected agent=%s peer=%s", hello.agent_id, self._peer)

    def on_data(self, stream: Stream) -> None:
        connection = self.connection
        agent = stream.owner
        ended = connection.end_stream
        start, end = connection.start, connection.end
        if stream.plain:
            if agent is None:
                self._reset_stray(stream)
                return
            if end > start:
                self._received[packets.DATA] += 1
                cast(Client, agent).deliver(connection.view[start:end])
            if ended:
                self._on_tunnel_end(stream)
            return
        if isinstance(agent, AgentStream):
            try:
                if stream.reader.is_whole(connection.data, start, end):
                    start += grpc.PREFIX_BYTES
                    connection_id, payload = find_data(connection.data, start, end)
                    if payload >= 0:
                        self._on_payload(agent.link, connection_id, connection.view[payload:end])
                    else:
                        self._on_packet(agent.link, decode_packet(connection.data, start, end))
                else:
                    self._on_pieces(agent.link, stream.reader)
            except ProtocolViolation as violation:
                self._violated(stream, violation)
                return
        if ended and not self.closed:
            self.end_stream(stream, "agent ended its stream")

    def _on_pieces(self, link: AgentLink, reader: grpc.MessageReader) -> None:
        """Several messages in one frame, or one that spans several."""
        connection = self.connection
        reader.feed(connection.data, connection.view, connection.start, connection.end)
        while not self.closed and reader.next_message():
            connection_id, payload = find_data(reader.source, reader.start, reader.end)
            if payload >= 0:
                self._on_payload(link, connection_id, reader.view[payload : reader.end])
            else:
                self._on_packet(link, decode_packet(reader.source, reader.start, reader.end))

    def _on_payload(self, link: AgentLink, connection_id: int, view: memoryview) -> None:
        self._received[packets.DATA] += 1
        tunnel = link.connections.get(connection_id)
        if tunnel is None:
            self._exchange.orphan_data(link, connection_id)
            return
        if tunnel.state == ESTABLISHED:
            cast(Client, tunnel.client).deliver(view)

    def _on_packet(self, link: AgentLink, packet: packets.Packet) -> None:
        exchange = self._exchange
        exchange.metrics.from_agent[packet.kind if packet.kind <= packets.DRAIN else 7] += 1
        if isinstance(packet, packets.DialResponse):
            exchange.agent_answered(link, self._checked(link, packet))
        elif isinstance(packet, packets.CloseResponse):
            exchange.agent_closed(link, packet.connection_id, packet.error)
        elif isinstance(packet, packets.CloseRequest):
            exchange.agent_closed(link, packet.connection_id, "")
        elif isinstance(packet, packets.Data):
            if packet.payload:
                self._on_payload(link, packet.connection_id, memoryview(packet.payload))
        elif isinstance(packet, packets.Drain):
            exchange.agent_draining(link)
        elif isinstance(packet, packets.CloseDial):
            exchange.agent_cancelled_dial(link, packet.dial_id)
        elif isinstance(packet, packets.Pause | packets.Resume):
            self._on_pause(link, packet)

    def _checked(self, link: AgentLink, answer: packets.DialResponse) -> packets.DialResponse:
        """A success must come with the stream that it names."""
        if not link.has_own_streams or answer.error:
            return answer
        stream = self.connection.streams.get(answer.connection_id)
        if stream is not None and stream.plain and stream.owner is None:
            return answer
        text = f"agent answered with stream {answer.connection_id}, which it has not opened"
        return packets.DialResponse(text, 0, answer.dial_id)

    def _on_tunnel_end(self, stream: Stream) -> None:
        """The agent sends no more: its endpoint has ended."""
        if stream.owner is None:
            self._reset_stray(stream)
        else:
            cast(Client, stream.owner).endpoint_ended()

    def _on_tunnel_reset(self, stream: Stream, code: int) -> None:
        self.unpark(stream)
        if stream.owner is not None:
            cast(Client, stream.owner).endpoint_lost(f"endpoint failed (HTTP/2 error {code} from the agent)")

    def _reset_stray(self, stream: Stream) -> None:
        """Payload before the answer to the dial, or a tunnel that ends before it began."""
        self.connection.reset(stream, frames.PROTOCOL_ERROR)
        self.touch()

    def _on_pause(self, link: AgentLink, packet: packets.Pause | packets.Resume) -> None:
        tunnel = link.connections.get(packet.connection_id)
        if tunnel is None:
            return
        if tunnel.state not in (ESTABLISHED, CLOSING):
            return
        client = cast(Client, tunnel.client)
        if isinstance(packet, packets.Pause):
            client.pause()
        else:
            client.resume()

    def _violated(self, stream: Stream, violation: ProtocolViolation) -> None:
        self._exchange.metrics.stream_error("from_agent", grpc.CODE_NAMES[violation.code])
        self.finish(stream, violation.code, violation.message)
        self._drop(stream, f"protocol violation by the agent: {violation.message}")

    def _tell_failed(self, reason: str) -> None:
        cause = causes.of_failed_handshake(reason)
        if self._is_news(cause.code):
            logger.warning("%s agent connection failed peer=%s: %s", cause.code, self._peer, reason, extra=cause.fields)

    def _is_news(self, code: str) -> bool:
        """Of every host that knocks again and again, one line in a while for each way to fail."""
        return self._exchange.hush.due(f"{code} {self._peer.rpartition(':')[0]}", self.loop.now) is not None

    def end_stream(self, stream: Stream, reason: str) -> None:
        self.finish(stream, grpc.OK, "")
        self._drop(stream, reason)

    def _drop(self, stream: Stream, reason: str) -> None:
        agent = stream.owner
        stream.owner = None
        if isinstance(agent, AgentStream):
            self._streams.discard(agent)
            self._exchange.agent_gone(agent.link, reason)
            if not self.closed and not self._streams:
                for own in [stream for stream in self.connection.streams.values() if stream.plain]:
                    self.connection.reset(own, frames.CANCEL)

    def on_closed(self, reason: str) -> None:
        if self._watch is not None:
            self._watch.stop()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        else:
            self._tell_failed(reason)
        for agent in list(self._streams):
            self._drop(agent.stream, reason)
        self._exchange.transport_closed(self)
