"""Bytes to and from an endpoint over a dialer's streams, plain or with TLS; one HTTP/1.1 exchange over them."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import h11

from umbilical.dialer.streams import Streams
from umbilical.fault import HostedError
from umbilical.hosted.endpoint_tls import TlsFacts, facts_of, words
from umbilical.tunnel.tls import tls_name

CHUNK_BYTES: Final = 64 * 1024


class Pipe:
    """`read` returns b"" at the end. The pipe owns the streams."""

    def __init__(self, streams: Streams) -> None:
        self._reader, self._writer = streams

    async def read(self) -> bytes:
        """Raises OSError."""
        return await self._reader.read(CHUNK_BYTES)

    async def write(self, payload: bytes) -> None:
        """Raises OSError."""
        self._writer.write(payload)
        await self._writer.drain()

    def close(self) -> None:
        """Close without waiting for unsent data."""
        self._writer.transport.abort()


class TlsPipe(Pipe):
    def __init__(self, streams: Streams, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__(streams)
        self._incoming: Final = ssl.MemoryBIO()
        self._outgoing: Final = ssl.MemoryBIO()
        self._is_verified: Final = context.verify_mode is ssl.CERT_REQUIRED
        self._tls: Final = context.wrap_bio(self._incoming, self._outgoing, server_hostname=tls_name(server_name))

    async def handshake(self, seconds: float) -> TlsFacts:
        """Raises OSError: ssl.SSLError, an end of the connection, or TimeoutError."""
        async with asyncio.timeout(seconds):
            await self._shake_hands()
        return facts_of(self._tls, is_verified=self._is_verified)

    async def read(self) -> bytes:
        while True:
            try:
                return self._tls.read(CHUNK_BYTES)
            except ssl.SSLWantReadError:
                await self._feed()
            except ssl.SSLZeroReturnError:
                return b""

    async def write(self, payload: bytes) -> None:
        for start in range(0, len(payload), CHUNK_BYTES):
            self._tls.write(payload[start : start + CHUNK_BYTES])
            await self._flush()

    async def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._feed()
            except ssl.SSLError:
                await self._flush()  # the alert with the reason
                raise
            else:
                await self._flush()
                return

    async def _feed(self) -> None:
        await self._flush()
        received = await self._reader.read(CHUNK_BYTES)
        if received:
            self._incoming.write(received)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        if octets := self._outgoing.read():
            await super().write(octets)


Header = tuple[str, str]
_PORTS: Final = {"http": 80, "https": 443}
MAX_HEAD_BYTES: Final = 256 * 1024
"""Limit for response headers; h11's default is smaller than the cookies of some identity providers."""


@dataclass(frozen=True)
class Url:
    scheme: str
    host: str
    port: int
    path: str
    """Path and query."""

    @property
    def authority(self) -> str:
        """The value of the Host header, without a default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def parse_url(text: str) -> Url:
    """Parse an http or https URL. Raises ValueError with the reason."""
    if any(char.isspace() or not char.isprintable() for char in text):
        raise ValueError("it contains whitespace or control characters")
    parts = urlsplit(text)
    if parts.scheme not in _PORTS:
        raise ValueError("it must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("it contains credentials; use -H @FILE with an Authorization header instead")
    if not parts.hostname:
        raise ValueError("it has no host")
    port = parts.port  # raises ValueError itself
    path = parts.path or "/"
    return Url(
        parts.scheme, parts.hostname, port or _PORTS[parts.scheme], f"{path}?{parts.query}" if parts.query else path
    )


@dataclass(frozen=True)
class HttpCall:
    method: str
    url: Url
    headers: tuple[Header, ...] = ()
    body: bytes = b""


@dataclass(frozen=True)
class HttpAnswer:
    status: int
    reason: str
    version: str
    headers: tuple[Header, ...]

    @property
    def head(self) -> str:
        lines = [f"HTTP/{self.version} {self.status} {self.reason}".rstrip(), *(f"{k}: {v}" for k, v in self.headers)]
        return "".join(f"{line}\r\n" for line in (*lines, ""))


class HttpExchange:
    """`send`, then `answer`, then `body` to its end."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe: Final = pipe
        self._http: Final = h11.Connection(our_role=h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def send(self, call: HttpCall) -> None:
        """Raises HostedError."""
        try:
            request = h11.Request(method=call.method, target=call.url.path, headers=list(_complete(call)))
            octets = self._http.send(request) or b""
            octets += self._http.send(h11.Data(data=call.body)) or b"" if call.body else b""
            octets += self._http.send(h11.EndOfMessage()) or b""
        except h11.LocalProtocolError as error:
            raise HostedError("UMB575", "the request is not valid HTTP", str(error), "check -X and -H") from None
        try:
            await self._pipe.write(octets)
        except OSError as error:
            raise _broken(words(error)) from None

    async def answer(self) -> HttpAnswer:
        """Wait for the response head; informational responses (1xx) are skipped."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return _answer(event)
            if not isinstance(event, h11.InformationalResponse):
                raise _broken("it closed the connection without a response")

    async def body(self) -> AsyncIterator[bytes]:
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            else:
                return

    async def _next(self) -> h11.Event | None:
        """Return None if the endpoint switches to another protocol."""
        while True:
            try:
                event = self._http.next_event()
                if isinstance(event, h11.Event):
                    return event
                if event is h11.PAUSED:
                    return None
                self._http.receive_data(await self._pipe.read())
            except h11.RemoteProtocolError as error:
                raise _broken(str(error)) from None
            except OSError as error:
                raise _broken(words(error)) from None


def names(headers: Sequence[Header]) -> set[str]:
    return {name.lower() for name, _ in headers}


def _complete(call: HttpCall) -> list[Header]:
    """Add the default headers that the user did not give."""
    given = names(call.headers)
    usual: list[Header] = [("Host", call.url.authority), ("User-Agent", "umbilical"), ("Accept", "*/*")]
    # One request per connection: the end of the connection ends the body.
    usual.append(("Connection", "close"))
    if call.body:
        usual.append(("Content-Length", str(len(call.body))))
    return [*(header for header in usual if header[0].lower() not in given), *call.headers]


def _answer(event: h11.Response) -> HttpAnswer:
    headers = tuple((_text(name), _text(value)) for name, value in event.headers.raw_items())
    return HttpAnswer(event.status_code, _text(event.reason), _text(event.http_version), headers)


def _text(octets: bytes) -> str:
    return octets.decode("latin-1")


def _broken(why: str) -> HostedError:
    return HostedError(
        "UMB575",
        "the endpoint sent no complete HTTP response",
        why,
        "check the port, and http or https in the URL; -v shows each hop",
    )
