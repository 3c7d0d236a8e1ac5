"""The server's end of an agent's connection: hello, authentication, and the packets that agents send."""

import logging
from typing import Final

from umbilical.konnectivity import metadata
from umbilical.konnectivity.links import CLOSING, ESTABLISHED, AgentLink
from umbilical.tunnel import causes, faults
from umbilical.tunnel.agent_stream import AgentStream
from umbilical.tunnel.channel import Channel
from umbilical.tunnel.keepalive import Heartbeat, PathWatch
from umbilical.tunnel.round_trips import RoundTrips
from umbilical.tunnel.server_core import FIRST_CALL_SECONDS, ServerCore
from umbilical.tunnel.tls_channel import TlsChannel
from umbilical.tunnel.transport import Transport, agent_side_connection
from umbilical.wire import grpc, packet_data, packets
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2 import frames
from umbilical.wire.http2.events import ConnectionEvent, DataReceived, HeadersReceived, StreamReset
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import read_packets

logger = logging.getLogger(__name__)

CONNECT_PATH: Final = b"/AgentService/Connect"
MAX_CONNECT_STREAMS: Final = 16
"""Agents on one connection: upstream's agent and ours have one."""
MAX_UNCLAIMED_STREAMS: Final = 8_192
"""An agent opens the stream of a tunnel right before it answers the dial, so far fewer wait for their tunnel."""
REVIEW_SECONDS: Final = 60.0
"""How long after the handshake a token may be under review: each has a limit of 10 s of its own."""
NO_CALL: Final = f"{causes.NO_CALL} within {FIRST_CALL_SECONDS:g} s"


class AgentPackets:
    """The packets of one Connect stream, carried to the tunnel registry."""

    def __init__(self, agent: AgentStream, core: ServerCore) -> None:
        self.agent: Final = agent
        self._link: Final = agent.link
        self._core: Final = core
        self._counts: Final = core.metrics.from_agent

    def accepts_packets(self) -> bool:
        return not self.agent.transport.closed

    def on_payload(self, connection_id: int, view: memoryview) -> None:
        self._counts[packets.DATA] += 1
        tunnel = self._link.connections.get(connection_id)
        if tunnel is None:
            self._core.orphan_data(self._link, connection_id)
        elif tunnel.state == ESTABLISHED:
            try:
                tunnel.client.deliver(view)
            except Exception as error:
                self._core.loop.crash(tunnel.client, faults.DELIVERY, error)

    def on_packet(self, packet: packets.Packet) -> None:
        core, link = self._core, self._link
        self._counts[packet.kind if packet.kind <= packets.DRAIN else 7] += 1
        match packet:
            case packets.DialResponse():
                core.agent_answered(link, self._checked(packet))
            case packets.CloseResponse():
                core.agent_closed(link, packet.connection_id, packet.error)
            case packets.CloseRequest():
                core.agent_closed(link, packet.connection_id, "")
            case packets.Data():
                if packet.payload:
                    self.on_payload(packet.connection_id, memoryview(packet.payload))
            case packets.Drain():
                core.agent_draining(link)
            case packets.CloseDial():
                core.agent_cancelled_dial(link, packet.dial_id)
            case packets.Pause() | packets.Resume():
                self._on_pause(packet)
            case _:
                pass  # a newer agent may send types that we do not know

    def _checked(self, answer: packets.DialResponse) -> packets.DialResponse:
        """A successful answer must name a stream that the agent opened."""
        if not self._link.has_own_streams:
            return answer
        if answer.error:
            self.agent.transport.connection.expected_stream_came()
            return answer
        stream = self.agent.transport.connection.streams.by_id.get(answer.connection_id)
        if stream is not None and stream.plain and stream.owner is None:
            return answer
        text = f"agent answered with stream {answer.connection_id}, which it has not opened"
        return packets.DialResponse(text, 0, answer.dial_id)

    def _on_pause(self, packet: packets.Pause | packets.Resume) -> None:
        tunnel = self._link.connections.get(packet.connection_id)
        if tunnel is None or tunnel.state not in (ESTABLISHED, CLOSING):
            return
        try:
            if isinstance(packet, packets.Pause):
                tunnel.client.pause()
            else:
                tunnel.client.resume()
        except Exception as error:
            self._core.loop.crash(tunnel.client, faults.DELIVERY, error)


class Admission:
    """Lets agents in. The subclass for token authentication asks the API first."""

    def ask(self, transport: "AgentTransport", stream: Stream, hello: metadata.AgentHello) -> None:
        """Call `transport.admitted` or `transport.refuse`, now or later."""
        transport.admitted(stream, hello)


class AgentTransport(Transport):
    def __init__(self, channel: Channel, core: ServerCore, admission: Admission) -> None:
        super().__init__(core.loop, channel, agent_side_connection(core.loop, is_client=False))
        self.rounds = RoundTrips(core.loop, self.connection, core.window_budget)
        self._core: Final = core
        self._admission: Final = admission
        self._received: Final = core.metrics.from_agent
        self._peer: Final = channel.peer()
        self._heartbeat: Heartbeat | None = None
        self._watch: PathWatch | None = None
        self._asked: Final[set[int]] = set()
        """Connect streams that wait for admission."""
        self._agents: Final[dict[int, AgentPackets]] = {}
        """Connect streams that were admitted, by stream ID."""
        self._unclaimed: list[int] = []
        """Streams for tunnels in the order of their opening; those that got their tunnel are removed now and then."""
        self._tls: Final = channel if isinstance(channel, TlsChannel) else None
        """None: the peer is another worker of this server, on a private socket."""
        self._has_own_streams = False
        self._opened_at = 0.0

    def on_open(self) -> None:
        if self._tls is not None and self._tls.tls.selected_alpn_protocol() != "h2":
            self.lose("the agent does not speak HTTP/2: no ALPN protocol in common")
            return
        self._core.handshakes.discard(self)
        self._core.first_calls.add(self)
        self._opened_at = self.loop.now
        self._heartbeat = Heartbeat(self, self._core.settings.agent_keepalive)

    def on_timer(self) -> None:
        """The deadline of the handshake or of the first call."""
        if self._tls is not None and not self._tls.is_open():
            self.lose("TLS handshake took too long")
        elif self._asked and self.loop.now - self._opened_at < REVIEW_SECONDS:
            self._core.first_calls.add(self)
        else:
            self.lose(NO_CALL)

    def on_silent(self, seconds: float, acknowledges: bool) -> None:
        links = self._links()
        for link in links:
            self._core.agent_silent(link)
        code = "UMB406" if acknowledges else "UMB407"
        more = self._core.throttle.more(f"{code} {self._peer}", self.loop.now)
        if more is None:
            return
        words = (
            "it does not even answer a ping, though its machine takes what we send: the agent hangs"
            if acknowledges
            else "its machine acknowledges nothing: the network between is broken"
        )
        logger.warning(
            "%s agent silent for %.1f s agent=%s peer=%s tunnels=%d dials=%d: %s%s",
            code,
            seconds,
            self._names(),
            self._peer,
            sum([len(link.connections) for link in links]),
            sum([len(link.pending) for link in links]),
            words,
            more,
            extra=causes.FailureCause(code, words).fields,
        )

    def on_answered(self, seconds: float) -> None:
        logger.info("agent answers again after %.1f s agent=%s peer=%s", seconds, self._names(), self._peer)

    def on_loss(self, sent_again: int, sent: int, seconds: float) -> None:
        cause = causes.FailureCause("UMB409", "packets to it get lost")
        more = self._core.throttle.more(f"{cause.code} {self._peer}", self.loop.now)
        if more is None:
            return
        logger.warning(
            "%s agent=%s peer=%s: %s, %d of %d segments within %.0f s had to be sent again%s",
            cause.code,
            self._names(),
            self._peer,
            cause.text,
            sent_again,
            sent,
            seconds,
            more,
            extra=cause.fields,
        )

    def _links(self) -> list[AgentLink]:
        return [incoming.agent.link for incoming in self._agents.values()]

    def _names(self) -> str:
        return ",".join([link.agent_id for link in self._links()]) or "-"

    def on_event(self, event: ConnectionEvent) -> None:
        if isinstance(event, HeadersReceived):
            stream = event.stream
            if stream.plain:
                self._on_tunnel_end(stream)
            elif stream.stream_id in self._agents or stream.stream_id in self._asked:
                self.end_stream(stream, "agent ended its stream")
            elif event.end_stream:
                self.finish(stream, grpc.INTERNAL, "the stream ended before it began")
            else:
                self._on_call(stream, event.headers)
        elif isinstance(event, StreamReset):
            if event.stream.plain:
                self._on_tunnel_reset(event.stream, event.code)
            else:
                self._lost(event.stream, f"agent reset its stream (HTTP/2 error {event.code})")

    def _on_call(self, stream: Stream, headers: metadata.Headers) -> None:
        path = dict(headers).get(b":path", b"")
        if path == packet_data.TUNNEL_PATH and self._has_own_streams:
            stream.plain = True  # the answer to its dial, which follows, names its tunnel
            stream.credited_by_caller = True
            self._unclaimed.append(stream.stream_id)
            if len(self._unclaimed) > MAX_UNCLAIMED_STREAMS:
                self._check_unclaimed()
            return
        if path != CONNECT_PATH:
            self._refuse(stream, grpc.UNIMPLEMENTED, grpc.unknown_method(path))
            return
        if len(self._agents) + len(self._asked) >= MAX_CONNECT_STREAMS:
            self._refuse(stream, grpc.RESOURCE_EXHAUSTED, f"more than {MAX_CONNECT_STREAMS} agents on one connection")
            return
        try:
            hello = metadata.agent_hello(headers)
        except metadata.MetadataRefused as refused:
            self._refuse(stream, grpc.UNKNOWN, refused.text)
            return
        self._asked.add(stream.stream_id)
        if self._tls is not None:
            self._tls.handshakes.admit(self._tls)
        self._admission.ask(self, stream, hello)

    def _check_unclaimed(self) -> None:
        streams = self.connection.streams.by_id
        self._unclaimed = [number for number in self._unclaimed if number in streams and streams[number].owner is None]
        if len(self._unclaimed) > MAX_UNCLAIMED_STREAMS >> 1:
            text = "too many streams without an answer to a dial"
            self.connection.sender.fail(ProtocolViolation(frames.ENHANCE_YOUR_CALM, text))

    def _refuse(self, stream: Stream, status: int, text: str, code: str = "UMB308") -> None:
        self._asked.discard(stream.stream_id)
        self._doubt()
        cause = causes.FailureCause(code, text)
        self._core.recent.peer_refused(self._peer, code, text)
        more = self._core.host_more(cause.code, self._peer)
        if more is not None:
            logger.warning("%s agent refused peer=%s: %s%s", cause.code, self._peer, text, more, extra=cause.fields)
        self.finish(stream, status, text)

    def _doubt(self) -> None:
        """Count it among the peers that are not admitted, unless another of its calls is."""
        if self._tls is not None and not self._agents and not self._asked and not self.closed:
            self._tls.handshakes.add(self._tls)

    def refuse(self, stream: Stream, text: str) -> None:
        """Authentication failed."""
        if not self.closed and stream.can_send():
            self._refuse(stream, grpc.UNKNOWN, text)

    def admitted(self, stream: Stream, hello: metadata.AgentHello) -> None:
        """Authentication succeeded, or none is configured: answer the hello and use the agent."""
        if self.closed or not stream.can_send():
            return
        core = self._core
        forbidden = "" if self._tls is None else core.agent_gate.refusal(self._tls.tls, hello.identifiers)
        if forbidden:
            self._refuse(stream, grpc.PERMISSION_DENIED, forbidden, "UMB346")
            return
        # Another worker of this server is no agent.
        capped = "" if self._tls is None else core.registry.caps.refusal_of_agent(len(core.agents))
        if capped:
            self._refuse(stream, grpc.RESOURCE_EXHAUSTED, capped, "UMB317")
            return
        settings = core.settings
        link = AgentLink(core.next_key(), hello.agent_id, hello.identifiers, understands_pause=hello.understands_pause)
        link.is_sibling = self._tls is None
        link.has_own_streams = hello.understands_streams and settings.limits.own_streams
        self._has_own_streams = self._has_own_streams or link.has_own_streams
        stream.served = True
        agent = AgentStream(self, stream, link)
        agent.peer, agent.program, agent.since = self._peer, hello.program, self.loop.now
        self._asked.discard(stream.stream_id)
        core.first_calls.discard(self)
        if self._watch is None:
            self._watch = PathWatch(self)
            self.measured().begin()
        self._agents[stream.stream_id] = AgentPackets(agent, core)
        streams = settings.limits.own_streams
        answer = metadata.server_hello_headers(settings.server_id, settings.server_count, streams=streams)
        self.connection.sender.send_headers(stream, [*grpc.RESPONSE_HEADERS, *answer])
        self.touch()
        core.agent_connected(agent, self._peer)

    def on_data(self, event: DataReceived) -> None:
        stream = event.stream
        ended = event.end_stream
        if stream.plain:
            owner = stream.owner
            if owner is None:
                self._reset_stray(stream)
                return
            if event.end > event.start:
                self._received[packets.DATA] += 1
                owner.deliver(event.view[event.start : event.end])
            if ended:
                self._on_tunnel_end(stream)
            return
        incoming = self._agents.get(stream.stream_id)
        if incoming is not None:
            incoming.agent.shared_credit.count(event.end - event.start)
            try:
                self.connection.frames_left -= read_packets(event, incoming)
            except ProtocolViolation as violation:
                self._violated(stream, violation)
                return
        if ended and not self.closed:
            self.end_stream(stream, "agent ended its stream")

    def _on_tunnel_end(self, stream: Stream) -> None:
        """The agent sends no more: its endpoint has ended."""
        if stream.owner is None:
            self._reset_stray(stream)
        else:
            stream.owner.peer_ended()

    def _on_tunnel_reset(self, stream: Stream, code: int) -> None:
        self.unpark(stream)
        if stream.owner is not None:
            stream.owner.peer_reset(code)

    def _reset_stray(self, stream: Stream) -> None:
        """Payload before the answer to the dial, or a tunnel that ends before it began."""
        self.connection.sender.reset(stream, frames.PROTOCOL_ERROR)
        self.touch()

    def _violated(self, stream: Stream, violation: ProtocolViolation) -> None:
        self._core.metrics.stream_error("from_agent", grpc.CODE_NAMES[violation.code])
        self.finish(stream, violation.code, violation.message)
        self._drop(stream, f"protocol violation by the agent: {violation.message}")

    def _report_failure(self, reason: str) -> None:
        cause = causes.of_failed_handshake(reason)
        self._core.recent.peer_refused(self._peer, cause.code, reason)
        more = self._core.host_more(cause.code, self._peer)
        if more is not None:
            text = "%s agent connection failed peer=%s: %s%s"
            logger.warning(text, cause.code, self._peer, reason, more, extra=cause.fields)

    def end_stream(self, stream: Stream, reason: str) -> None:
        self.finish(stream, grpc.OK, "")
        self._drop(stream, reason)

    def _drop(self, stream: Stream, reason: str) -> None:
        self._asked.discard(stream.stream_id)
        incoming = self._agents.pop(stream.stream_id, None)
        self._doubt()
        if incoming is not None:
            incoming.agent.shared_credit.give_back()
            self._core.agent_gone(incoming.agent.link, reason)
            if not self.closed and not self._agents:
                self._opened_at = self.loop.now
                self._core.first_calls.add(self)
                for own in [stream for stream in self.connection.streams.by_id.values() if stream.plain]:
                    self.connection.sender.reset(own, frames.CANCEL)

    def on_closed(self, reason: str) -> None:
        if self._watch is not None:
            self._watch.stop()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._heartbeat is None or causes.is_of_stranger(reason):
            self._report_failure(reason)
        self._watch = self._heartbeat = None  # both refer to this transport: its block is freed at once
        for incoming in list(self._agents.values()):
            self._lost(incoming.agent.stream, reason)
        self._core.transport_closed(self)

    def _lost(self, stream: Stream, reason: str) -> None:
        """A Connect stream ended without its end: counted under the code that grpc-go's server sees."""
        if stream.stream_id in self._agents and not causes.is_orderly(reason):
            self._core.metrics.stream_error("from_agent", grpc.CODE_NAMES[grpc.CANCELLED])
        self._drop(stream, reason)
