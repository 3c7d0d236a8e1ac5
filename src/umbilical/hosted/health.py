"""Servers and proxies asked at their health ports: directly, or through the management cluster's API."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final

from umbilical.cluster.client import ApiClient
from umbilical.cluster.objects import POD
from umbilical.dialer.reach import words_of
from umbilical.fault import ClusterError, HostedError
from umbilical.hosted.facts import ServerHealth
from umbilical.hosted.http_call import Call, Exchange, Url
from umbilical.hosted.pipe import Pipe

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
        exchange = Exchange(pipe)
        await exchange.send(Call("GET", url))
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
