"""An agent as a process: health before any server is reached, the sync loop, signals, drain."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack

from umbilical.tunnel.admin import AgentAdminRoutes, AgentHealthRoutes
from umbilical.tunnel.agent import Agent
from umbilical.tunnel.daemon import end_task, open_http
from umbilical.tunnel.event_loop import data_plane_of_running_loop
from umbilical.tunnel.interfaces import ServerCounter
from umbilical.tunnel.metrics import AgentMetrics
from umbilical.tunnel.resolver import ThreadedResolver
from umbilical.tunnel.settings import AgentSettings
from umbilical.tunnel.signals import StopRequests

logger = logging.getLogger(__name__)

MakeCounter = Callable[[AgentMetrics, Callable[[], None]], ServerCounter]
"""The second argument is to be called whenever the counter has news."""


async def run_agent(settings: AgentSettings, *, count: MakeCounter | None = None) -> int:
    """Serve until drained or told twice; the exit code. Raises StartupError, with nothing left open."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        stop = StopRequests()
        stack.callback(stop.close)
        resolver = ThreadedResolver(loop)
        stack.callback(resolver.close)
        agent = Agent(settings, data_plane_of_running_loop(), resolver)
        stack.callback(agent.close)
        health = AgentHealthRoutes(agent.is_ready, lambda: agent.metrics.render(agent.gauges()))
        listener = await open_http(stack, settings.health_listen, health, "health")
        admin = AgentAdminRoutes(listener.port, profiling=settings.enable_profiling)
        await open_http(stack, settings.admin_listen, admin, "admin")
        if count is not None:
            agent.counter = count(agent.metrics, agent.leases_changed)
            counting = loop.create_task(agent.counter.run())
            stack.push_async_callback(end_task, counting)
        connecting = loop.create_task(agent.keep_connected())
        stack.push_async_callback(end_task, connecting)
        await _until_told(stop, connecting)
        logger.info("draining: new dials are still served, leaving when idle for %g s", settings.drain_linger_seconds)
        agent.drain()
        idle = loop.create_task(agent.until_idle())
        insisted = loop.create_task(stop.second.wait())
        await asyncio.wait({idle, insisted}, return_when=asyncio.FIRST_COMPLETED)
        await end_task(idle)
        await end_task(insisted)
    return 0


async def _until_told(stop: StopRequests, connecting: "asyncio.Task[None]") -> None:
    """Wait for the first signal; a sync loop that dies by a bug takes the process with it, not just itself."""
    told = asyncio.get_running_loop().create_task(stop.first.wait())
    await asyncio.wait({told, connecting}, return_when=asyncio.FIRST_COMPLETED)
    if not stop.first.is_set():
        told.cancel()
        await connecting
