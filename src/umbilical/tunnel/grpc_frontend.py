"""Connections of clients that speak gRPC: one or many Proxy streams on each, one tunnel per stream (grpc_client.py)."""

import logging
import time
from typing import Final

from umbilical.tunnel.channel import Channel, TlsChannel
from umbilical.tunnel.grpc_client import GrpcClient
from umbilical.tunnel.keepalive import Heartbeat
from umbilical.tunnel.server_core import ServerCore
from umbilical.tunnel.transport import Transport, client_side_connection
from umbilical.wire import grpc
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2.events import ConnectionEvent, DataReceived, HeadersReceived, StreamReset
from umbilical.wire.http2.headers import HeaderList
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import read_packets

logger = logging.getLogger(__name__)

PROXY_PATH: Final = b"/ProxyService/Proxy"


class GrpcTransport(Transport):
    """One client connection."""

    def __init__(self, channel: Channel, core: ServerCore) -> None:
        super().__init__(core.loop, channel, client_side_connection())
        self._core: Final = core
        self._heartbeat: Heartbeat | None = None
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

    def on_open(self) -> None:
        self._core.handshakes.discard(self)
        self._heartbeat = Heartbeat(self, self._core.settings.frontend_keepalive)

    def on_timer(self) -> None:
        self.lose("TLS handshake took too long")

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

    def _on_call(self, stream: Stream, headers: HeaderList) -> None:
        path = b""
        for name, value in headers:
            if name == b":path":
                path = value
        if path != PROXY_PATH:
            text = f"unknown method {path.decode('utf-8', 'replace')}"
            self.finish(stream, grpc.UNIMPLEMENTED, text)
            return
        refusal = self._refusal()
        if refusal:
            self.finish(stream, grpc.PERMISSION_DENIED, refusal)
            return
        GrpcClient(self, stream, self._core, self._clients)
        self.connection.sender.send_headers(stream, grpc.RESPONSE_HEADERS)

    def _refusal(self) -> str:
        channel = self.channel
        return self._core.refuse_client(channel.tls, channel.peer()) if isinstance(channel, TlsChannel) else ""

    def on_data(self, event: DataReceived) -> None:
        stream = event.stream
        client = self._clients.get(stream.stream_id)
        size = event.end - event.start
        ended = event.end_stream
        if client is None:
            self.connection.credit(stream, size)
            return
        try:
            read_packets(event, client)
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

    def on_closed(self, reason: str) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
        else:
            logger.info("client connection failed peer=%s: %s", self.channel.peer(), reason)
        for client in list(self._clients.values()):
            client.gone(f"client connection over: {reason}")
        self._core.transport_closed(self)
