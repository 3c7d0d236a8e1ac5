"""A proxy as a process: health first, the ports for clients at once, the tunnel when it is there, signals, drain."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol

from umbilical.dialer.failure import DialFailed, Reason
from umbilical.dialer.streams import Opener, Streams
from umbilical.fault import StartupError
from umbilical.konnectivity.dial_failure import join_host_port
from umbilical.proxies.health import HealthRoutes, TunnelWatch
from umbilical.proxies.listener import Listener, Service
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.settings import ListenerSettings, OutboundSettings
from umbilical.record import Record
from umbilical.tunnel.causes import log_fields
from umbilical.tunnel.daemon import StopRequests, end_task, own_task
from umbilical.tunnel.http_server import open_http

logger = logging.getLogger(__name__)

FILES_SECONDS: Final = 1.0
"""Between looks for files that are not there yet: a mounted Secret appears when whoever makes it is done."""
FILES_TRIES: Final = 600
"""Then the process ends, and whoever starts it again sees why."""
WAITED_FOR: Final = frozenset({"UMB020", "UMB021", "UMB022"})
"""Files that are not there, or half written; any other fault at the start would be the same in an hour."""


class Outlet(Protocol):
    """The way out of a proxy. `umbilical.proxies.outbound.Outbound` fulfils it."""

    @property
    def is_tunnel_healthy(self) -> bool: ...

    async def open(self, host: str, port: int) -> Streams:
        """Raises DialFailed."""
        ...

    async def close(self) -> None: ...


class ClosableOpener(Opener, Protocol):
    async def close(self) -> None: ...


class Tunnel(Record):
    """What there is once the files are: the way out, and the bare tunnel below it, which closes after it."""

    outlet: Outlet
    dialer: ClosableOpener


MakeTunnel = Callable[[ProxyMetrics], Tunnel]
"""Raises StartupError while files are missing or cannot be used."""


def tunnel_of(settings: OutboundSettings) -> MakeTunnel:
    """The real one: servers, names and direct paths as the settings have them."""

    def make(metrics: ProxyMetrics) -> Tunnel:
        from umbilical.dialer.dialer import Dialer
        from umbilical.proxies.outbound import make_outbound

        dialer = Dialer(settings.dialer, metrics.certificates)
        return Tunnel(make_outbound(settings, dialer, os.environ, metrics), dialer)

    return make


MakeService = Callable[[Opener, ProxyMetrics], Service]


class LateOutlet:
    """An outlet that may take its time to be there: until then every dial fails with the reason."""

    def __init__(self, make: MakeTunnel, metrics: ProxyMetrics) -> None:
        self._make: Final = make
        self._metrics: Final = metrics
        self._tunnel: Tunnel | None = None
        self._fault: StartupError | None = None
        self.watch: Final = TunnelWatch()
        metrics.tunnel_healthy = self.is_healthy

    def is_healthy(self) -> int:
        """Both eyes: ours until an agent has answered for the first time, the outlet's from then on."""
        return int(self._tunnel is not None and self.watch.agent_reached and self._tunnel.outlet.is_tunnel_healthy)

    async def open(self, host: str, port: int) -> Streams:
        if self._tunnel is None:
            raise DialFailed(Reason.TLS, "this proxy", str(self._fault or "its files are not read yet"))
        return await self._tunnel.outlet.open(host, port)

    def try_once(self) -> bool:
        """Whether the outlet is there; told when it is not, and whenever the reason changes. Raises StartupError."""
        if self._tunnel is not None:
            return True
        try:
            self._tunnel = self._make(self._metrics)
        except StartupError as fault:
            if fault.code not in WAITED_FOR:
                raise
            if str(fault) != str(self._fault):
                logger.warning("%s waiting: %s", fault.code, fault, extra=log_fields(fault.code, fault.remedy))
            self._fault = fault
            self.watch.reason = str(fault)
            return False
        return True

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Wait for the files, then for the tunnel. Raises StartupError when the wait for files was in vain."""
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
            await self._tunnel.outlet.close()
            await self._tunnel.dialer.close()


async def run_proxy(settings: ListenerSettings, make_tunnel: MakeTunnel, make_service: MakeService, what: str) -> int:
    """Serve until a signal; the exit code. Raises StartupError, with nothing left open. `what` names it in logs."""
    async with AsyncExitStack() as stack:
        stop = StopRequests()
        stack.callback(stop.close)
        metrics = ProxyMetrics()
        outlet = LateOutlet(make_tunnel, metrics)
        stack.push_async_callback(outlet.close)
        listener = Listener(settings, make_service(outlet, metrics), metrics)
        stack.push_async_callback(listener.close)
        if settings.health is not None:
            routes = HealthRoutes(lambda: _unready(listener, outlet.watch), metrics.render)
            await open_http(stack, settings.health, routes, "health")
        outlet.try_once()
        listener.listen(what)
        watching = own_task(outlet.run())
        stack.push_async_callback(end_task, watching)
        logger.info("%s listens on %s", what, ", ".join(join_host_port(*address) for address in listener.addresses))
        await _until_told(stop, watching)
        return await _leave(listener, settings.drain_seconds, stop)


def _unready(listener: Listener, watch: TunnelWatch) -> str:
    if not listener.is_listening:
        return "draining"
    return "" if watch.server_reached else watch.reason


async def _until_told(stop: StopRequests, watching: "asyncio.Task[Any]") -> None:
    """Wait for the first signal; files that never came, or a bug in the watch, end the process instead."""
    told = own_task(stop.first.wait())
    await asyncio.wait({told, watching}, return_when=asyncio.FIRST_COMPLETED)
    if watching.done() and watching.exception() is not None:
        await end_task(told)
        await watching
    await told


async def _leave(listener: Listener, seconds: float, stop: StopRequests) -> int:
    """Unready first, then no newcomers, then patience; a second signal ends the patience."""
    listener.stop_accepting()
    if seconds <= 0:
        return 0
    logger.info("leaving: waiting up to %g s for %d connections", seconds, listener.open_connections())
    idle, insisted = own_task(listener.until_idle()), own_task(stop.second.wait())
    await asyncio.wait({idle, insisted}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if not idle.done():
        logger.warning("leaving with %d connections open: they are cut", listener.open_connections())
    await end_task(idle)
    await end_task(insisted)
    return 1 if stop.second.is_set() else 0
