"""Probes every server: by dials through it (kubelets, the control-plane agent's addresses, an agent's certificate), and
by its health port, directly or through the management cluster's API."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from umbilical.cluster.client import ApiClient
from umbilical.cluster.objects import POD
from umbilical.dialer.reach import words_of
from umbilical.fault import ClusterError, HostedError
from umbilical.hosted.access import TunnelAccess
from umbilical.hosted.endpoint_tls import EndpointTls
from umbilical.hosted.facts import DialProbe, ServerHealth
from umbilical.hosted.http_call import HttpCall, HttpExchange, Pipe, Url
from umbilical.hosted.route import EndpointRoute, PingResult, RouteEndpoint
from umbilical.konnectivity.dial_failure import PROBE_HOST, PROBE_PORT
from umbilical.tunnel.settings import TlsFiles

AT_ONCE: Final = 16
Frontends = Sequence[TunnelAccess]
Endpoints = Sequence[tuple[str, int]]
# The agents' own loopback: only how far the dial gets matters, not whether something listens there.
NOWHERE: Final = RouteEndpoint(PROBE_HOST, PROBE_PORT)
REFUSED_BY_FRONTEND: Final = frozenset({"tls", "forbidden", "server"})
"""Reasons of a dial that the frontend refused."""
_ANSWERS: Final = (200, 401, 403)
"""HTTP statuses of a running kubelet; 401 and 403 without an accepted certificate."""


async def probe_kubelets(
    frontends: Frontends, endpoints: Endpoints, tls: TlsFiles | None, seconds: float
) -> list[DialProbe]:
    """Request /healthz of every kubelet through every server."""
    # Without a CA the certificate is not verified; the check is about reachability.
    secure = EndpointTls(tls or TlsFiles(), is_verified=tls is not None and tls.authority is not None)

    async def probe(access: TunnelAccess, host: str, port: int) -> DialProbe:
        return await _probe_kubelet(access, RouteEndpoint(host, port, secure), seconds)

    return await _all(partial(probe, access, *endpoint) for access, endpoint in _pairs(frontends, endpoints))


async def probe_dials(frontends: Frontends, endpoints: Endpoints, seconds: float) -> list[DialProbe]:
    """Open a connection to each endpoint through every server."""

    async def dial(access: TunnelAccess, host: str, port: int) -> DialProbe:
        endpoint = RouteEndpoint(host, port)
        result = await _dialled(access, endpoint, seconds)
        return DialProbe(access.title, str(endpoint), result.is_ok, _text(result))

    return await _all(partial(dial, access, *endpoint) for access, endpoint in _pairs(frontends, endpoints))


async def probe_intruder(frontends: Frontends, agent: TlsFiles, seconds: float) -> list[DialProbe]:
    """Use an agent's certificate at every frontend. If it refuses a client too, the probe proves nothing."""

    async def attempt(access: TunnelAccess) -> DialProbe:
        client = await _dialled(access, NOWHERE, seconds)
        if _is_refused(client):
            return DialProbe(access.title, "client", False, f"it refuses a client too: {_text(client)}")
        files = TlsFiles(agent.certificate, agent.key, access.tls.authority)
        result = await _dialled(replace(access, tls=files), NOWHERE, seconds)
        return DialProbe(access.title, "agent", _is_refused(result), _text(result))

    return await _all(partial(attempt, access) for access in frontends)


def _pairs(frontends: Frontends, endpoints: Endpoints) -> list[tuple[TunnelAccess, tuple[str, int]]]:
    return [(access, endpoint) for access in frontends for endpoint in endpoints]


async def _all(makers: Iterable[Callable[[], Awaitable[DialProbe]]]) -> list[DialProbe]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def bounded(make: Callable[[], Awaitable[DialProbe]]) -> DialProbe:
        async with slots:
            return await make()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(bounded(make)) for make in makers]
    return [task.result() for task in tasks]


async def _dialled(access: TunnelAccess, endpoint: RouteEndpoint, seconds: float) -> PingResult:
    async with EndpointRoute(access, endpoint, seconds) as route:
        result, pipe = await route.open()
        if pipe is not None:
            pipe.close()
        return result


async def _probe_kubelet(access: TunnelAccess, endpoint: RouteEndpoint, seconds: float) -> DialProbe:
    async with EndpointRoute(access, endpoint, seconds) as route:
        result, pipe = await route.open()
        if pipe is None:
            return DialProbe(access.title, str(endpoint), False, _text(result))
        try:
            async with asyncio.timeout(seconds):
                exchange = HttpExchange(pipe)
                await exchange.send(HttpCall("GET", Url("https", endpoint.host, endpoint.port, "/healthz")))
                status = (await exchange.answer()).status
        except TimeoutError:
            return DialProbe(access.title, str(endpoint), False, f"no answer to /healthz within {seconds:g} s")
        except HostedError as fault:
            return DialProbe(access.title, str(endpoint), False, fault.why)
        finally:
            pipe.close()
    return DialProbe(access.title, str(endpoint), status in _ANSWERS, f"HTTP {status} on /healthz")


def _is_refused(result: PingResult) -> bool:
    return result.failure is not None and result.failure.reason in REFUSED_BY_FRONTEND


def _text(result: PingResult) -> str:
    if result.failure is not None:
        return f"{result.failure.code} {result.failure.hop}: {result.failure.why}"
    return f"agent {result.agent}" if result.agent else "reached"


MAX_BODY_BYTES: Final = 4 * 1024 * 1024
_PREFIX: Final = "konnectivity_network_proxy_server_"
_BY_STRATEGY: Final = re.compile(
    rf'^{_PREFIX}ready_backends\{{[^}}]*proxy_strategy="([^"]*)"[^}}]*\}} ([0-9.e+]+)', re.MULTILINE
)
_OLD: Final = re.compile(rf"^{_PREFIX}ready_backend_connections ([0-9.e+]+)", re.MULTILINE)
Fetch = Callable[[str], Awaitable[str]]
"""Fetch a path; raises one of ERRORS."""
ERRORS: Final = (ClusterError, HostedError, OSError)


async def server_health(name: str, fetch: Fetch) -> ServerHealth:
    try:
        await fetch("/healthz")
        metrics = await fetch("/metrics")
    except ERRORS as error:
        return ServerHealth(name, words(error))
    return ServerHealth(name, agents=connected_agents(metrics))


async def proxy_health(name: str, fetch: Fetch) -> ServerHealth:
    try:
        await fetch("/readyz")
    except ERRORS as error:
        return ServerHealth(name, words(error))
    return ServerHealth(name)


def connected_agents(metrics: str) -> dict[str, int]:
    """Return the number of agents of each strategy; older servers report one number for all."""
    found = {strategy: int(float(value)) for strategy, value in _BY_STRATEGY.findall(metrics)}
    if not found and (old := _OLD.search(metrics)):
        found = {"default": int(float(old[1]))}
    return found


def through_api(client: ApiClient, namespace: str, pod: str, port: int) -> Fetch:
    async def fetch(path: str) -> str:
        return await client.get_text(f"{POD.path(namespace, pod)}:{port}/proxy{path}")

    return fetch


def directly(host: str, port: int, seconds: float) -> Fetch:
    async def fetch(path: str) -> str:
        async with asyncio.timeout(seconds):
            return await _get(Url("http", host, port, path))

    return fetch


async def _get(url: Url) -> str:
    pipe = Pipe(await asyncio.open_connection(url.host, url.port))
    try:
        exchange = HttpExchange(pipe)
        await exchange.send(HttpCall("GET", url))
        answer = await exchange.answer()
        body = bytearray()
        async for octets in exchange.body():
            body += octets
            if len(body) > MAX_BODY_BYTES:
                raise OSError(f"more than {MAX_BODY_BYTES} bytes on {url.path}")
    finally:
        pipe.close()
    text = body.decode(errors="replace")
    if answer.status != 200:
        raise OSError(f"HTTP {answer.status} on {url.path}: {' '.join(text.split())[:200]}")
    return text


def words(error: Exception) -> str:
    if isinstance(error, ClusterError | HostedError):
        return error.why
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return words_of(error) if isinstance(error, OSError) else str(error)
