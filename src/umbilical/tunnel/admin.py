"""The health and admin ports: plain HTTP/1.1 on asyncio, with upstream's paths, bodies and codes.

`*Routes` decide what to answer, `HttpListener` owns the sockets. Readiness and metrics are passed in as callables.
"""

import asyncio
import posixpath
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from umbilical.konnectivity.dial_failure import BadAddress, join_host_port, split_host_port
from umbilical.record import Record
from umbilical.tunnel import metrics, pprof
from umbilical.tunnel.settings import ListenAddress
from umbilical.wire import http1
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http1 import violation_reply

HEAD_SECONDS: Final = 60.0
"""For a request head from its first byte, as upstream; also for a client to take its answer."""
IDLE_SECONDS: Final = 180.0
"""Upstream waits for ever. Longer than any common scrape interval, so that scrapers keep their connection."""
MAX_HEAD_BYTES: Final = 1 << 20
MAX_CONNECTIONS: Final = 256
READ_BYTES: Final = 65536

_PLAIN: Final = "text/plain; charset=utf-8"
_HTML: Final = "text/html; charset=utf-8"
_NOT_READY: Final = b"no connection to any proxy agent"

IsReady = Callable[[], bool]
RenderMetrics = Callable[[], bytes]
CountAgents = Callable[[], int]
Headers = tuple[tuple[str, str], ...]


class Request(Record):
    method: str
    path: str
    query: str = ""
    host: str = ""
    """The Host header."""


class Response(Record):
    status: int
    body: bytes
    headers: Headers = (("Content-Type", _PLAIN),)


class Routes(Protocol):
    async def respond(self, request: Request) -> Response:
        """Answer a request whose path is clean (`/a/b`, no dots, no double slashes)."""


OK: Final = Response(200, b"ok")
NOT_FOUND: Final = Response(
    404, b"404 page not found\n", (("Content-Type", _PLAIN), ("X-Content-Type-Options", "nosniff"))
)


class ServerHealthRoutes:
    """`/readyz` is upstream's: it looks at the first strategy alone. `/readyz/agents` asks for agents of any kind.

    Neither may hold up the pod of a kube-apiserver: agents come through it.
    """

    def __init__(self, is_ready: IsReady, render_metrics: RenderMetrics, agents: CountAgents) -> None:
        self._is_ready = is_ready
        self._render_metrics = render_metrics
        self._agents = agents

    async def respond(self, request: Request) -> Response:
        match request.path:
            case "/healthz":
                return OK
            case "/ready" | "/readyz":
                return OK if self._is_ready() else Response(500, _NOT_READY)
            case "/readyz/agents":
                count = self._agents()
                return Response(200, b"%d" % count) if count else Response(500, _NOT_READY)
            case "/metrics":
                return _metrics_response(self._render_metrics())
        return NOT_FOUND


class AgentHealthRoutes:
    def __init__(self, is_ready: IsReady, render_metrics: RenderMetrics) -> None:
        self._is_ready = is_ready
        self._render_metrics = render_metrics

    async def respond(self, request: Request) -> Response:
        match request.path:
            case "/healthz":
                return OK
            case "/ready" | "/readyz":
                return self._readiness(request)
            case "/metrics":
                return _metrics_response(self._render_metrics())
        return NOT_FOUND

    def _readiness(self, request: Request) -> Response:
        if not self._is_ready():
            return Response(503, b"[+]ping ok\n[-]server-connected failed: no servers connected\n")
        if "verbose" in parse_qs(request.query, keep_blank_values=True):
            return Response(200, b"[+]ping ok\n[+]server-connected ok\ncheck passed\n")
        return OK


class ServerAdminRoutes:
    def __init__(self, render_metrics: RenderMetrics, *, profiling: bool) -> None:
        self._render_metrics = render_metrics
        self._profiler = pprof.Profiler() if profiling else None

    async def respond(self, request: Request) -> Response:
        if request.path == "/metrics":
            return _metrics_response(self._render_metrics())
        return await _profile_response(self._profiler, request)


class AgentAdminRoutes:
    """The agent's metrics are on its health port; the admin port says so."""

    def __init__(self, health_port: int, *, profiling: bool) -> None:
        self._health_port = health_port
        self._profiler = pprof.Profiler() if profiling else None

    async def respond(self, request: Request) -> Response:
        if request.path == "/metrics":
            query = f"?{request.query}" if request.query else ""
            target = f"//{self._health_authority(request.host)}/metrics{query}"
            return _redirect(HTTPStatus.MOVED_PERMANENTLY, target, request.method)
        return await _profile_response(self._profiler, request)

    def _health_authority(self, host: str) -> str:
        try:
            host, _ = split_host_port(host)
        except BadAddress:
            pass  # a Host header without a port: this one is 80
        return join_host_port(host, self._health_port)


def _metrics_response(body: bytes) -> Response:
    return Response(200, body, (("Content-Type", metrics.CONTENT_TYPE),))


async def _profile_response(profiler: pprof.Profiler | None, request: Request) -> Response:
    if profiler is None:
        return NOT_FOUND
    if request.path == "/debug/pprof":
        return _redirect(HTTPStatus.MOVED_PERMANENTLY, "/debug/pprof/", request.method)
    if not request.path.startswith("/debug/pprof/"):
        return NOT_FOUND
    name = request.path.removeprefix("/debug/pprof/")
    status, body = await profiler.take(name, parse_qs(request.query).get("seconds", [""])[0])
    content_type = _PLAIN if name else _HTML
    return Response(status, body, (("Content-Type", content_type), ("X-Content-Type-Options", "nosniff")))


def _redirect(status: HTTPStatus, location: str, method: str) -> Response:
    # Go writes the little page for GET alone, and names its type for HEAD too.
    headers = (("Content-Type", _HTML),) if method in ("GET", "HEAD") else ()
    page = f'<a href="{_escape(location)}">{status.phrase}</a>.\n\n' if method in ("GET", "HEAD") else ""
    return Response(status, page.encode(), (*headers, ("Location", location)))


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&#34;")


def _date() -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())


async def answer(routes: Routes, request: Request) -> Response:
    """What Go's mux does before any route: `OPTIONS *`, and a redirect to the clean form of the path."""
    if request.path == "*":
        return Response(200 if request.method == "OPTIONS" else 400, b"", ())
    clean = _clean_path(request.path)
    if clean != request.path:
        location = f"{clean}?{request.query}" if request.query else clean
        return _redirect(HTTPStatus.TEMPORARY_REDIRECT, location, request.method)
    return await routes.respond(request)


def _clean_path(path: str) -> str:
    clean = posixpath.normpath(f"/{path}").replace("//", "/", 1)
    return f"{clean}/" if path.endswith("/") and clean != "/" else clean


class HttpListener:
    """One listening port and the connections on it."""

    def __init__(self, address: ListenAddress, routes: Routes, max_connections: int = MAX_CONNECTIONS) -> None:
        self._address = address
        self._routes = routes
        self._max_connections = max_connections
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._server: asyncio.Server | None = None
        self.port = address.port
        """The port that is listened on; differs from the asked one if that was 0."""

    async def start(self) -> None:
        """Bind and listen. Raises OSError if that fails."""
        listening = await _bind(self._address)
        self.port = listening.getsockname()[1]
        self._server = await asyncio.start_server(self._accept, sock=listening, limit=READ_BYTES)

    async def stop(self) -> None:
        """Stop listening and end every connection. Twice is harmless."""
        if self._server is None:
            return
        self._server.close()
        while tasks := list(self._connections):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await self._server.wait_closed()
        await asyncio.sleep(0)  # aborted transports close their sockets in the loop's next turn
        self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connection = _Connection(reader, writer, self._routes)
        # A crowd of idle scrapers must not keep a health probe out.
        if len(self._connections) >= self._max_connections and not self._drop_idle():
            writer.transport.abort()
            return
        self._connections[task] = connection
        try:
            await connection.run()
            await _finish(writer)
        except (asyncio.CancelledError, TimeoutError, OSError):
            pass  # only `stop` and `_drop_idle` cancel; a broken or slow client has nothing to hear
        finally:
            writer.transport.abort()
            del self._connections[task]

    def _drop_idle(self) -> bool:
        for task, connection in self._connections.items():
            if connection.is_idle:
                connection.is_idle = False
                task.cancel()
                return True
        return False


class _Connection:
    """One client, request after request. A request with a body, which no probe and no scraper sends, brings h11 in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, routes: Routes) -> None:
        self._reader = reader
        self._writer = writer
        self._routes = routes
        self._rest = b""
        """Bytes behind the last request: the next one has begun already."""
        self.is_idle = False

    async def run(self) -> None:
        while await self._serve_one():
            pass

    async def _serve_one(self) -> bool:
        """Serve one request; tell whether another may follow."""
        try:
            head, seen = await self._read_head()
        except ProtocolViolation as violation:
            await write(self._writer, violation_reply(violation))
            return False
        if head is None:
            return False
        if head.has_body:
            from umbilical.tunnel.http_bodies import BodyConnection

            await BodyConnection(self._reader, self._writer, self._routes, seen).run()
            return False
        request = request_of(head.method, head.target, head.headers_host or "")
        response = await answer(self._routes, request)
        await write(self._writer, _response_bytes(request, response, head.version, head.keep_alive))
        return head.keep_alive

    async def _read_head(self) -> "tuple[http1.Request | None, bytes]":
        """The next request's head and all bytes that were read for it; none when the client has ended."""
        parser = http1.ConnectHead(MAX_HEAD_BYTES)
        data, self._rest = self._rest or await self._first_bytes(), b""
        seen = bytearray()
        async with asyncio.timeout(HEAD_SECONDS):
            while data:
                seen += data
                head = parser.feed(data)
                if head is not None:
                    self._rest = parser.rest
                    return head, bytes(seen)
                data = await self._reader.read(READ_BYTES)
        return None, b""

    async def _first_bytes(self) -> bytes:
        self.is_idle = True
        async with asyncio.timeout(IDLE_SECONDS):
            data = await self._reader.read(READ_BYTES)
        self.is_idle = False
        return data


def _response_bytes(request: Request, response: Response, version: str, keep_alive: bool) -> bytes:
    lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in response_headers(response)]
    if not keep_alive:
        lines.append("Connection: close")
    elif version == "HTTP/1.0":
        lines.append("Connection: keep-alive")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return head if request.method == "HEAD" else head + response.body


def response_headers(response: Response) -> Headers:
    return (*response.headers, ("Date", _date()), ("Content-Length", str(len(response.body))))


async def write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    async with asyncio.timeout(HEAD_SECONDS):
        await writer.drain()


def request_of(method: str, target: str, host: str) -> Request:
    # An absolute target names a host as well; the path alone chooses the route.
    path, _, query = target.partition("?")
    if not target.startswith(("/", "*")):
        split = urlsplit(target)
        path, query = split.path or "/", split.query
    return Request(method, unquote(path), query, host)


async def _bind(address: ListenAddress) -> socket.socket:
    if not address.host:
        return _bind_everywhere(address.port)
    if (literal := _family_of(address.host)) is not None:
        # To look up what is an address already would start a thread and load the tables of international names.
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
    """One socket for IPv4 and IPv6, as Go makes it; IPv4 alone where the kernel has no IPv6."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


async def _finish(writer: asyncio.StreamWriter) -> None:
    """Close, giving a client that reads a moment to take what was written."""
    writer.close()
    async with asyncio.timeout(5):
        await writer.wait_closed()
