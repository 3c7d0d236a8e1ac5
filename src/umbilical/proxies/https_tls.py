"""TLS between clients and the proxy itself, for `curl -x https://` and for listeners beyond loopback."""

import asyncio
import ssl
from functools import partial
from typing import Any, Final, cast

from umbilical.dialer.opener import Streams
from umbilical.dialer.streams import layered_streams
from umbilical.dialer.tls_layer import Scratch, TlsLayer
from umbilical.dialer.trust import AsyncioClock
from umbilical.proxies.http_client import READ_BYTES
from umbilical.proxies.https import HttpProxy
from umbilical.proxies.settings import ListenerSettings
from umbilical.tunnel import tls
from umbilical.tunnel.certificates import Use, WatchedContext
from umbilical.tunnel.metrics import CertificateMetrics
from umbilical.tunnel.settings import TlsFiles, TlsPolicy


class TlsDoor:
    """Fulfils the listener's Service: a handshake first, then whatever the proxy says."""

    def __init__(
        self, proxy: HttpProxy, settings: ListenerSettings, files: TlsFiles, metrics: CertificateMetrics
    ) -> None:
        """Raises StartupError for files that cannot be used."""
        self._proxy: Final = proxy
        self._settings: Final = settings
        build = partial(tls.listener_context, files, TlsPolicy(), "http/1.1", "listener")
        self._watched: Final = WatchedContext(AsyncioClock(), Use("listener", "UMB343", files, build), metrics)
        self._scratch: Final = Scratch()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client that fails in the handshake has heard so by an alert."""
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
        """Nothing is awaited between the first bytes and the change of protocol, so none is lost between them."""
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
        """What came before the layer was there."""
        self.get_buffer(len(data))[: len(data)] = data
        self.buffer_updated(len(data))


class _ServerEnd:
    """A context that gives the server's end of a connection, to whoever asks for one."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context: Final = context

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **client: Any) -> ssl.SSLObject:
        return self._context.wrap_bio(incoming, outgoing, server_side=True)
