"""The server process: health ports, listeners, lease, signals, and the order of its shutdown."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from umbilical.tunnel import certificates
from umbilical.tunnel.admin import ServerAdminRoutes, ServerHealthRoutes
from umbilical.tunnel.daemon import StopRequests, end_task, own_task, reload_on_hangup
from umbilical.tunnel.event_loop import data_plane_of_running_loop
from umbilical.tunnel.http_server import open_http
from umbilical.tunnel.interfaces import AgentAuthenticator, Publisher
from umbilical.tunnel.metrics import ServerMetrics
from umbilical.tunnel.server import Server
from umbilical.tunnel.service_manager import ServiceManager
from umbilical.tunnel.settings import ServerSettings
from umbilical.tunnel.status.routes import StatusAccess, StatusRoutes
from umbilical.tunnel.status.server_status import ServerStatus

logger = logging.getLogger(__name__)

MakePublisher = Callable[[ServerMetrics], Publisher]


async def run_server(
    settings: ServerSettings,
    authenticator: AgentAuthenticator | None,
    *,
    publish: MakePublisher | None = None,
    manager: ServiceManager | None = None,
) -> int:
    """Serve until a signal; return the exit code. Raises StartupError, with nothing open."""
    manager = manager or ServiceManager()
    async with AsyncExitStack() as stack:
        stop = StopRequests()
        stack.callback(stop.close)
        server = Server(settings, data_plane_of_running_loop(), authenticator)
        stack.callback(server.close)
        tls = certificates.admin(
            settings.admin_tls, settings.tls_policy, server.core.loop, server.core.metrics.certificates
        )
        status = ServerStatus(server, tls)

        def render_metrics() -> bytes:
            return server.render_metrics(status.state().word)

        health = ServerHealthRoutes(server.is_ready, render_metrics, server.agent_count)
        await open_http(stack, settings.health_listen, health, "health")
        admin = ServerAdminRoutes(render_metrics, profiling=settings.enable_profiling)
        await open_http(
            stack, settings.admin_listen, StatusRoutes(admin, status, StatusAccess.of(settings)), "admin", tls
        )
        server.listen(manager.clients_socket(settings.frontend))
        publisher = status.publisher = publish(server.core.metrics) if publish is not None else None
        publishing = own_task(publisher.run()) if publisher is not None else None
        logger.info("server ready to serve server=%s mode=%s", settings.server_id, settings.mode.value)
        reload_on_hangup(stack, partial(manager.reloading, server.reload))
        manager.ready(stack, lambda: f"agents connected: {server.agent_count()}")
        await stop.first.wait()
        manager.stopping()
        # In parallel: an API server that hangs must not delay the notice to agents.
        withdrawing = None if publisher is None else own_task(withdraw(publisher, publishing))
        code = await leave(server, stop.second)
        if withdrawing is not None:
            await withdrawing
    return code


async def withdraw(publisher: Publisher, publishing: "asyncio.Task[Any] | None") -> None:
    """Delete the lease, so that no further agent connects while our tunnels end."""
    if publishing is not None:
        await end_task(publishing)
    await publisher.withdraw()


async def leave(server: Server, second: asyncio.Event) -> int:
    """Become unready, stop accepting, wait for tunnels to end; a second signal ends the wait."""
    seconds = server.settings.graceful_shutdown_seconds
    server.stop_accepting()
    if seconds <= 0:
        return 0
    logger.info("shutting down: waiting up to %g s for %d tunnels to end", seconds, server.core.open_tunnels())
    server.announce_leave()
    waiting = own_task(server.until_idle(seconds))
    insisted = own_task(second.wait())
    await asyncio.wait({waiting, insisted}, return_when=asyncio.FIRST_COMPLETED)
    await end_task(waiting)
    await end_task(insisted)
    return 1 if second.is_set() else 0
