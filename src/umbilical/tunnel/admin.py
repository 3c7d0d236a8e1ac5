"""Routes of the health and admin ports, with upstream's paths, bodies and status codes."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from umbilical.konnectivity.dial_failure import BadAddress, join_host_port, split_host_port
from umbilical.tunnel import metrics, pprof
from umbilical.tunnel.http_server import HTML, PLAIN, HttpRequest, HttpResponse, redirect

_NOT_READY: Final = b"no connection to any proxy agent"

IsReady = Callable[[], bool]
RenderMetrics = Callable[[], bytes]
CountAgents = Callable[[], int]

OK: Final = HttpResponse(200, b"ok")
NOT_FOUND: Final = HttpResponse(
    404, b"404 page not found\n", (("Content-Type", PLAIN), ("X-Content-Type-Options", "nosniff"))
)


class ServerHealthRoutes:
    """`/readyz` is ok when a configured strategy has an agent. `/readyz/agents` counts all connected agents.

    Use neither as a readiness probe of a kube-apiserver pod: agents need that kube-apiserver to connect.
    """

    def __init__(self, is_ready: IsReady, render_metrics: RenderMetrics, agents: CountAgents) -> None:
        self._is_ready = is_ready
        self._render_metrics = render_metrics
        self._agents = agents

    async def respond(self, request: HttpRequest) -> HttpResponse:
        match request.path:
            case "/healthz":
                return OK
            case "/ready" | "/readyz":
                return OK if self._is_ready() else HttpResponse(500, _NOT_READY)
            case "/readyz/agents":
                count = self._agents()
                return HttpResponse(200, b"%d" % count) if count else HttpResponse(500, _NOT_READY)
            case "/metrics":
                return _metrics_response(self._render_metrics())
        return NOT_FOUND


def _no_servers() -> str:
    return "no servers connected"


class AgentHealthRoutes:
    def __init__(self, is_ready: IsReady, render_metrics: RenderMetrics, why: Callable[[], str] = _no_servers) -> None:
        """`why` explains that it is not ready."""
        self._is_ready = is_ready
        self._render_metrics = render_metrics
        self._why = why

    async def respond(self, request: HttpRequest) -> HttpResponse:
        match request.path:
            case "/healthz":
                return OK
            case "/ready" | "/readyz":
                return self._readiness(request)
            case "/metrics":
                return _metrics_response(self._render_metrics())
        return NOT_FOUND

    def _readiness(self, request: HttpRequest) -> HttpResponse:
        if not self._is_ready():
            return HttpResponse(503, f"[+]ping ok\n[-]server-connected failed: {self._why()}\n".encode())
        if "verbose" in parse_qs(request.query, keep_blank_values=True):
            return HttpResponse(200, b"[+]ping ok\n[+]server-connected ok\ncheck passed\n")
        return OK


class ServerAdminRoutes:
    def __init__(self, render_metrics: RenderMetrics, *, profiling: bool) -> None:
        self._render_metrics = render_metrics
        self._profiler = pprof.Profiler() if profiling else None

    async def respond(self, request: HttpRequest) -> HttpResponse:
        if request.path == "/metrics":
            return _metrics_response(self._render_metrics())
        return await _profile_response(self._profiler, request)


class AgentAdminRoutes:
    """The agent's metrics are on its health port; the admin port redirects there, as upstream's does."""

    def __init__(self, health_port: int, *, profiling: bool) -> None:
        self._health_port = health_port
        self._profiler = pprof.Profiler() if profiling else None

    async def respond(self, request: HttpRequest) -> HttpResponse:
        if request.path == "/metrics":
            query = f"?{request.query}" if request.query else ""
            target = f"//{self._health_authority(request.host)}/metrics{query}"
            return redirect(HTTPStatus.MOVED_PERMANENTLY, target, request.method)
        return await _profile_response(self._profiler, request)

    def _health_authority(self, host: str) -> str:
        try:
            host, _ = split_host_port(host)
        except BadAddress:
            pass  # a Host header without a port means port 80
        return join_host_port(host, self._health_port)


def _metrics_response(body: bytes) -> HttpResponse:
    return HttpResponse(200, body, (("Content-Type", metrics.CONTENT_TYPE),))


async def _profile_response(profiler: pprof.Profiler | None, request: HttpRequest) -> HttpResponse:
    if profiler is None:
        return NOT_FOUND
    if request.path == "/debug/pprof":
        return redirect(HTTPStatus.MOVED_PERMANENTLY, "/debug/pprof/", request.method)
    if not request.path.startswith("/debug/pprof/"):
        return NOT_FOUND
    name = request.path.removeprefix("/debug/pprof/")
    status, body = await profiler.take(name, parse_qs(request.query).get("seconds", [""])[0])
    return profile_response(name, status, body)


def profile_response(name: str, status: int, body: bytes) -> HttpResponse:
    content_type = PLAIN if name else HTML
    return HttpResponse(status, body, (("Content-Type", content_type), ("X-Content-Type-Options", "nosniff")))
