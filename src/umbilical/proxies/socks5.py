"""The SOCKS5 proxy: a client's handshake, a dial, the reply by its cause, and the relay."""

import asyncio
import logging
import socket
import time
from typing import Final

from umbilical.dialer.failure import DialFailed
from umbilical.dialer.opener import Opener, Streams
from umbilical.konnectivity.dial_failure import join_host_port
from umbilical.proxies.credentials import Credentials
from umbilical.proxies.metrics import OK, ProxyMetrics
from umbilical.proxies.relay import RelayLimits, relay
from umbilical.proxies.settings import ListenerSettings
from umbilical.tunnel.causes import log_fields
from umbilical.tunnel.dial_notices import Hush
from umbilical.wire import socks5
from umbilical.wire.errors import ProtocolViolation

logger = logging.getLogger(__name__)
tunnels = logging.getLogger("umbilical.tunnels")

PROTOCOL: Final = "socks5"
READ_BYTES: Final = 4096
"""Of a handshake at a time: what is behind it waits in the connection's own, bounded buffer."""


class Socks5:
    """Fulfils `listener.Service`."""

    def __init__(
        self, settings: ListenerSettings, opener: Opener, metrics: ProxyMetrics, credentials: Credentials | None
    ) -> None:
        self._settings: Final = settings
        self._opener: Final = opener
        self._metrics: Final = metrics
        self._credentials: Final = credentials
        self._limits: Final = RelayLimits(settings.idle_seconds, settings.buffer_bytes)
        self._hush: Final = Hush()

    def drain(self) -> None:
        """Every connection is one request: there is nobody to let go."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handshake = socks5.Handshake(self._credentials is not None)
        try:
            async with asyncio.timeout(self._settings.handshake_seconds):
                await self._shake_hands(handshake, reader, writer)
        except TimeoutError:
            self._turned_away(writer, socks5.BAD_REQUEST, "its handshake took too long")
            raise
        except ProtocolViolation as violation:
            self._turned_away(writer, socks5.BAD_REQUEST, violation.message)
        if handshake.request is not None:
            await self._connect(handshake, handshake.request, (reader, writer))
        elif handshake.refusal is not None:
            self._turned_away(writer, handshake.refusal.kind, handshake.refusal.text)

    async def _shake_hands(
        self, handshake: socks5.Handshake, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Until the client has asked for something, was refused, or has left."""
        while handshake.state not in (socks5.DIALLING, socks5.REFUSED):
            data = await reader.read(READ_BYTES)
            if not data:
                return
            handshake.feed(data)
            if handshake.state == socks5.CHECKING and self._credentials is not None:
                handshake.credentials_are(self._credentials.are_valid(handshake.username, handshake.password))
            writer.write(handshake.output())

    async def _connect(self, handshake: socks5.Handshake, request: socks5.Request, client: Streams) -> None:
        began = time.monotonic()
        where = join_host_port(request.host, request.port)
        try:
            endpoint = await self._opener.open(request.host, request.port)
        except DialFailed as failure:
            self._metrics.requested(PROTOCOL, failure.reason.value)
            self._tell(failure, where)
            client[1].write(socks5.encode_reply(failure.verdict.socks_reply))
            return
        self._metrics.requested(PROTOCOL, OK)
        client[1].write(_success(endpoint[1]))
        if early := handshake.rest():
            endpoint[1].write(early)
            self._metrics.traffic.to_endpoint.total += len(early)
        ended = await relay(client, endpoint, self._limits, self._metrics.traffic)
        tunnels.info(
            'tunnel client=%s target=%s up=%d down=%d ms=%d end="%s"',
            *(_name(client[1]), where, ended.to_endpoint + len(early), ended.to_client),
            *(int((time.monotonic() - began) * 1000), ended.reason or "both sides ended"),
        )

    def _turned_away(self, writer: asyncio.StreamWriter, result: str, why: str) -> None:
        self._metrics.requested(PROTOCOL, result)
        self._say(f"UMB522 {result}", f"UMB522 a client is turned away client={_name(writer)}: {why}", "UMB522", "")

    def _tell(self, failure: DialFailed, where: str) -> None:
        verdict = failure.verdict
        text = f"{verdict.code} dial of {where} failed: {verdict.words}: {failure}"
        self._say(f"{verdict.code} {where}", text, verdict.code, verdict.remedy)

    def _say(self, kind: str, text: str, code: str, remedy: str) -> None:
        """The first of a kind at once, then how many there were: a storm is a few lines."""
        unsaid = self._hush.due(kind, time.monotonic())
        if unsaid is not None:
            more = f" ({unsaid} more since the last such line)" if unsaid else ""
            logger.warning("%s%s", text, more, extra=log_fields(code, remedy))


def _success(writer: asyncio.StreamWriter) -> bytes:
    """With the address from which the connection leaves this machine; zeros for a Unix socket, which has none."""
    found = writer.get_extra_info("sockname")
    if isinstance(found, tuple):
        family = socket.AF_INET6 if ":" in found[0] else socket.AF_INET
        try:
            return socks5.encode_reply(socks5.SUCCEEDED, socket.inet_pton(family, found[0]), found[1])
        except OSError:  # an address with a zone
            pass
    return socks5.encode_reply(socks5.SUCCEEDED)


def _name(writer: asyncio.StreamWriter) -> str:
    found = writer.get_extra_info("peername")
    return join_host_port(found[0], found[1]) if isinstance(found, tuple) else "unknown"
