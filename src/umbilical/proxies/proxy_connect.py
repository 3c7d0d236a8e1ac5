"""CONNECT through an HTTP proxy, over TLS where its URL says https; whatever opens connections leads to it."""

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
from umbilical.tunnel.channel import tls_reason
from umbilical.tunnel.tls import noticing_truncation
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
"""Said of the proxy and not of the endpoint, these would mislead; what is the tunnel's own fault stays as it is."""


class ProxyUrl(Record):
    """A proxy's URL in parts. Its text never shows user or password."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = ""

    @property
    def authorization(self) -> str:
        """The value of Proxy-Authorization; empty where the URL names no user."""
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
    """Read a proxy's URL; None where there is none. A value without a scheme is taken as http, as in Go.

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
            f"{setting} cannot be read",
            "it is no URL with a host and a port",
            "write it as http://[USER[:PASSWORD]@]HOST[:PORT], special characters percent-encoded",
        )
    if parts.scheme not in DEFAULT_PORTS:
        raise StartupError(
            UNSUPPORTED,
            f"{setting} names a proxy of a kind that is not spoken here",
            f"its scheme is {parts.scheme!r}",
            "give a proxy by http:// or https://",
        )
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return ProxyUrl(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], user, password)


class ProxyTls:
    """How proxies that speak TLS are verified: by the system's CAs and one more file, each by its own name."""

    def __init__(self, authority: Path | None = None) -> None:
        """Raises StartupError for a file that holds no CA."""
        self._scratch: Scratch | None = None
        self._context: ssl.SSLContext | None = None
        if authority is not None:
            self._context = _context()
            _trust(self._context, authority)

    async def wrap(self, streams: Streams, server_name: str) -> Streams:
        """Put TLS on a connection, which is closed where that fails. Raises OSError (also ssl.SSLError)."""
        if self._context is None:
            self._context = _context()  # when needed: it reads all CAs of the system
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
        # A StreamWriter that nobody holds closes its transport.
        self._below_streams: Final = below


async def connect_through(proxy: ProxyUrl, opener: Opener, host: str, port: int, tls: ProxyTls) -> Streams:
    """Open a connection to an endpoint by way of a proxy, which resolves its name. Raises DialFailed."""
    endpoint = authority_of(host, port)
    streams = await reach(proxy, opener, tls)
    try:
        await ask(proxy, streams, endpoint)
    except BaseException:
        streams[1].transport.abort()
        raise
    return streams


async def reach(proxy: ProxyUrl, opener: Opener, tls: ProxyTls) -> Streams:
    """Open a connection to the proxy itself, with TLS where its URL says so. Raises DialFailed."""
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
        text = f"lost during the TLS handshake: {error}"
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
        raise DialFailed(DialReason.PROXY, hop_of(proxy), f"lost before it answered CONNECT: {error}") from None
    if not 200 <= reply.status < 300:  # RFC 9110 section 9.3.6: any of these opens the tunnel
        reason = DialReason.FORBIDDEN if reply.status in (403, 407) else DialReason.PROXY
        said = await refusal_text(reader, reply, SHOWN_BODY_BYTES)
        text = f"refused CONNECT {endpoint}: {reply.status_line}" + (f": {said}" if said else "")
        raise DialFailed(reason, hop_of(proxy), text)


def hop_of(proxy: ProxyUrl) -> str:
    """How failures name it."""
    return f"proxy {proxy}"


def _context() -> ssl.SSLContext:
    context = noticing_truncation(ssl.create_default_context())
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A write could want to read first in a TLS 1.2 connection that is negotiated anew; nobody needs that.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _trust(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(cafile=authority)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise StartupError(
            "UMB533",
            f"cannot load the proxies' CA certificates {authority}",
            tls_reason(error) if isinstance(error, ssl.SSLError) else str(error),
            f"check the file: openssl x509 -text -noout -in {authority}",
        ) from error
