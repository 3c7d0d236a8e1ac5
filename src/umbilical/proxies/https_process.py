"""The HTTP proxy as a process, and TLS between clients and the proxy (`curl -x https://`)."""

import asyncio
import ssl
from functools import partial
from typing import Any, Final, cast

from umbilical.dialer.streams import Opener, Streams, layered_streams
from umbilical.dialer.tls_layer import AsyncioClock, Scratch, TlsLayer
from umbilical.proxies.direct import DirectHosts
from umbilical.proxies.http_client import READ_BYTES
from umbilical.proxies.https import HttpProxy
from umbilical.proxies.listener import ConnectionService
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.process import MakeTunnel, run_proxy, tunnel_of
from umbilical.proxies.proxy_connect import ProxyTls
from umbilical.proxies.proxy_rules import ProxyRules, UserProxyRules
from umbilical.proxies.settings import HttpsSettings, ListenerSettings, OutboundSettings
from umbilical.proxies.user_proxy import UserProxy
from umbilical.tunnel import tls
from umbilical.tunnel.certificates import CertificateUse, WatchedContext
from umbilical.tunnel.metrics import CertificateMetrics
from umbilical.tunnel.settings import TlsFiles, TlsPolicy


async def run_https(settings: HttpsSettings, make_tunnel: MakeTunnel | None = None) -> int:
    """Serve until a signal; return the exit code. Raises StartupError."""
    watched = UserProxyRules(settings)
    outbound = through_tunnel(settings.outbound, watched.rules())
    direct = DirectHosts(outbound.direct_suffixes, outbound.never_direct)
    tls = ProxyTls(settings.proxy_authority)

    def make_service(opener: Opener, metrics: ProxyMetrics) -> ConnectionService:
        router = UserProxy(watched.rules, direct, opener, tls, metrics)
        proxy = HttpProxy(router, settings.listener, metrics, default_connect_port=settings.default_connect_port)
        if settings.listen_tls.certificate is None:
            return proxy
        return TlsService(proxy, settings.listener, settings.listen_tls, metrics.certificates)

    return await run_proxy(settings.listener, make_tunnel or tunnel_of(outbound), make_service, "HTTP proxy")


def through_tunnel(settings: OutboundSettings, rules: ProxyRules) -> OutboundSettings:
    """Always reach the user's proxy through the tunnel, although its name may be below a cloud's domain."""
    never = (*settings.never_direct, *(proxy.host for proxy in rules.proxies))
    return OutboundSettings(**(vars(settings) | {"never_direct": never}))


class TlsService:
    """Implements ConnectionService: a TLS handshake, then the proxy."""

    def __init__(
        self, proxy: HttpProxy, settings: ListenerSettings, files: TlsFiles, metrics: CertificateMetrics
    ) -> None:
        """Raises StartupError for invalid files."""
        self._proxy: Final = proxy
        self._settings: Final = settings
        build = partial(tls.listener_context, files, TlsPolicy(), "http/1.1", "listener")
        self._watched: Final = WatchedContext(
            AsyncioClock(), CertificateUse("listener", "UMB343", files, build), metrics
        )
        self._scratch: Final = Scratch()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client whose handshake fails gets a TLS alert."""
        async with asyncio.timeout(self._settings.handshake_seconds):
            secured = await self._shake_hands((reader, writer))
        if secured is None:
            return
        try:
            await self._proxy.serve(*secured)
        finally:
            secured[1].close()

    def drain(self) -> None:
        self._proxy.drain()

    async def _shake_hands(self, below: Streams) -> Streams | None:
        """No await between the first bytes and the change of protocol: none are lost."""
        reader, writer = below
        layer = _ServerLayer(self._watched.context(), self._scratch)
        first = await reader.read(READ_BYTES)
        if not first:
            return None
        secured = layered_streams(layer, self._settings.buffer_bytes)
        transport = cast(asyncio.Transport, writer.transport)
        transport.set_protocol(layer)
        layer.connection_made(transport)
        layer.take(first)
        if not transport.is_reading():
            transport.resume_reading()
        try:
            await layer.shake_hands()
        except BaseException:
            layer.abort()
            raise
        return secured


class _ServerLayer(TlsLayer):
    def __init__(self, context: ssl.SSLContext, scratch: Scratch) -> None:
        super().__init__(cast(ssl.SSLContext, _ServerEnd(context)), "", None, scratch)

    def take(self, data: bytes) -> None:
        """Process bytes that arrived before the layer existed."""
        self.get_buffer(len(data))[: len(data)] = data
        self.buffer_updated(len(data))


class _ServerEnd:
    """A context whose `wrap_bio` creates the server side."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context: Final = context

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **client: Any) -> ssl.SSLObject:
        return self._context.wrap_bio(incoming, outgoing, server_side=True)
