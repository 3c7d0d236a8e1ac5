"""What the health and admin ports answer: plain HTTP/1.1 with upstream's paths, bodies and codes.

Readiness and metrics are passed in as callables. `daemon.HttpListener` owns the sockets.
"""

import asyncio
import posixpath
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from umbilical.konnectivity.dial_failure import BadAddress, join_host_port, split_host_port
from umbilical.record import Record
from umbilical.tunnel import metrics, pprof

HEAD_SECONDS: Final = 60.0
"""For a request head from its first byte, as upstream; also for a client to take its answer."""
IDLE_SECONDS: Final = 180.0
"""Upstream waits for ever. Longer than any common scrape interval, so that scrapers keep their connection."""
MAX_HEAD_BYTES: Final = 1 << 20
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


def response_headers(response: Response) -> Headers:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    return (*response.headers, ("Date", date), ("Content-Length", str(len(response.body))))


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
