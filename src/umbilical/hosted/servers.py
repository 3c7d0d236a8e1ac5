"""Looks at every server: by dials through it (each node's kubelet, the control plane's own, an intruder's), and by its
health port, directly or through the management cluster's API."""

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
# The agents' own loopback: whether something listens there does not matter, only how far the dial gets.
NOWHERE: Final = RouteEndpoint(PROBE_HOST, PROBE_PORT)
TURNED_AWAY: Final = frozenset({"tls", "forbidden", "server"})
"""Reasons of a dial that did not get past the frontend."""
_ANSWERS: Final = (200, 401, 403)
"""Of a kubelet that lives; the last two where it does not know the one who asks."""


async def probe_kubelets(
    frontends: Sequence[TunnelAccess], endpoints: Sequence[tuple[str, int]], tls: TlsFiles | None, seconds: float
) -> list[DialProbe]:
    """Ask every kubelet for /healthz, through every server."""
    # Without a CA it cannot be verified; that it is reached is what counts here.
    secure = EndpointTls(tls or TlsFiles(), is_verified=tls is not None and tls.authority is not None)

    async def ask(access: TunnelAccess, host: str, port: int) -> DialProbe:
        return await _ask_kubelet(access, RouteEndpoint(host, port, secure), seconds)

    return await _all(partial(ask, access, *endpoint) for access, endpoint in _pairs(frontends, endpoints))


async def probe_dials(
    frontends: Sequence[TunnelAccess], endpoints: Sequence[tuple[str, int]], seconds: float
) -> list[DialProbe]:
    """Open a connection to each, through every server."""

    async def dial(access: TunnelAccess, host: str, port: int) -> DialProbe:
        endpoint = RouteEndpoint(host, port)
        result = await _reached(access, endpoint, seconds)
        return DialProbe(access.title, str(endpoint), result.is_ok, _told(result))

    return await _all(partial(dial, access, *endpoint) for access, endpoint in _pairs(frontends, endpoints))


async def probe_intruder(frontends: Sequence[TunnelAccess], agent: TlsFiles, seconds: float) -> list[DialProbe]:
    """Show an agent's certificate at every frontend. Where a client does not get in either, nothing is shown."""

    async def attempt(access: TunnelAccess) -> DialProbe:
        rightful = await _reached(access, NOWHERE, seconds)
        if _is_turned_away(rightful):
            return DialProbe(access.title, "client", False, f"a client does not get in either: {_told(rightful)}")
        files = TlsFiles(agent.certificate, agent.key, access.tls.authority)
        result = await _reached(replace(access, tls=files), NOWHERE, seconds)
        return DialProbe(access.title, "agent", _is_turned_away(result), _told(result))

    return await _all(partial(attempt, access) for access in frontends)


def _pairs(
    frontends: Sequence[TunnelAccess], endpoints: Sequence[tuple[str, int]]
) -> list[tuple[TunnelAccess, tuple[str, int]]]:
    return [(access, endpoint) for access in frontends for endpoint in endpoints]


async def _all(makers: Iterable[Callable[[], Awaitable[DialProbe]]]) -> list[DialProbe]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def bounded(make: Callable[[], Awaitable[DialProbe]]) -> DialProbe:
        async with slots:
            return await make()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(bounded(make)) for make in makers]
    return [task.result() for task in tasks]


async def _reached(access: TunnelAccess, endpoint: RouteEndpoint, seconds: float) -> PingResult:
    async with EndpointRoute(access, endpoint, seconds) as route:
        result, pipe = await route.open()
        if pipe is not None:
            pipe.close()
        return result


async def _ask_kubelet(access: TunnelAccess, endpoint: RouteEndpoint, seconds: float) -> DialProbe:
    async with EndpointRoute(access, endpoint, seconds) as route:
        result, pipe = await route.open()
        if pipe is None:
            return DialProbe(access.title, str(endpoint), False, _told(result))
        try:
            async with asyncio.timeout(seconds):
                exchange = HttpExchange(pipe)
                await exchange.send(HttpCall("GET", Url("https", endpoint.host, endpoint.port, "/healthz")))
                status = (await exchange.answer()).status
        except TimeoutError:
            return DialProbe(access.title, str(endpoint), False, "no answer to /healthz in time")
        except HostedError as fault:
            return DialProbe(access.title, str(endpoint), False, fault.why)
        finally:
            pipe.close()
    return DialProbe(access.title, str(endpoint), status in _ANSWERS, f"HTTP {status} on /healthz")


def _is_turned_away(result: PingResult) -> bool:
    return result.failure is not None and result.failure.reason in TURNED_AWAY


def _told(result: PingResult) -> str:
    if result.failure is not None:
        return f"{result.failure.code} {result.failure.hop}: {result.failure.why}"
    return f"agent {result.agent}" if result.agent else "reached"


MAX_BODY_BYTES: Final = 4 * 1024 * 1024
_PREFIX: Final = "konnectivity_network_proxy_server_"
_BY_STRATEGY: Final = re.compile(
    rf'^{_PREFIX}ready_backends\{{[^}}]*proxy_strategy="([^"]*)"[^}}]*\}} ([0-9.e+]+)', re.MULTILINE
)
_OLD: Final = re.compile(rf"^{_PREFIX}ready_backend_connections ([0-9.e+]+)", re.MULTILINE)
Ask = Callable[[str], Awaitable[str]]
"""Fetch a path; raises one of TROUBLES."""
TROUBLES: Final = (ClusterError, HostedError, OSError)


async def server_health(name: str, ask: Ask) -> ServerHealth:
    try:
        await ask("/healthz")
        metrics = await ask("/metrics")
    except TROUBLES as trouble:
        return ServerHealth(name, words(trouble))
    return ServerHealth(name, agents=connected_agents(metrics))


async def proxy_health(name: str, ask: Ask) -> ServerHealth:
    try:
        await ask("/readyz")
    except TROUBLES as trouble:
        return ServerHealth(name, words(trouble))
    return ServerHealth(name)


def connected_agents(metrics: str) -> dict[str, int]:
    """Read how many agents each strategy has; older servers tell one number for all."""
    found = {strategy: int(float(value)) for strategy, value in _BY_STRATEGY.findall(metrics)}
    if not found and (old := _OLD.search(metrics)):
        found = {"default": int(float(old[1]))}
    return found


def through_api(client: ApiClient, namespace: str, pod: str, port: int) -> Ask:
    async def ask(path: str) -> str:
        return await client.get_text(f"{POD.path(namespace, pod)}:{port}/proxy{path}")

    return ask


def directly(host: str, port: int, seconds: float) -> Ask:
    async def ask(path: str) -> str:
        async with asyncio.timeout(seconds):
            return await _get(Url("http", host, port, path))

    return ask


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


def words(trouble: Exception) -> str:
    if isinstance(trouble, ClusterError | HostedError):
        return trouble.why
    if isinstance(trouble, TimeoutError):
        return "no answer in time"
    return words_of(trouble) if isinstance(trouble, OSError) else str(trouble)
