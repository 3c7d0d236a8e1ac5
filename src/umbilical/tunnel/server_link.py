"""The agent's end of one connection to one server: hello, packets, and the commands of the agent session.

handshake -> hello -> serving -> over          A GOAWAY sets `leaving`: tunnels go on, and the agent connects again.
"""

import logging
from typing import Final

from umbilical import __version__
from umbilical.konnectivity import metadata
from umbilical.konnectivity.agent_session import AgentSession
from umbilical.konnectivity.commands import (
    AbortEndpoint,
    CancelDial,
    Command,
    ConnectedEndpoint,
    EndpointConnection,
    FlushAndClose,
    StartDial,
    ToServer,
)
from umbilical.konnectivity.dial_failure import endpoint_failure_reason
from umbilical.tunnel import causes, faults
from umbilical.tunnel.backlog import SharedCredit
from umbilical.tunnel.channel import Channel
from umbilical.tunnel.endpoint import Endpoint, EndpointContext, EndpointDial, EndpointLink
from umbilical.tunnel.faults import Breakable
from umbilical.tunnel.keepalive import Heartbeat
from umbilical.tunnel.round_trips import RoundTrips
from umbilical.tunnel.settings import Keepalive
from umbilical.tunnel.tls_channel import TlsChannel
from umbilical.tunnel.transport import agent_side_connection
from umbilical.tunnel.tunnel_stream import TunnelStream
from umbilical.wire import grpc, packet_data, packets
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2 import frames
from umbilical.wire.http2.events import ConnectionEvent, DataReceived, GoawayReceived, HeadersReceived, StreamReset
from umbilical.wire.packet_data import read_packets

logger = logging.getLogger(__name__)

CONNECT_PATH: Final = b"/AgentService/Connect"
_PROGRAM: Final = f"umbilical-agent/{__version__}".encode()
NUMBERS_RESERVED: Final = 100_000
"""Stream IDs left when a successor is connected: more than are used while it connects."""
_ENDED: Final = ("server ended the stream", "protocol violation by the server", "duplicate: ", "given up")
"""Ends of a link that are not a loss of its connection, or that were counted already."""


class LinkKeeper:
    """What a link reports to: the agent."""

    def link_ready(self, link: "ServerLink") -> None:
        """The server answered the hello."""

    def link_leaving(self, link: "ServerLink") -> None:
        """The server is leaving; tunnels on it may still end in order."""

    def link_over(self, link: "ServerLink", reason: str) -> None:
        """The connection is lost, perhaps before the hello."""


class ServerLink(EndpointLink):
    def __init__(
        self, channel: Channel, hello: metadata.Headers, authority: str, keeper: LinkKeeper, context: EndpointContext
    ) -> None:
        super().__init__(context.loop, channel, agent_side_connection(context.loop, is_client=True))
        self.rounds = RoundTrips(context.loop, self.connection, context.window_budget)
        self.hello: metadata.ServerHello | None = None
        self.leaving = False
        self.since = 0.0
        """When it began to serve."""
        self.session: Final = AgentSession()
        self._connections: Final = self.session.connections
        self._received: Final = context.metrics.to_agent
        self._hello_headers: Final = hello
        self._authority: Final = authority
        self._keeper: Final = keeper
        self._context: Final = context
        self._heartbeat: Heartbeat | None = None

    def keep_alive(self, keepalive: Keepalive) -> None:
        self._heartbeat = Heartbeat(self, keepalive)

    def on_open(self) -> None:
        channel = self.channel
        protocol = channel.tls.selected_alpn_protocol() if isinstance(channel, TlsChannel) else "h2"
        if protocol != "h2":
            self.lose(f"the server does not speak HTTP/2 here (ALPN {protocol!r}): is this the agent port?")
            return
        headers = grpc.request_headers(CONNECT_PATH, self._authority.encode(), b"https", _PROGRAM)
        self.stream = self.connection.sender.open_stream(headers + self._hello_headers)
        self.shared_credit = SharedCredit(self, self.stream)
        self.touch()

    def on_event(self, event: ConnectionEvent) -> None:
        if isinstance(event, HeadersReceived):
            owner = event.stream.owner
            if owner is None:
                self._on_headers(event.headers, event.end_stream)
            elif event.end_stream:
                owner.peer_ended()
        elif isinstance(event, StreamReset):
            owner = event.stream.owner
            if owner is None:
                self.lose(f"stream reset by the server (HTTP/2 error {event.code})")
            else:
                self.unpark(event.stream)
                owner.peer_reset(event.code)
        elif isinstance(event, GoawayReceived):
            self._drop_unserved(event.last_stream_id)
            if not self.leaving and not self.closed:
                self.leaving = True
                logger.info("server is leaving server=%s reason=%r", self.server_id(), event.text)
                self._keeper.link_leaving(self)

    def _drop_unserved(self, last_stream_id: int) -> None:
        """The server has not seen later streams, and never answers on them."""
        for stream in list(self.connection.streams.by_id.values()):
            if stream.stream_id > last_stream_id:
                self.connection.sender.forget(stream)
                try:
                    self.on_event(StreamReset(stream, frames.REFUSED_STREAM, "not served any more"))
                except Exception as error:
                    self.loop.crash(stream.owner or self, faults.DELIVERY, error)

    def _on_headers(self, headers: metadata.Headers, end_stream: bool) -> None:
        if end_stream:
            status, message = grpc.status_of(headers)
            self.lose(f"server ended the stream: {grpc.CODE_NAMES[min(status, 16)]}: {message}")
            return
        if self.hello is not None:
            return
        try:
            self.hello = metadata.server_hello(headers)
        except metadata.MetadataRefused as refused:
            self.lose(refused.text)
            return
        self.understands_pause = self.hello.understands_pause
        self.has_own_streams = self.hello.understands_streams and self._context.limits.own_streams
        self.session.numbers_by_stream = self.has_own_streams
        self.measured().begin()
        self._keeper.link_ready(self)

    def server_id(self) -> str:
        return self.hello.server_id if self.hello is not None else "unknown"

    def on_data(self, event: DataReceived) -> None:
        ended = event.end_stream
        owner = event.stream.owner
        if owner is not None:
            if event.end > event.start:
                self._received[packets.DATA] += 1
                owner.deliver(event.view[event.start : event.end])
            if ended:
                owner.peer_ended()
            return
        if self.shared_credit is not None:
            self.shared_credit.count(event.end - event.start)
        try:
            self.connection.frames_left -= read_packets(event, self)
        except ProtocolViolation as violation:
            self._context.metrics.stream_error("to_agent", grpc.CODE_NAMES[violation.code])
            self.lose(f"protocol violation by the server: {violation.message}")
            return
        if ended:
            self.lose("server ended the stream")

    def accepts_packets(self) -> bool:
        return not self.closed

    def on_payload(self, connection_id: int, view: memoryview) -> None:
        self._received[packets.DATA] += 1
        record = self._connections.get(connection_id)
        if record is None:
            self._obey(self.session.stray_data(connection_id))
        elif record.endpoint is not None:
            try:
                record.endpoint.deliver(view)
            except Exception as error:
                self.loop.crash(record.endpoint, faults.DELIVERY, error)

    def on_packet(self, packet: packets.Packet) -> None:
        self._received[packet.kind if packet.kind <= packets.DRAIN else 7] += 1
        session = self.session
        match packet:
            case packets.DialRequest():
                self._obey(session.dial_requested(packet))
            case packets.CloseRequest():
                self._obey(session.close_requested(packet.connection_id))
            case packets.CloseDial():
                self._obey(session.dial_cancelled(packet.dial_id))
            case packets.Data():
                self.on_payload(packet.connection_id, memoryview(packet.payload))
            case packets.Pause() | packets.Resume():
                self._on_pause(packet)
            case _:
                pass  # a newer server may send types that we do not know

    def _on_pause(self, packet: packets.Pause | packets.Resume) -> None:
        record = self._connections.get(packet.connection_id)
        if record is None or record.endpoint is None:
            return
        try:
            if isinstance(packet, packets.Pause):
                record.endpoint.pause()
            else:
                record.endpoint.resume()
        except Exception as error:
            self.loop.crash(record.endpoint, faults.DELIVERY, error)

    def _obey(self, commands: list[Command]) -> None:
        for command in commands:
            try:
                match command:
                    case ToServer():
                        self._send(command.kind, command.message)
                    case StartDial():
                        dial = EndpointDial(self, command.connection, self._context)
                        command.connection.dial = dial
                        dial.start()
                    case FlushAndClose():
                        _endpoint_of(command.connection).flush_and_close()
                    case CancelDial():
                        if command.connection.dial is not None:
                            command.connection.dial.cancel()
                    case AbortEndpoint():
                        _endpoint_of(command.connection).abort("server lost")
                    case _:
                        raise AssertionError(f"{command!r} is not a command for the agent")
            except Exception as error:
                self.loop.crash(self._culprit(command), faults.COMMAND, error)

    def _culprit(self, command: Command) -> Breakable:
        """What to close where a command failed: the tunnel, or all of the link if it takes no packets."""
        if isinstance(command, FlushAndClose | AbortEndpoint):
            return _endpoint_of(command.connection)
        if isinstance(command, StartDial | CancelDial) and command.connection.dial is not None:
            return command.connection.dial
        return self

    def _send(self, kind: int, message: bytes) -> None:
        stream = self.stream
        if stream is None or self.closed:
            return
        if kind <= packets.DRAIN:
            self._context.metrics.from_agent[kind] += 1
        if kind == packets.CLOSE_RSP:
            self.connection.sender.send_ordered(stream, message)
        else:
            self.connection.sender.send_message(stream, message)
        self.touch()

    def drain(self) -> None:
        """Ask the server to prefer other agents; everything goes on being served."""
        self._send(packets.DRAIN, packets.encode_drain())

    def open_stream(self, record: EndpointConnection) -> TunnelStream | None:
        connection = self.connection
        if not connection.sender.can_open_stream():
            return None
        stream = connection.sender.open_stream(packet_data.OPENING_HEADERS)
        stream.plain = True
        stream.credited_by_caller = True
        self.session.stream_opened(record, stream.stream_id)
        if connection.sender.numbers_left() < NUMBERS_RESERVED and not self.leaving:
            self._make_room_for_a_successor()
        return TunnelStream(self, stream)

    def _make_room_for_a_successor(self) -> None:
        """After a billion tunnels the stream IDs run out: another connection to the same server takes over before."""
        logger.info("stream numbers run out, connecting anew server=%s", self.server_id())
        self.leaving = True
        self.drain()
        self._keeper.link_leaving(self)

    def endpoint_opened(self, record: EndpointConnection) -> None:
        self._obey(self.session.dial_succeeded(record))

    def endpoint_refused(self, record: EndpointConnection, text: str) -> None:
        self._context.metrics.endpoint_dial_failed(endpoint_failure_reason(text))
        self._obey(self.session.dial_failed(record, text))

    def endpoint_flushed(self, endpoint: Endpoint) -> None:
        if endpoint.abort_stream(frames.CANCEL):
            self.tunnel_over(endpoint, "client closed")
        else:
            self._obey(self.session.endpoint_flushed(endpoint.record))
            endpoint.report("client closed")

    def tunnel_over(self, endpoint: Endpoint, cause: str) -> None:
        if self.session.stream_over(endpoint.record):
            endpoint.report(cause)

    def endpoint_ended(self, endpoint: Endpoint, error: str, cause: str) -> None:
        if endpoint.abort_stream(frames.CONNECT_ERROR):
            self.tunnel_over(endpoint, cause)
            return
        commands = self.session.endpoint_ended(endpoint.record, error)
        if commands:
            self._obey(commands)
            endpoint.report(cause)

    def pause_sender(self, record: EndpointConnection) -> None:
        self._send(packets.PAUSE, packets.encode_pause(record.connection_id))

    def resume_sender(self, record: EndpointConnection) -> None:
        self._send(packets.RESUME, packets.encode_resume(record.connection_id))

    def is_idle(self) -> bool:
        return self.session.is_idle()

    def on_closed(self, reason: str) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
            if not self.leaving and not reason.startswith(_ENDED) and not causes.is_orderly(reason):
                self._context.metrics.stream_error("to_agent", grpc.CODE_NAMES[grpc.UNAVAILABLE])
        if self.shared_credit is not None:
            self.shared_credit.give_back()
        self._obey(self.session.server_lost())
        self._keeper.link_over(self, reason)


def _endpoint_of(connection: EndpointConnection) -> ConnectedEndpoint:
    endpoint = connection.endpoint
    assert endpoint is not None
    return endpoint
