"""Connections to endpoints through the servers of one tunnel: servers are tried in turn until one opens the tunnel.

A dialer belongs to one event loop. It opens one connection per dial, as kube-apiserver does; nothing is pooled.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from umbilical.dialer import reach, streams
from umbilical.dialer.connect import authority_of, connect
from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.settings import DialerSettings, Protocol, TcpServer, UnixServer
from umbilical.dialer.streams import Streams
from umbilical.dialer.tls_layer import Scratch, TlsLayer, watched_context
from umbilical.dialer.trace import Trace, add_hop
from umbilical.tunnel.certificates import WatchedContext
from umbilical.tunnel.metrics import CertificateMetrics
from umbilical.tunnel.socket_transport import open_transport
from umbilical.tunnel.tls import tls_reason

if TYPE_CHECKING:
    from umbilical.dialer.grpc_layer import GrpcLayer


class TunnelRoute:
    """The route through one server, from a socket to a tunnel; keeps the TLS session from dial to dial."""

    def __init__(
        self,
        server: UnixServer | TcpServer,
        settings: DialerSettings,
        watched: WatchedContext | None,
        scratch: Scratch,
    ) -> None:
        self.name: Final = reach.name_of(server)
        self.failed_at: float | None = None
        """When the last dial failed; None after a dial that succeeded."""
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
        from umbilical.dialer.grpc_layer import GrpcLayer, dial

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
        """Connect the layer to the socket, or to TLS over the socket."""
        if isinstance(self._server, UnixServer):
            await open_transport(sock, layer)
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
            add_hop(trace, "connect", started, self.name, str(error))
            raise DialFailed(DialReason.SERVER, self.name, str(error)) from None
        add_hop(trace, "connect", started, self.name)
        return sock

    async def _enter(self, sock: socket.socket, trace: Trace | None) -> Streams:
        """Return streams to the server itself."""
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
                await open_transport(sock, layer)
                layer.set_write_buffer_limits(self._settings.buffer_bytes)
                await layer.shake_hands()
        except (OSError, TimeoutError) as error:
            layer.abort()
            failure = self._no_handshake(error)
            add_hop(trace, "tls", started, self.name, failure.text)
            raise failure from None
        except BaseException:
            layer.abort()
            raise
        add_hop(trace, "tls", started, _handshake_detail(layer))

    def _layer(self, server: TcpServer) -> TlsLayer:
        assert self._watched is not None
        context = self._watched.context()
        if context is not self._session_context:
            self._session, self._session_context = None, context
        return TlsLayer(context, server.server_name or server.host, self._session, self._scratch)

    def _no_handshake(self, error: Exception) -> DialFailed:
        if isinstance(error, TimeoutError):
            text = f"no TLS handshake within {self._settings.tls_seconds:g} s"
            return DialFailed(DialReason.SERVER, self.name, text)
        if isinstance(error, ssl.SSLError):
            return DialFailed(DialReason.TLS, self.name, tls_reason(error))
        text = reach.words_of(error) if isinstance(error, OSError) else str(error)
        return DialFailed(DialReason.SERVER, self.name, f"connection lost during the TLS handshake: {text}")

    def _keep_session(self, writer: asyncio.StreamWriter) -> None:
        """Session tickets follow the handshake; they have arrived by the time of a reply."""
        tls = writer.get_extra_info("ssl_object")
        if isinstance(tls, ssl.SSLObject) and tls.context is self._session_context and tls.session is not None:
            self._session = tls.session


def _handshake_detail(layer: TlsLayer) -> str:
    resumed = "resumed" if layer.tls.session_reused else "full handshake"
    return f"{layer.tls.version()}, {resumed}"


logger = logging.getLogger(__name__)

DEPRIORITIZED_SECONDS: Final = 10.0
"""How long a server that failed is tried after the others."""
TRY_NEXT_SERVER: Final = frozenset({DialReason.SERVER, DialReason.TLS, DialReason.NO_AGENT, DialReason.AGENT_LOST})
"""The endpoint was not dialled, so the next server is tried; any other reason is the endpoint's answer."""


class Dialer:
    """Implements `streams.Opener`."""

    def __init__(
        self,
        settings: DialerSettings,
        metrics: CertificateMetrics | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises StartupError (UMB020 to UMB022) when the certificate files cannot be used."""
        if not settings.servers:
            raise ValueError("a dialer needs at least one server")
        self.certificate_metrics: Final = metrics or CertificateMetrics()
        self._now: Final = now
        self._watched: Final = watched_context(settings, self.certificate_metrics)
        scratch = Scratch()
        self._routes: Final = [TunnelRoute(server, settings, self._watched, scratch) for server in settings.servers]
        self._started = False

    async def open(self, host: str, port: int, trace: Trace | None = None) -> Streams:
        """Raises DialFailed: the endpoint's failure, or that of the server that was tried last."""
        self._start()
        endpoint = authority_of(host, port)
        failure: DialFailed | None = None
        for route in self._ranked():
            if trace is not None:
                trace.begin(route.name)
            try:
                opened = await route.open(endpoint, trace)
            except DialFailed as error:
                failure = error
                if error.reason not in TRY_NEXT_SERVER:
                    raise
                self._mark_failed(route, error)
            else:
                self._mark_working(route)
                return opened
        assert failure is not None
        raise failure

    async def close(self) -> None:
        """Stop the watch on certificate files; open connections stay open."""
        if self._watched is not None:
            self._watched.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _start(self) -> None:
        """Called at the first dial: a timer needs a running loop."""
        if not self._started:
            self._started = True
            if self._watched is not None:
                self._watched.start()

    def _ranked(self) -> list[TunnelRoute]:
        """Return routes in the order given; those that failed recently come last, the oldest failure first."""
        if len(self._routes) == 1:
            return self._routes
        limit = self._now() - DEPRIORITIZED_SECONDS
        return sorted(self._routes, key=lambda route: max(route.failed_at or limit, limit))

    def _mark_failed(self, route: TunnelRoute, failure: DialFailed) -> None:
        if route.failed_at is None and len(self._routes) > 1:
            logger.warning("%s server %s failed, using others first: %s", failure.report.code, route.name, failure.text)
        route.failed_at = self._now()

    def _mark_working(self, route: TunnelRoute) -> None:
        if route.failed_at is not None and len(self._routes) > 1:
            logger.info("server %s works again", route.name)
        route.failed_at = None
