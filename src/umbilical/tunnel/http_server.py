"""The HTTP/1.1 server behind health and admin ports: a few fixed paths, no request body is used.

Redirects, status codes and limits are those of Go's server, as probes and scrapers know them from upstream.
The routes are in `admin.py` and, for the proxies, in `proxies/health.py`.
"""

import asyncio
import posixpath
import re
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, suppress
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import quote, unquote, urlsplit

from umbilical.fault import StartupError
from umbilical.record import Record
from umbilical.tunnel import descriptors
from umbilical.tunnel.certificates import WatchedContext
from umbilical.tunnel.daemon import end_task, open_streams, own_task
from umbilical.tunnel.listening import SocketFile, listen_unix
from umbilical.tunnel.settings import ListenAddress, UnixFrontend
from umbilical.wire import http1
from umbilical.wire.errors import ProtocolViolation

MAX_CONNECTIONS: Final = 256
HEAD_SECONDS: Final = 60.0
"""Timeout for a request head from its first byte, as upstream; also for a body, and for a client to read a response."""
IDLE_SECONDS: Final = 180.0
"""Upstream has no limit. Longer than common scrape intervals, so that scrapers keep their connection."""
MAX_HEAD_BYTES: Final = 1 << 20
MAX_BODY_BYTES: Final = 256 << 10
"""Like Go, the server discards a body up to this size; it closes the connection if there is more."""
READ_BYTES: Final = 65536
SPARE_FILES: Final = 4
"""With fewer files left, each new connection takes the place of an idle one."""
PAUSE_SECONDS: Final = 0.05
"""Time until a listener without a free file tries again."""
_MAX_CHUNK_DIGITS: Final = 8
_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"

_BAD_ESCAPE: Final = re.compile("%(?![0-9a-fA-F]{2})")
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffd]")
"""Control characters, line breaks, and what stands for bytes that are not UTF-8."""
_SAFE_IN_PATHS: Final = "/$&+,:;=@"
"""As Go's package url."""
_ASCII: Final = "".join(map(chr, range(0x21, 0x7F)))

PLAIN: Final = "text/plain; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"

Headers = tuple[tuple[str, str], ...]


class HttpRequest(Record):
    method: str
    path: str
    query: str = ""
    host: str = ""
    """The Host header."""
    authorization: str = ""
    """The header of this name; it may hold a secret."""


class HttpResponse(Record):
    status: int
    body: bytes
    headers: Headers = (("Content-Type", PLAIN),)
    stream: AsyncGenerator[bytes] | None = None
    """What follows the body, until either side closes the connection; the length is unknown."""


class HttpRoutes(Protocol):
    async def respond(self, request: HttpRequest) -> HttpResponse:
        """Answer a request with a clean path (`/a/b`: no dots, no double slashes)."""


class HttpListener:
    """One listening port and the connections on it."""

    def __init__(
        self,
        address: ListenAddress | UnixFrontend,
        routes: HttpRoutes,
        max_connections: int = MAX_CONNECTIONS,
        tls: WatchedContext | None = None,
    ) -> None:
        self._address = address
        self._routes = routes
        self._max_connections = max_connections
        self._tls = tls
        self._connections: dict[asyncio.Task[None], _Connection | None] = {}
        """None until it has streams."""
        self._listening: socket.socket | None = None
        self._file: SocketFile | None = None
        self.port = 0
        """After `start` the real port, also where port 0 was requested; 0 of a Unix socket."""

    async def start(self) -> None:
        """Bind and listen. Raises OSError if that fails, or StartupError for a Unix socket."""
        if isinstance(self._address, UnixFrontend):
            listening = self._listening = listen_unix(self._address)
            self._file = SocketFile(self._address.path)
        else:
            listening = self._listening = await _bind(self._address)
            self.port = listening.getsockname()[1]
        listening.setblocking(False)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    async def stop(self) -> None:
        """Stop listening and end every connection. A second call does nothing."""
        listening, self._listening = self._listening, None
        if listening is None:
            return
        asyncio.get_running_loop().remove_reader(listening)
        if self._file is not None:
            self._file.remove()
        listening.close()
        while tasks := list(self._connections):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # aborted transports close their sockets in the loop's next turn

    def _accept(self, listening: socket.socket) -> None:
        """One connection per turn, unlike asyncio's server, so that idle ones can make way before files run out."""
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:
            self._drop_idle()
            self._pause(listening)
            return
        if sock.fileno() >= descriptors.limit() - SPARE_FILES and not self._drop_idle():
            self._drop_oldest()
        # Many idle scrapers must not keep a health probe out.
        if len(self._connections) >= self._max_connections and not self._drop_idle():
            sock.close()
            return
        sock.setblocking(False)
        task = own_task(self._serve(sock))
        self._connections[task] = None
        task.add_done_callback(self._connections.pop)

    def _pause(self, listening: socket.socket) -> None:
        """No file is left: new connections wait in the backlog."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(PAUSE_SECONDS, self._go_on, listening)

    def _go_on(self, listening: socket.socket) -> None:
        if self._listening is listening:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    async def _serve(self, sock: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                context = None if self._tls is None else self._tls.context()
                reader, writer = await open_streams(sock, READ_BYTES, tls=context)
        except (asyncio.CancelledError, OSError):
            return
        connection = self._connections[task] = _Connection(reader, writer, self._routes)
        try:
            await connection.run()
            await _finish(writer)
        except (asyncio.CancelledError, TimeoutError, OSError):
            pass  # cancelled by `stop` or `_drop_idle`, or a broken or slow client: no reply is possible
        finally:
            writer.transport.abort()

    def _drop_oldest(self) -> None:
        for task in self._connections:
            task.cancel()
            return

    def _drop_idle(self) -> bool:
        for task, connection in self._connections.items():
            if connection is not None and connection.is_idle:
                connection.is_idle = False
                task.cancel()
                return True
        return False


async def open_http(
    stack: AsyncExitStack,
    address: ListenAddress | UnixFrontend,
    routes: HttpRoutes,
    what: str,
    tls: WatchedContext | None = None,
) -> HttpListener:
    """Listen, or fail to start. Upstream only logs a port that it cannot open and runs without it."""
    listener = HttpListener(address, routes, tls=tls)
    try:
        await listener.start()
    except OSError as error:
        assert isinstance(address, ListenAddress)
        raise StartupError(
            "UMB023",
            f"cannot listen on {address.host or '*'}:{address.port} for {what}",
            error.strerror or str(error),
            f"see who holds the port: ss -ltnp 'sport = :{address.port}'",
        ) from error
    stack.push_async_callback(listener.stop)
    return listener


class _Connection:
    """One client, one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, routes: HttpRoutes) -> None:
        self._reader = reader
        self._writer = writer
        self._routes = routes
        self._rest = b""
        """Bytes that were read behind the last request head."""
        self._body_bytes_allowed = 0
        self.is_idle = False

    async def run(self) -> None:
        while await self._serve_one():
            pass

    async def _serve_one(self) -> bool:
        """Serve one request; return whether another can follow."""
        try:
            head = await self._read_head()
            if head is None:
                return False
            request = request_of(head.method, head.target, head.headers_host or "", head.authorization)
        except ProtocolViolation as violation:
            await self._write(http1.violation_reply(violation))
            return False
        response = await answer(self._routes, request)
        if response.stream is not None:
            await self._stream(request, response, response.stream)
            return False
        await self._write(_response_bytes(request, response, head.version, head.keep_alive))
        return (not head.has_body or await self._skip_body(head)) and head.keep_alive

    async def _stream(self, request: HttpRequest, response: HttpResponse, stream: AsyncGenerator[bytes]) -> None:
        """Until the stream ends or the client has left, which shows when its side of the connection ends."""
        async with aclosing(stream):
            await self._write(_response_bytes(request, response, "HTTP/1.1", keep_alive=False))
            if request.method == "HEAD":
                return
            tasks = {own_task(self._reader.read(1)), own_task(self._pump(stream))}
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    await end_task(task)

    async def _pump(self, stream: AsyncGenerator[bytes]) -> None:
        try:
            async for piece in stream:
                await self._write(piece)
        except (TimeoutError, OSError):
            pass  # the client takes nothing for too long, or has left

    async def _read_head(self) -> http1.Http1Request | None:
        """Return the next request head, or None at the end of the connection."""
        parser = http1.Http1RequestReader(MAX_HEAD_BYTES)
        data, self._rest = self._rest or await self._first_bytes(), b""
        async with asyncio.timeout(HEAD_SECONDS):
            while data:
                head = parser.feed(data)
                if head is not None:
                    self._rest = parser.rest
                    return head
                data = await self._reader.read(READ_BYTES)
        return None

    async def _first_bytes(self) -> bytes:
        self.is_idle = True
        async with asyncio.timeout(IDLE_SECONDS):
            data = await self._reader.read(READ_BYTES)
        self.is_idle = False
        return data

    async def _skip_body(self, head: http1.Http1Request) -> bool:
        """Discard the body; return False if it is too large, malformed or cut off."""
        self._body_bytes_allowed = MAX_BODY_BYTES
        async with asyncio.timeout(HEAD_SECONDS):
            return await (self._skip_chunks() if head.is_chunked else self._skip(head.content_length))

    async def _skip_chunks(self) -> bool:
        """RFC 9112 section 7.1: chunks, a chunk of size 0, trailers, an empty line."""
        while size := _chunk_size(await self._read_line()):
            if not await self._skip(size) or await self._read_line() != b"\r\n":
                return False
        while size == 0 and (line := await self._read_line()):
            if line == b"\r\n":
                return True
        return False

    async def _skip(self, size: int) -> bool:
        while size > len(self._rest):
            size -= len(self._rest)
            self._rest = b""
            if not await self._read_more():
                return False
        self._rest = self._rest[size:]
        return True

    async def _read_line(self) -> bytes:
        """Return a line of a chunked body with its LF; nothing if it is cut off."""
        while (end := self._rest.find(b"\n") + 1) == 0:
            if not await self._read_more():
                return b""
        line, self._rest = self._rest[:end], self._rest[end:]
        return line

    async def _read_more(self) -> bool:
        data = await self._reader.read(READ_BYTES)
        self._rest += data
        self._body_bytes_allowed -= len(data)
        return bool(data) and self._body_bytes_allowed >= 0

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(HEAD_SECONDS):
            await self._writer.drain()


def _chunk_size(line: bytes) -> int | None:
    """Return the size in a chunk's first line, None if malformed. Extensions behind `;` are ignored."""
    digits = line.partition(b";")[0].rstrip(b" \t\r\n")
    is_number = 0 < len(digits) <= _MAX_CHUNK_DIGITS and not digits.translate(None, _HEX_DIGITS)
    return int(digits, 16) if is_number and line.endswith(b"\r\n") else None


def request_of(method: str, target: str, host: str, authorization: str = "") -> HttpRequest:
    """Raises ProtocolViolation: a target that is not a URL, or has control characters, also if they are encoded."""
    try:
        path, query = _split_target(target)
        decoded = unquote(path, errors="strict")
    except ValueError as error:
        raise ProtocolViolation(400, f"malformed request target: {error}") from None
    if _BAD_ESCAPE.search(path) or _FORBIDDEN.search(target) or _FORBIDDEN.search(decoded):
        raise ProtocolViolation(400, f"malformed request target {target[:80]!r}")
    return HttpRequest(method, decoded, query, host, authorization)


def _split_target(target: str) -> tuple[str, str]:
    if target.startswith(("/", "*")):
        path, _, query = target.partition("?")
        return path, query
    split = urlsplit(target)
    if not split.scheme:
        raise ValueError("no path")
    # An absolute target names a host as well; the path alone chooses the route.
    return split.path or "/", split.query


async def answer(routes: HttpRoutes, request: HttpRequest) -> HttpResponse:
    """Do what Go's mux does before any route: `OPTIONS *`, and a redirect to the clean form of the path."""
    if request.path == "*":
        return HttpResponse(200 if request.method == "OPTIONS" else 400, b"", ())
    clean = _clean_path(request.path)
    if clean != request.path:
        # Encoded once; Go's mux encodes again what the client had encoded.
        location = quote(clean, safe=_SAFE_IN_PATHS) + (f"?{request.query}" if request.query else "")
        return redirect(HTTPStatus.TEMPORARY_REDIRECT, location, request.method)
    return await routes.respond(request)


def _clean_path(path: str) -> str:
    clean = posixpath.normpath(f"/{path}").replace("//", "/", 1)
    return f"{clean}/" if path.endswith("/") and clean != "/" else clean


def redirect(status: HTTPStatus, location: str, method: str) -> HttpResponse:
    location = quote(location, safe=_ASCII)
    # Go writes a short page for GET alone, and its type for HEAD too.
    headers = (("Content-Type", HTML),) if method in ("GET", "HEAD") else ()
    page = f'<a href="{_escape(location)}">{status.phrase}</a>.\n\n' if method in ("GET", "HEAD") else ""
    return HttpResponse(status, page.encode(), (*headers, ("Location", location)))


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&#34;")


def _response_bytes(request: HttpRequest, response: HttpResponse, version: str, keep_alive: bool) -> bytes:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in response.headers]
    lines += [f"Date: {date}"] + ([] if response.stream is not None else [f"Content-Length: {len(response.body)}"])
    if not keep_alive:
        lines.append("Connection: close")
    elif version == "HTTP/1.0":
        lines.append("Connection: keep-alive")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return head if request.method == "HEAD" else head + response.body


async def _bind(address: ListenAddress) -> socket.socket:
    if not address.host:
        return _bind_everywhere(address.port)
    if (literal := _family_of(address.host)) is not None:
        # A lookup of an address would start a thread and load the tables of international names.
        return socket.create_server((address.host, address.port), family=literal)
    found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    # As Go: the first IPv4 address of a name, or the first of any kind.
    family, _, _, _, where = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return socket.create_server(where[:2], family=family)


def _family_of(host: str) -> int | None:
    """The family of a host that is an address; None for names, and for addresses with a zone."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return family
    return None


def _bind_everywhere(port: int) -> socket.socket:
    """Make one socket for IPv4 and IPv6, as Go does; IPv4 alone where the kernel has no IPv6."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


async def _finish(writer: asyncio.StreamWriter) -> None:
    """Close after the client had a moment to read what was written."""
    writer.close()
    async with asyncio.timeout(5):
        await writer.wait_closed()
