"""Connections of clients that speak gRPC: one or many Proxy streams on each, one tunnel per stream (grpc_client.py)."""

import time
from typing import Final

from umbilical.tunnel import causes, faults
from umbilical.tunnel.channel import Channel
from umbilical.tunnel.faults import Breakable
from umbilical.tunnel.grpc_client import GrpcClient
from umbilical.tunnel.keepalive import Heartbeat
from umbilical.tunnel.loop import Handler
from umbilical.tunnel.server_core import ServerCore
from umbilical.tunnel.tls_channel import TlsChannel
from umbilical.tunnel.transport import Transport, client_side_connection
from umbilical.wire import grpc
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2 import frames
from umbilical.wire.http2.events import ConnectionEvent, DataReceived, HeadersReceived, PingAnswered, StreamReset
from umbilical.wire.http2.headers import HeaderList
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import read_packets

PROXY_PATH: Final = b"/ProxyService/Proxy"


ASKING_SECONDS: Final = 0.5
"""How long a client that connected right before the server stops has for its request."""
ROUND_TRIP_SECONDS: Final = 1.0
"""For the answer to the PING behind the first GOAWAY; clients are on the same machine, or near it."""
_PING_PAYLOAD: Final = b"leaving?"
_FAREWELL: Final = "server is leaving"

_ASKING: Final = 1
_ANNOUNCED: Final = 2
_TOLD: Final = 3


class Departure(Handler):
    """Two GOAWAYs to one client, as RFC 9113 section 6.8 advises: one that refuses nothing, and, when the client must
    have read it, one that names the last stream that is served. Tunnels go on.

    asking -> announced -> told          A client that has not called yet may do so for ASKING_SECONDS.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport: Final = transport
        self._loop: Final = transport.loop
        self._state = _ASKING
        self._timer = self._loop.after(ASKING_SECONDS, self)
        if transport.connection.streams.highest_of_peer:
            self.called()

    def is_asking(self) -> bool:
        return self._state == _ASKING

    def called(self) -> None:
        """The client has a stream: it keeps that one, and goes elsewhere with others."""
        if self._state == _ASKING:
            self._state = _ANNOUNCED
            sender = self._transport.connection.sender
            sender.goaway(frames.NO_ERROR, _FAREWELL)
            sender.ping(_PING_PAYLOAD)
            self._transport.touch()
            self._loop.cancel(self._timer)
            self._timer = self._loop.after(ROUND_TRIP_SECONDS, self)

    def answered(self, payload: bytes) -> None:
        if payload == _PING_PAYLOAD and self._state == _ANNOUNCED:
            self._state = _TOLD
            self._transport.connection.sender.last_goaway(_FAREWELL)
            self._transport.touch()
            self.stop()

    def on_timer(self) -> None:
        if self._state == _ASKING:
            self.called()
        else:
            self.answered(_PING_PAYLOAD)

    def stop(self) -> None:
        self._loop.cancel(self._timer)

    def on_crash(self, error: Exception) -> None:
        self._transport.on_crash(error)


class GrpcTransport(Transport):
    """One client connection."""

    def __init__(self, channel: Channel, core: ServerCore) -> None:
        super().__init__(core.loop, channel, client_side_connection(core.loop))
        self._core: Final = core
        self._heartbeat: Heartbeat | None = None
        self._departure: Departure | None = None
        self._clients: Final[dict[int, GrpcClient]] = {}
        """By the ID of their Proxy stream."""

    def start(self) -> None:
        self._core.transports.add(self)
        if isinstance(self.channel, TlsChannel):
            self._core.handshakes.add(self)
        else:
            self._heartbeat = Heartbeat(self, self._core.settings.frontend_keepalive)
        super().start()
        if self.channel.is_plain:
            self.on_readable()  # usually its first bytes have arrived already, which saves an event

    def leave(self) -> None:
        """The server stops: running tunnels go on, new ones are refused."""
        if self._departure is None:
            self._departure = Departure(self)

    def may_still_ask(self) -> bool:
        return self._departure is not None and self._departure.is_asking()

    def on_open(self) -> None:
        self._core.handshakes.discard(self)
        self._core.first_calls.add(self)
        self._heartbeat = Heartbeat(self, self._core.settings.frontend_keepalive)

    def on_timer(self) -> None:
        self.lose("TLS handshake took too long" if self._heartbeat is None else causes.NO_CALL)

    def on_flush(self) -> None:
        started = time.perf_counter()
        super().on_flush()
        self._core.metrics.frontend_write_seconds.observe(time.perf_counter() - started)

    def on_event(self, event: ConnectionEvent) -> None:
        if isinstance(event, HeadersReceived):
            if event.stream.stream_id not in self._clients and not event.end_stream:
                self._on_call(event.stream, event.headers)
            else:
                self._on_end(event.stream)
        elif isinstance(event, StreamReset):
            client = self._clients.get(event.stream.stream_id)
            if client is not None:
                client.gone("client cancelled its stream")
        elif isinstance(event, PingAnswered) and self._departure is not None:
            self._departure.answered(event.payload)

    def _on_call(self, stream: Stream, headers: HeaderList) -> None:
        path = b""
        for name, value in headers:
            if name == b":path":
                path = value
        if path != PROXY_PATH:
            self.finish(stream, grpc.UNIMPLEMENTED, grpc.unknown_method(path))
            return
        refusal = self._refusal()
        if refusal:
            self.finish(stream, grpc.PERMISSION_DENIED, refusal)
            return
        GrpcClient(self, stream, self._core, self._clients)
        self.connection.sender.send_headers(stream, grpc.RESPONSE_HEADERS)
        if self._departure is not None:
            self._departure.called()

    def _refusal(self) -> str:
        channel = self.channel
        if not isinstance(channel, TlsChannel):
            return ""
        refusal = self._core.refuse_client(channel)
        if not refusal:
            self._core.first_calls.discard(self)
            channel.handshakes.admit(channel)
        return refusal

    def on_data(self, event: DataReceived) -> None:
        stream = event.stream
        client = self._clients.get(stream.stream_id)
        size = event.end - event.start
        ended = event.end_stream
        if client is None:
            self.connection.credit(stream, size)
            return
        try:
            self.connection.frames_left -= read_packets(event, client)
        except ProtocolViolation as violation:
            self._core.metrics.stream_error("from_client", grpc.CODE_NAMES[violation.code])
            client.end(violation.code, violation.message)
            return
        client.credit(size)
        if ended:
            self._on_end(stream)

    def _on_end(self, stream: Stream) -> None:
        """The client sends no more, which ends the tunnel of a Proxy stream."""
        client = self._clients.get(stream.stream_id)
        if client is not None:
            client.end(grpc.OK, "")
        else:
            self.finish(stream, grpc.OK, "")

    def end_on(self, stream: Stream) -> Breakable | None:
        return self._clients.get(stream.stream_id)

    def on_closed(self, reason: str) -> None:
        if self._departure is not None:
            self._departure.stop()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._heartbeat is None or causes.is_of_stranger(reason):
            self._core.client_failed(self.channel.peer(), reason)
        for client in list(self._clients.values()):
            try:
                client.gone(f"client connection over: {reason}")
            except Exception as error:
                self.loop.crash(client, faults.CLOSE, error)
        self._core.transport_closed(self)
