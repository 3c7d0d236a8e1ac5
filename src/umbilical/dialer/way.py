"""The way to one server, from a socket to a tunnel, and what is remembered of it from dial to dial."""

import asyncio
import socket
import ssl
import time
from typing import TYPE_CHECKING, Final

from umbilical.dialer import reach, streams
from umbilical.dialer.connect import connect
from umbilical.dialer.failure import DialFailed, Reason
from umbilical.dialer.opener import Streams
from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer, UnixServer
from umbilical.dialer.tls_layer import Scratch, TlsLayer
from umbilical.dialer.trace import Trace
from umbilical.tunnel.certificates import WatchedContext
from umbilical.tunnel.channel import tls_reason

if TYPE_CHECKING:
    from umbilical.dialer.grpc_layer import GrpcLayer


class Way:
    def __init__(
        self,
        server: UnixServer | TcpServer,
        settings: DialerSettings,
        watched: WatchedContext | None,
        scratch: Scratch,
    ) -> None:
        self.name: Final = reach.name_of(server)
        self.failed_at: float | None = None
        """When it was given up for another; None once it has worked again."""
        self._server: Final = server
        self._settings: Final = settings
        self._watched: Final = watched
        self._scratch: Final = scratch
        self._session: ssl.SSLSession | None = None
        self._session_context: ssl.SSLContext | None = None

    async def open(self, endpoint: str, trace: Trace | None) -> Streams:
        """Raises DialFailed."""
        sock = await self._reach(trace)
        if self._settings.protocol is Protocol.GRPC:
            return await self._open_grpc(sock, endpoint, trace)
        opened = await self._enter(sock, trace)
        try:
            await connect(opened, self.name, endpoint, self._settings.reply_seconds, trace)
        except BaseException:
            opened[1].transport.abort()
            raise
        self._keep_session(opened[1])
        if isinstance(opened[1].transport, TlsLayer):
            opened[1].transport.server = self.name
        return opened

    async def _open_grpc(self, sock: socket.socket, endpoint: str, trace: Trace | None) -> Streams:
        # Most dialers never need HTTP/2.
        from umbilical.dialer.grpc_dial import dial
        from umbilical.dialer.grpc_layer import GrpcLayer

        layer = GrpcLayer(self._authority(), isinstance(self._server, TcpServer), self._settings.buffer_bytes)
        opened = streams.layered_streams(layer, self._settings.buffer_bytes)
        try:
            await self._lay(layer, sock, trace)
            address = endpoint.replace("%25", "%")  # no URL here
            await dial(layer, self.name, address, self._settings.reply_seconds, trace)
        except BaseException:
            layer.abort()
            raise
        self._keep_session(opened[1])
        return opened

    async def _lay(self, layer: "GrpcLayer", sock: socket.socket, trace: Trace | None) -> None:
        """Put it on the socket, or on TLS on the socket."""
        if isinstance(self._server, UnixServer):
            await asyncio.get_running_loop().create_connection(lambda: layer, sock=sock)
            return
        tls = self._layer(self._server)
        tls.set_protocol(layer)
        await self._shake_hands(sock, tls, trace)
        layer.connection_made(tls)

    def _authority(self) -> str:
        from urllib.parse import quote

        return quote(str(self._server.path), safe="") if isinstance(self._server, UnixServer) else self.name

    async def _reach(self, trace: Trace | None) -> socket.socket:
        started = time.monotonic()
        try:
            sock = await reach.reach(self._server, self._settings.connect_seconds)
        except reach.Unreached as error:
            if trace is not None:
                trace.failed("connect", time.monotonic() - started, self.name, str(error))
            raise DialFailed(Reason.SERVER, self.name, str(error)) from None
        if trace is not None:
            trace.passed("connect", time.monotonic() - started, self.name)
        return sock

    async def _enter(self, sock: socket.socket, trace: Trace | None) -> Streams:
        """Streams that lead to the server itself."""
        if isinstance(self._server, UnixServer):
            return await streams.plain_streams(sock, self._settings.buffer_bytes)
        layer = self._layer(self._server)
        opened = streams.layered_streams(layer, self._settings.buffer_bytes)
        await self._shake_hands(sock, layer, trace)
        return opened

    async def _shake_hands(self, sock: socket.socket, layer: TlsLayer, trace: Trace | None) -> None:
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._settings.tls_seconds):
                await asyncio.get_running_loop().create_connection(lambda: layer, sock=sock)
                layer.set_write_buffer_limits(self._settings.buffer_bytes)
                await layer.shake_hands()
        except (OSError, TimeoutError) as error:
            layer.abort()
            failure = self._no_handshake(error)
            if trace is not None:
                trace.failed("tls", time.monotonic() - started, self.name, failure.text)
            raise failure from None
        except BaseException:
            layer.abort()
            raise
        if trace is not None:
            trace.passed("tls", time.monotonic() - started, _handshake_detail(layer))

    def _layer(self, server: TcpServer) -> TlsLayer:
        assert self._watched is not None
        context = self._watched.context()
        if context is not self._session_context:
            self._session, self._session_context = None, context
        return TlsLayer(context, server.server_name or server.host, self._session, self._scratch)

    def _no_handshake(self, error: Exception) -> DialFailed:
        if isinstance(error, TimeoutError):
            text = f"no TLS handshake within {self._settings.tls_seconds:g} s"
            return DialFailed(Reason.SERVER, self.name, text)
        if isinstance(error, ssl.SSLError):
            return DialFailed(Reason.TLS, self.name, tls_reason(error))
        text = reach.words_of(error) if isinstance(error, OSError) else str(error)
        return DialFailed(Reason.SERVER, self.name, f"connection lost during the TLS handshake: {text}")

    def _keep_session(self, writer: asyncio.StreamWriter) -> None:
        """Tickets come behind the handshake; by the time of a reply they are here."""
        tls = writer.get_extra_info("ssl_object")
        if isinstance(tls, ssl.SSLObject) and tls.context is self._session_context and tls.session is not None:
            self._session = tls.session


def _handshake_detail(layer: TlsLayer) -> str:
    resumed = "resumed" if layer.tls.session_reused else "full handshake"
    return f"{layer.tls.version()}, {resumed}"
