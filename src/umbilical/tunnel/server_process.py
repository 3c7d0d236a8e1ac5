"""A server as a process: health first, listeners, lease, signals, and the order in which it leaves."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from umbilical.tunnel.admin import HttpListener, Routes, ServerAdminRoutes, ServerHealthRoutes
from umbilical.tunnel.errors import StartupError
from umbilical.tunnel.event_loop import data_plane_of_running_loop
from umbilical.tunnel.interfaces import AgentAuthenticator, LeasePublisher
from umbilical.tunnel.metrics import ServerMetrics
from umbilical.tunnel.server import Server
from umbilical.tunnel.settings import ListenAddress, ServerSettings
from umbilical.tunnel.signals import StopRequests

logger = logging.getLogger(__name__)

MakePublisher = Callable[[ServerMetrics], LeasePublisher]


async def run_server(
    settings: ServerSettings, authenticator: AgentAuthenticator | None, *, publish: MakePublisher | None = None
) -> int:
    """Serve until a signal; the exit code. Raises StartupError, with nothing left open."""
    stop = StopRequests()
    server = Server(settings, data_plane_of_running_loop(), authenticator)
    async with AsyncExitStack() as stack:
        stack.callback(stop.close)
        stack.callback(server.close)
        await open_http(
            stack, settings.health_listen, ServerHealthRoutes(server.is_ready, server.render_metrics), "health"
        )
        admin = ServerAdminRoutes(server.render_metrics, profiling=settings.enable_profiling)
        await open_http(stack, settings.admin_listen, admin, "admin")
        server.listen()
        publisher = publish(server.exchange.metrics) if publish is not None else None
        task = _own_task(publisher.run()) if publisher is not None else None
        logger.info("server ready to serve server=%s mode=%s", settings.server_id, settings.mode.value)
        await stop.first.wait()
        code = await _leave(server, stop)
        if publisher is not None and task is not None:
            await end_task(task)
            await publisher.withdraw()
    return code


async def _leave(server: Server, stop: StopRequests) -> int:
    """Unready first, then no newcomers, then patience; a second signal ends the patience."""
    seconds = server.settings.graceful_shutdown_seconds
    server.stop_accepting()
    if seconds <= 0:
        return 0
    logger.info("leaving: waiting up to %g s for %d tunnels", seconds, server.exchange.open_tunnels())
    waiting = _own_task(server.until_idle(seconds))
    insisted = _own_task(stop.second.wait())
    await asyncio.wait({waiting, insisted}, return_when=asyncio.FIRST_COMPLETED)
    await end_task(waiting)
    await end_task(insisted)
    return 1 if stop.second.is_set() else 0


async def open_http(stack: AsyncExitStack, address: ListenAddress, routes: Routes, what: str) -> HttpListener:
    """Upstream only logs a port that it cannot open; nobody would probe it then, so we do not start."""
    listener = HttpListener(address, routes)
    try:
        await listener.start()
    except OSError as error:
        raise StartupError(
            "UMB023",
            f"cannot listen on {address.host or '*'}:{address.port} for {what}",
            error.strerror or str(error),
            f"see who holds the port: ss -ltnp 'sport = :{address.port}'",
        ) from error
    stack.push_async_callback(listener.stop)
    return listener


def _own_task(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    return asyncio.get_running_loop().create_task(work)


async def end_task(task: "asyncio.Task[Any]") -> None:
    """Cancel and wait; its own failure was logged by itself or matters no more."""
    task.cancel()
    await asyncio.wait({task})
