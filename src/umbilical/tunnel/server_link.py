"""The agent's end of one connection to one server: hello, packets in, commands obeyed.

handshake -> hello -> serving -> over          A GOAWAY sets `leaving`: tunnels go on, a new link is wanted.
"""

import logging
from typing import Final, cast

from umbilical.konnectivity import metadata
from umbilical.konnectivity.agent_session import AgentSession
from umbilical.konnectivity.commands import (
    AbortEndpoint,
    CancelDial,
    Command,
    EndpointConnection,
    FlushAndClose,
    StartDial,
    ToServer,
)
from umbilical.konnectivity.dial_failure import endpoint_failure_code, endpoint_failure_reason
from umbilical.tunnel.backlog import Brake
from umbilical.tunnel.channel import TlsChannel
from umbilical.tunnel.endpoint import Endpoint, EndpointContext, EndpointLink
from umbilical.tunnel.keepalive import Heartbeat
from umbilical.tunnel.settings import Keepalive
from umbilical.tunnel.tcp_facts import round_trip_seconds
from umbilical.tunnel.transport import SHARED_WINDOW_BYTES, agent_side_connection
from umbilical.tunnel.tunnel_stream import TunnelStream
from umbilical.wire import grpc, packet_data, packets
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2 import frames
from umbilical.wire.http2.events import ConnectionEvent, DataReceived, GoawayReceived, HeadersReceived, StreamReset
from umbilical.wire.packet_data import find_data
from umbilical.wire.packets import decode_packet

logger = logging.getLogger(__name__)
tunnels = logging.getLogger("umbilical.tunnels")

CONNECT_PATH: Final = b"/AgentService/Connect"
NUMBERS_RESERVED: Final = 100_000
"""Streams that a connection can still open when a successor is made: more than come while that connects."""


class LinkKeeper:
    """Who keeps the links: the agent."""

    def link_ready(self, link: "ServerLink") -> None:
        """The server said hello."""

    def link_leaving(self, link: "ServerLink") -> None:
        """The server will go; its tunnels may end in peace."""

    def link_over(self, link: "ServerLink", reason: str) -> None:
        """The connection is gone, perhaps before the hello."""


class ServerLink(EndpointLink):
    def __init__(
        self, channel: TlsChannel, hello: metadata.Headers, authority: str, keeper: LinkKeeper, context: EndpointContext
    ) -> None:
        super().__init__(context.loop, channel, agent_side_connection(is_client=True))
        self.hello: metadata.ServerHello | None = None
        self.leaving = False
        self.session: Final = AgentSession()
        self._connections: Final = self.session.connections
        self._received: Final = context.metrics.to_agent
        self._tls: Final = channel
        self._hello_headers: Final = hello
        self._authority: Final = authority
        self._keeper: Final = keeper
        self._context: Final = context
        self._heartbeat: Heartbeat | None = None

    def keep_alive(self, keepalive: Keepalive) -> None:
        self._heartbeat = Heartbeat(self, keepalive)

    def on_open(self) -> None:
        protocol = self._tls.tls.selected_alpn_protocol()
        if protocol != "h2":
            self.lose(f"the server does not speak HTTP/2 here (ALPN {protocol!r}): is this the agent port?")
            return
        headers = grpc.request_headers(CONNECT_PATH, self._authority.encode(), b"https", b"umbilical-agent")
        self.stream = self.connection.sender.open_stream(headers + self._hello_headers)
        self.connection.enlarge(self.stream, SHARED_WINDOW_BYTES)
        self.connection.credit(self.stream, 0)
        self.fit_window(round_trip_seconds(self.channel.sock))
        self.brake = Brake(self, self.stream)
        self.touch()

    def on_event(self, event: ConnectionEvent) -> None:
        if isinstance(event, HeadersReceived):
            if not event.stream.plain:
                self._on_headers(event.headers, event.end_stream)
            elif event.end_stream:
                cast(Endpoint, event.stream.owner).server_ended()
        elif isinstance(event, StreamReset):
            if event.stream.plain:
                self.unpark(event.stream)
                cast(Endpoint, event.stream.owner).stream_reset(event.code)
            else:
                self.lose(f"stream reset by the server (HTTP/2 error {event.code})")
        elif isinstance(event, GoawayReceived) and not self.leaving:
            self.leaving = True
            logger.info("server is leaving server=%s reason=%r", self.server_id(), event.text)
            self._keeper.link_leaving(self)

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
        self._keeper.link_ready(self)

    def server_id(self) -> str:
        return self.hello.server_id if self.hello is not None else "unknown"

    def on_data(self, event: DataReceived) -> None:
        stream = event.stream
        ended = event.end_stream
        start, end = event.start, event.end
        if stream.plain:
            endpoint = cast(Endpoint, stream.owner)
            if end > start:
                self._received[packets.DATA] += 1
                endpoint.deliver(event.view[start:end])
            if ended:
                endpoint.server_ended()
            return
        try:
            if stream.reader.is_whole(event.data, start, end):
                start += grpc.PREFIX_BYTES
                connection_id, payload = find_data(event.data, start, end)
                if payload >= 0:
                    self._on_payload(connection_id, event.view[payload:end])
                else:
                    self._on_packet(decode_packet(event.data, start, end))
            else:
                self._on_pieces(event)
        except ProtocolViolation as violation:
            self._context.metrics.stream_error("to_agent", grpc.CODE_NAMES[violation.code])
            self.lose(f"protocol violation by the server: {violation.message}")
            return
        if ended:
            self.lose("server ended the stream")

    def _on_pieces(self, event: DataReceived) -> None:
        """Several messages in one frame, or one that spans several."""
        reader = event.stream.reader
        reader.feed(event.data, event.view, event.start, event.end)
        while not self.closed and reader.next_message():
            connection_id, payload = find_data(reader.source, reader.start, reader.end)
            if payload >= 0:
                self._on_payload(connection_id, reader.view[payload : reader.end])
            else:
                self._on_packet(decode_packet(reader.source, reader.start, reader.end))

    def _on_payload(self, connection_id: int, view: memoryview) -> None:
        self._received[packets.DATA] += 1
        record = self._connections.get(connection_id)
        if record is None:
            self._obey(self.session.stray_data(connection_id))
        else:
            cast(Endpoint, record.shell).deliver(view)

    def _on_packet(self, packet: packets.Packet) -> None:
        counts = self._context.metrics.to_agent
        counts[packet.kind if packet.kind <= packets.DRAIN else 7] += 1
        session = self.session
        if isinstance(packet, packets.DialRequest):
            self._obey(session.dial_requested(packet))
        elif isinstance(packet, packets.CloseRequest):
            self._obey(session.close_requested(packet.connection_id))
        elif isinstance(packet, packets.CloseDial):
            self._obey(session.dial_cancelled(packet.dial_id))
        elif isinstance(packet, packets.Data):
            self._on_payload(packet.connection_id, memoryview(packet.payload))
        elif isinstance(packet, packets.Pause):
            self._pause(packet.connection_id, paused=True)
        elif isinstance(packet, packets.Resume):
            self._pause(packet.connection_id, paused=False)

    def _pause(self, connection_id: int, paused: bool) -> None:
        record = self.session.connections.get(connection_id)
        if record is None:
            return
        endpoint = cast(Endpoint, record.shell)
        if paused:
            endpoint.pause()
        else:
            endpoint.resume()

    def _obey(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, ToServer):
                self._send(command.kind, command.message)
            elif isinstance(command, StartDial):
                endpoint = Endpoint(self, command.connection, self._context)
                command.connection.shell = endpoint
                endpoint.start()
            elif isinstance(command, FlushAndClose):
                _endpoint_of(command.connection).flush_and_close()
            elif isinstance(command, CancelDial):
                endpoint = _endpoint_of(command.connection)
                endpoint.cancel()
                self._report(endpoint, "dial cancelled")
            elif isinstance(command, AbortEndpoint):
                endpoint = _endpoint_of(command.connection)
                endpoint.abort()
                self._report(endpoint, "server lost")

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

    def open_stream(self, endpoint: Endpoint) -> TunnelStream | None:
        sender = self.connection.sender
        if not sender.can_open_stream():
            return None
        stream = sender.open_stream(packet_data.OPENING_HEADERS)
        stream.plain = True
        stream.credited_by_shell = True
        stream.owner = endpoint
        self.session.stream_opened(endpoint.record, stream.stream_id)
        if sender.numbers_left() < NUMBERS_RESERVED and not self.leaving:
            self._make_room_for_a_successor()
        return TunnelStream(self, stream)

    def _make_room_for_a_successor(self) -> None:
        """After a billion tunnels the numbers run out: another connection to the same server takes over in time."""
        logger.info("stream numbers run out, connecting anew server=%s", self.server_id())
        self.leaving = True
        self.drain()
        self._keeper.link_leaving(self)

    def endpoint_opened(self, endpoint: Endpoint) -> None:
        self._obey(self.session.dial_succeeded(endpoint.record))

    def endpoint_refused(self, endpoint: Endpoint, text: str) -> None:
        self._context.metrics.endpoint_dial_failed(endpoint_failure_reason(text))
        self._obey(self.session.dial_failed(endpoint.record, text))
        self._report(endpoint, text, endpoint_failure_code(text))

    def endpoint_flushed(self, endpoint: Endpoint) -> None:
        if endpoint.has_own_stream():
            endpoint.abort_stream(frames.CANCEL)
            self.tunnel_over(endpoint, "client closed")
            return
        self._obey(self.session.endpoint_flushed(endpoint.record))
        self._report(endpoint, "client closed")

    def tunnel_over(self, endpoint: Endpoint, cause: str) -> None:
        if self.session.stream_over(endpoint.record):
            self._report(endpoint, cause)

    def endpoint_ended(self, endpoint: Endpoint, error: str, cause: str) -> None:
        if endpoint.has_own_stream():
            endpoint.abort_stream(frames.CONNECT_ERROR)
            self.tunnel_over(endpoint, cause)
            return
        commands = self.session.endpoint_ended(endpoint.record, error)
        if commands:
            self._obey(commands)
            self._report(endpoint, cause)

    def pause_sender(self, endpoint: Endpoint) -> None:
        self._send(packets.PAUSE, packets.encode_pause(endpoint.record.connection_id))

    def resume_sender(self, endpoint: Endpoint) -> None:
        self._send(packets.RESUME, packets.encode_resume(endpoint.record.connection_id))

    def _report(self, endpoint: Endpoint, cause: str, code: str = "") -> None:
        record = endpoint.record
        tunnels.info(
            'tunnel dial=%d connection=%d server=%s target=%s up=%d down=%d ms=%d%s end="%s"',
            record.dial_id,
            record.connection_id,
            self.server_id(),
            record.address,
            endpoint.bytes_to_endpoint,
            endpoint.bytes_from_endpoint(),
            int((self.loop.now - endpoint.asked_at) * 1000),
            f" code={code}" if code else "",
            cause,
        )

    def is_idle(self) -> bool:
        return self.session.is_idle()

    def on_closed(self, reason: str) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._obey(self.session.server_lost())
        self._keeper.link_over(self, reason)


def _endpoint_of(connection: EndpointConnection) -> Endpoint:
    return cast(Endpoint, connection.shell)
