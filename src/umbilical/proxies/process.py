"""A proxy as a process: health port, client ports, the tunnel once its files exist, signals, drain."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.streams import Opener, Streams
from umbilical.fault import StartupError
from umbilical.konnectivity.dial_failure import join_host_port
from umbilical.proxies.health import HealthRoutes, TunnelWatch
from umbilical.proxies.listener import ConnectionService, ProxyListener
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.settings import ListenerSettings, OutboundSettings
from umbilical.record import Record
from umbilical.tunnel.causes import log_fields
from umbilical.tunnel.daemon import StopRequests, end_task, own_task
from umbilical.tunnel.http_server import open_http

logger = logging.getLogger(__name__)

FILES_SECONDS: Final = 1.0
"""Interval for checking missing files: a mounted Secret may appear later."""
FILES_TRIES: Final = 600
"""Then the process exits with the error."""
WAITED_FOR: Final = frozenset({"UMB020", "UMB021", "UMB022"})
"""Missing or half-written files. Other startup errors do not go away by waiting."""


class ProxyOutbound(Protocol):
    """Opens the connections of a proxy. Implemented by `umbilical.proxies.outbound.Outbound`."""

    @property
    def is_tunnel_healthy(self) -> bool: ...

    async def open(self, host: str, port: int) -> Streams:
        """Raises DialFailed."""
        ...

    async def close(self) -> None: ...


class ClosableOpener(Opener, Protocol):
    async def close(self) -> None: ...


class ProxyTunnel(Record):
    """The outbound side and the dialer below it, which is closed after it."""

    outbound: ProxyOutbound
    dialer: ClosableOpener


MakeTunnel = Callable[[ProxyMetrics], ProxyTunnel]
"""Raises StartupError while files are missing or invalid."""


def tunnel_of(settings: OutboundSettings) -> MakeTunnel:
    """Return the factory for a tunnel with these settings."""

    def make(metrics: ProxyMetrics) -> ProxyTunnel:
        from umbilical.dialer.dialer import Dialer
        from umbilical.proxies.outbound import make_outbound

        dialer = Dialer(settings.dialer, metrics.certificates)
        return ProxyTunnel(make_outbound(settings, dialer, os.environ, metrics), dialer)

    return make


MakeService = Callable[[Opener, ProxyMetrics], ConnectionService]


class DeferredOutbound:
    """Creates the outbound side when its files exist: until then every dial fails with the reason."""

    def __init__(self, make: MakeTunnel, metrics: ProxyMetrics) -> None:
        self._make: Final = make
        self._metrics: Final = metrics
        self._tunnel: ProxyTunnel | None = None
        self._fault: StartupError | None = None
        self.watch: Final = TunnelWatch()
        metrics.tunnel_healthy = self.is_healthy

    def is_healthy(self) -> int:
        """Healthy after the first answer of an agent, and while the outbound side is."""
        return int(self._tunnel is not None and self.watch.agent_reached and self._tunnel.outbound.is_tunnel_healthy)

    async def open(self, host: str, port: int) -> Streams:
        if self._tunnel is None:
            raise DialFailed(DialReason.TLS, "this proxy", str(self._fault or "its TLS files are not loaded yet"))
        return await self._tunnel.outbound.open(host, port)

    def try_once(self) -> bool:
        """Try to create it; return whether it exists. Logs the reason when it changes. Raises StartupError."""
        if self._tunnel is not None:
            return True
        try:
            self._tunnel = self._make(self._metrics)
        except StartupError as fault:
            if fault.code not in WAITED_FOR:
                raise
            if str(fault) != str(self._fault):
                logger.warning("%s waiting for file: %s", fault.code, fault, extra=log_fields(fault.code, fault.remedy))
            self._fault = fault
            self.watch.reason = str(fault)
            return False
        return True

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Wait for the files, then for the tunnel. Raises StartupError if the files do not appear."""
        for _ in range(FILES_TRIES):
            if self.try_once():
                break
            await sleep(FILES_SECONDS)
        if self._tunnel is None:
            assert self._fault is not None
            raise self._fault
        await self.watch.run(self._tunnel.dialer)

    async def close(self) -> None:
        if self._tunnel is not None:
            await self._tunnel.outbound.close()
            await self._tunnel.dialer.close()


async def run_proxy(settings: ListenerSettings, make_tunnel: MakeTunnel, make_service: MakeService, what: str) -> int:
    """Serve until a signal; return the exit code. Raises StartupError. `what` is the name in logs."""
    async with AsyncExitStack() as stack:
        stop = StopRequests()
        stack.callback(stop.close)
        metrics = ProxyMetrics()
        outbound = DeferredOutbound(make_tunnel, metrics)
        stack.push_async_callback(outbound.close)
        listener = ProxyListener(settings, make_service(outbound, metrics), metrics)
        stack.push_async_callback(listener.close)
        if settings.health is not None:
            routes = HealthRoutes(lambda: _unready(listener, outbound.watch), metrics.render)
            await open_http(stack, settings.health, routes, "health")
        outbound.try_once()
        listener.listen(what)
        watching = own_task(outbound.run())
        stack.push_async_callback(end_task, watching)
        logger.info("%s listens on %s", what, ", ".join(join_host_port(*address) for address in listener.addresses))
        await _until_signal(stop, watching)
        return await _leave(listener, settings.drain_seconds, stop)


def _unready(listener: ProxyListener, watch: TunnelWatch) -> str:
    if not listener.is_listening:
        return "draining"
    return "" if watch.server_reached else watch.reason


async def _until_signal(stop: StopRequests, watching: "asyncio.Task[Any]") -> None:
    """Wait for the first signal. Raises the error of the watch, such as StartupError for missing files."""
    signalled = own_task(stop.first.wait())
    await asyncio.wait({signalled, watching}, return_when=asyncio.FIRST_COMPLETED)
    if watching.done() and watching.exception() is not None:
        await end_task(signalled)
        await watching
    await signalled


async def _leave(listener: ProxyListener, seconds: float, stop: StopRequests) -> int:
    """Become unready, accept no more clients, wait for open connections; a second signal ends the wait."""
    listener.stop_accepting()
    if seconds <= 0:
        return 0
    logger.info("draining: waiting up to %g s for %d connections", seconds, listener.open_connections())
    idle, insisted = own_task(listener.until_idle()), own_task(stop.second.wait())
    await asyncio.wait({idle, insisted}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if not idle.done():
        logger.warning("drain ended with %d connections open: closing them", listener.open_connections())
    await end_task(idle)
    await end_task(insisted)
    return 1 if stop.second.is_set() else 0
