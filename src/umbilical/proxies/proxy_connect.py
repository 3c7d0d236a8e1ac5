"""CONNECT through an HTTP proxy, over TLS if its URL is https://; any Opener leads to the proxy."""

import asyncio
import base64
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from umbilical.dialer.connect import authority_of, read_reply, refusal_text
from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.streams import Opener, Streams, layered_streams
from umbilical.dialer.tls_layer import Scratch, TlsLayer
from umbilical.fault import StartupError
from umbilical.konnectivity.dial_failure import join_host_port
from umbilical.record import Record
from umbilical.tunnel.tls import noticing_truncation, tls_reason
from umbilical.wire import http1
from umbilical.wire.errors import ProtocolViolation

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
UNREADABLE: Final = "UMB531"
UNSUPPORTED: Final = "UMB532"
HANDSHAKE_SECONDS: Final = 10.0
REPLY_SECONDS: Final = 30.0
SHOWN_BODY_BYTES: Final = 500
BUFFER_BYTES: Final = 256 * 1024
OF_THE_PROXY: Final = frozenset({DialReason.REFUSED, DialReason.UNREACHABLE, DialReason.TIMEOUT, DialReason.NAME})
"""Reported as PROXY, since they concern the proxy and not the endpoint; failures of the tunnel stay unchanged."""


class ProxyUrl(Record):
    """A parsed proxy URL. Its text never shows user or password."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = ""

    @property
    def authorization(self) -> str:
        """The value of Proxy-Authorization; empty without a user."""
        if not self.user and not self.password:
            return ""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    def __str__(self) -> str:
        return f"{self.scheme}://{join_host_port(self.host, self.port)}"

    def __repr__(self) -> str:
        return f"ProxyUrl({self})"


def parse_proxy_url(text: str, setting: str) -> ProxyUrl | None:
    """Parse a proxy's URL; None for an empty one. Without a scheme it is http, as in Go.

    Raises StartupError, which names the setting and never shows its value.
    """
    if not text:
        return None
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = unquote(parts.hostname or ""), parts.port
    except ValueError:
        host, port, parts = "", None, SplitResult("", "", "", "", "")
    if not host or any(character.isspace() for character in parts.netloc):
        raise StartupError(
            UNREADABLE,
            f"{setting} is invalid",
            "it is not a URL with a host",
            "write it as http://[USER[:PASSWORD]@]HOST[:PORT], special characters percent-encoded",
        )
    if parts.scheme not in DEFAULT_PORTS:
        raise StartupError(
            UNSUPPORTED,
            f"{setting} has an unsupported scheme",
            f"its scheme is {parts.scheme!r}",
            "give a proxy with http:// or https://",
        )
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return ProxyUrl(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], user, password)


class ProxyTls:
    """Verifies proxies with https:// URLs: by the system's CAs and an additional file, each by its own name."""

    def __init__(self, authority: Path | None = None) -> None:
        """Raises StartupError for a file without a CA."""
        self._scratch: Scratch | None = None
        self._context: ssl.SSLContext | None = None
        if authority is not None:
            self._context = _context()
            _trust(self._context, authority)

    async def wrap(self, streams: Streams, server_name: str) -> Streams:
        """Start TLS on a connection, which is closed on failure. Raises OSError (also ssl.SSLError)."""
        if self._context is None:
            self._context = _context()  # lazily: it reads all CAs of the system
        if self._scratch is None:
            self._scratch = Scratch()
        layer = _Tls(self._context, server_name, self._scratch, streams)
        wrapped = layered_streams(layer, BUFFER_BYTES)
        transport = streams[1].transport
        transport.set_protocol(layer)
        layer.connection_made(transport)
        try:
            await layer.shake_hands()
        except BaseException:
            layer.abort()
            raise
        return wrapped


class _Tls(TlsLayer):
    def __init__(self, context: ssl.SSLContext, server_name: str, scratch: Scratch, below: Streams) -> None:
        super().__init__(context, server_name, None, scratch)
        # A StreamWriter closes its transport when it is garbage-collected.
        self._below_streams: Final = below


async def connect_through(proxy: ProxyUrl, opener: Opener, host: str, port: int, tls: ProxyTls) -> Streams:
    """Open a connection to an endpoint through a proxy, which resolves its name. Raises DialFailed."""
    endpoint = authority_of(host, port)
    streams = await reach(proxy, opener, tls)
    try:
        await ask(proxy, streams, endpoint)
    except BaseException:
        streams[1].transport.abort()
        raise
    return streams


async def reach(proxy: ProxyUrl, opener: Opener, tls: ProxyTls) -> Streams:
    """Open a connection to the proxy itself, with TLS if its URL is https://. Raises DialFailed."""
    try:
        streams = await opener.open(proxy.host, proxy.port)
    except DialFailed as failure:
        if failure.reason not in OF_THE_PROXY:
            raise
        raise DialFailed(DialReason.PROXY, hop_of(proxy), failure.text) from failure
    if not proxy.is_tls:
        return streams
    try:
        return await _secured(proxy, streams, tls)
    except BaseException:
        streams[1].transport.abort()
        raise


async def _secured(proxy: ProxyUrl, streams: Streams, tls: ProxyTls) -> Streams:
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            return await tls.wrap(streams, proxy.host)
    except TimeoutError:
        text = f"no TLS handshake within {HANDSHAKE_SECONDS:g} s"
    except ssl.SSLError as error:
        text = f"TLS: {tls_reason(error)}"
    except OSError as error:
        text = f"connection lost during the TLS handshake: {error}"
    raise DialFailed(DialReason.PROXY, hop_of(proxy), text)


async def ask(proxy: ProxyUrl, streams: Streams, endpoint: str) -> None:
    """Return when the streams lead to the endpoint; its first bytes stay in the reader. Raises DialFailed."""
    reader, writer = streams
    headers = [("Proxy-Authorization", proxy.authorization)] if proxy.authorization else []
    try:
        async with asyncio.timeout(REPLY_SECONDS):
            writer.write(http1.format_connect_request(endpoint, headers))
            reply = await read_reply(reader)
            while 100 <= reply.status < 200 and reply.status != 101:
                reply = await read_reply(reader)
    except TimeoutError:
        raise DialFailed(DialReason.PROXY, hop_of(proxy), f"no answer to CONNECT within {REPLY_SECONDS:g} s") from None
    except ProtocolViolation as error:
        raise DialFailed(DialReason.PROXY, hop_of(proxy), error.message) from None
    except (OSError, EOFError) as error:
        raise DialFailed(DialReason.PROXY, hop_of(proxy), f"disconnected before answering CONNECT: {error}") from None
    if not 200 <= reply.status < 300:  # RFC 9110 section 9.3.6: any of these opens the tunnel
        reason = DialReason.FORBIDDEN if reply.status in (403, 407) else DialReason.PROXY
        body = await refusal_text(reader, reply, SHOWN_BODY_BYTES)
        text = f"refused CONNECT {endpoint}: {reply.status_line}" + (f": {body}" if body else "")
        raise DialFailed(reason, hop_of(proxy), text)


def hop_of(proxy: ProxyUrl) -> str:
    """Return the proxy's name in failures."""
    return f"proxy {proxy}"


def _context() -> ssl.SSLContext:
    context = noticing_truncation(ssl.create_default_context())
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # With TLS 1.2 renegotiation a write could need a read first.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _trust(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(cafile=authority)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise StartupError(
            "UMB533",
            f"could not load the proxies' CA certificates {authority}",
            tls_reason(error) if isinstance(error, ssl.SSLError) else str(error),
            f"check the file: openssl x509 -text -noout -in {authority}",
        ) from error
