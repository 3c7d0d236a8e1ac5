"""The agent process: health ports, name lookups, the loop that keeps servers connected, signals, drain.

Lookups run getaddrinfo in threads, so that the machine's own rules apply. The threads are daemon threads, unlike a
ThreadPoolExecutor's: a lookup that hangs must not delay the exit.
"""

import asyncio
import logging
import queue
import socket
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from umbilical.konnectivity import dial_failure
from umbilical.tunnel import certificates, faults
from umbilical.tunnel.admin import AgentAdminRoutes, AgentHealthRoutes
from umbilical.tunnel.agent import Agent
from umbilical.tunnel.daemon import StopRequests, end_task, reload_on_hangup
from umbilical.tunnel.dialing import Address, Dial
from umbilical.tunnel.event_loop import data_plane_of_running_loop
from umbilical.tunnel.http_server import open_http
from umbilical.tunnel.interfaces import ServerCounter
from umbilical.tunnel.metrics import AgentMetrics
from umbilical.tunnel.service_manager import ServiceManager
from umbilical.tunnel.settings import AgentSettings, TlsPolicy
from umbilical.tunnel.status.agent_status import AgentStatus
from umbilical.tunnel.status.routes import StatusAccess, StatusRoutes

THREADS: Final = 32
"""A DNS server that does not answer blocks a thread for up to 30 s. Dials to IP addresses need no thread."""


class ThreadedResolver:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._questions: Final[queue.SimpleQueue[tuple[Dial, str, int] | None]] = queue.SimpleQueue()
        self._under_way = 0
        self._threads = 0

    def resolve(self, dial: Dial, host: str, port: int) -> None:
        self._under_way += 1
        if self._threads < min(self._under_way, THREADS):
            self._threads += 1
            threading.Thread(target=self._work, name=f"resolver-{self._threads}", daemon=True).start()
        self._questions.put((dial, host, port))

    def _work(self) -> None:
        while (question := self._questions.get()) is not None:
            dial, host, port = question
            answer: list[Address] | Exception = []
            if not dial.is_over():  # it may have timed out in the queue
                try:
                    answer = _look_up(host, port)
                except Exception as error:
                    answer = error
            try:
                self._loop.call_soon_threadsafe(self._answer, dial, host, answer)
            except RuntimeError:
                return  # the loop is closed: the agent is stopping

    def _answer(self, dial: Dial, host: str, answer: list[Address] | Exception) -> None:
        self._under_way -= 1
        try:
            self._tell(dial, host, answer)
        except Exception as error:
            dial.loop.crash(dial, faults.TASK, error)

    def _tell(self, dial: Dial, host: str, answer: list[Address] | Exception) -> None:
        if not isinstance(answer, Exception):
            dial.resolved(answer)
        elif isinstance(answer, socket.gaierror) and answer.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
            dial.unresolved(dial_failure.lookup_error_text(dial.network, host, _name_server()))
        else:
            dial.unresolved(dial_failure.lookup_error_text(dial.network, host, _name_server(), "server misbehaving"))

    def close(self) -> None:
        """Stop the threads after their current lookups, without waiting."""
        for _ in range(self._threads):
            self._questions.put(None)
        self._threads = 0


def _look_up(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [
        (family, str(address[0]), int(address[1]))
        for family, _, _, _, address in found
        if family in (socket.AF_INET, socket.AF_INET6)
    ]


def _name_server() -> str:
    """Return the first name server, for error texts in Go's form; empty if there is none."""
    try:
        with open("/etc/resolv.conf", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                words = line.split()
                if len(words) >= 2 and words[0] == "nameserver":
                    return dial_failure.join_host_port(words[1], 53)
    except OSError:
        pass
    return ""


logger = logging.getLogger(__name__)

MakeCounter = Callable[[AgentMetrics, Callable[[], None]], ServerCounter]
"""The counter calls the second argument at each change."""


async def run_agent(
    settings: AgentSettings, *, count: MakeCounter | None = None, manager: ServiceManager | None = None
) -> int:
    """Serve until drained or until a second signal; return the exit code. Raises StartupError, with nothing open."""
    manager = manager or ServiceManager()
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        stop = StopRequests()
        stack.callback(stop.close)
        resolver = ThreadedResolver(loop)
        stack.callback(resolver.close)
        agent = Agent(settings, data_plane_of_running_loop(), resolver)
        stack.callback(agent.close)
        tls = certificates.admin(settings.admin_tls, TlsPolicy(), agent.context.loop, agent.metrics.certificates)
        status = AgentStatus(agent, tls)
        health = AgentHealthRoutes(
            agent.is_ready, lambda: agent.metrics.render(agent.gauges(), status.state().word), agent.why_unready
        )
        listener = await open_http(stack, settings.health_listen, health, "health")
        admin = AgentAdminRoutes(listener.port, profiling=settings.enable_profiling)
        await open_http(
            stack, settings.admin_listen, StatusRoutes(admin, status, StatusAccess.of(settings)), "admin", tls
        )
        if count is not None:
            agent.counter = count(agent.metrics, agent.leases_changed)
            counting = loop.create_task(agent.counter.run())
            stack.push_async_callback(end_task, counting)
        connecting = loop.create_task(agent.keep_connected())
        stack.push_async_callback(end_task, connecting)
        reload_on_hangup(stack, partial(manager.reloading, agent.reload))
        # Not only once a server is connected: a restart by the manager would not bring one (docs/decisions/0042).
        manager.ready(stack, agent.status)
        await _until_stopped(stop, connecting)
        manager.stopping()
        logger.info(
            "draining: new dials are still served; exiting after %g s without tunnels", settings.drain_linger_seconds
        )
        agent.drain()
        idle = loop.create_task(agent.until_idle())
        insisted = loop.create_task(stop.second.wait())
        await asyncio.wait({idle, insisted}, return_when=asyncio.FIRST_COMPLETED)
        await end_task(idle)
        await end_task(insisted)
    return 0


async def _until_stopped(stop: StopRequests, connecting: "asyncio.Task[None]") -> None:
    """Wait for the first signal. An exception of the connecting task ends the process."""
    signalled = asyncio.get_running_loop().create_task(stop.first.wait())
    await asyncio.wait({signalled, connecting}, return_when=asyncio.FIRST_COMPLETED)
    if not stop.first.is_set():
        signalled.cancel()
        await connecting
