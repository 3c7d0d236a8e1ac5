"""The supervisor of a server with several workers: it accepts for them, replaces one that ends, and speaks for all.

It has the ports, health and admin, signals, token reviews and leases, and moves no byte of a tunnel.
"""

import asyncio
import logging
import socket
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from umbilical.fault import StartupError
from umbilical.tunnel import causes, certificates, merged_metrics
from umbilical.tunnel.admin import ServerAdminRoutes, ServerHealthRoutes, profile_response
from umbilical.tunnel.daemon import StopRequests, end_task, own_task, reload_on_hangup
from umbilical.tunnel.event_loop import data_plane_of_running_loop
from umbilical.tunnel.events import EventSource
from umbilical.tunnel.exposition import Exposition
from umbilical.tunnel.http_server import HttpRequest, HttpResponse, open_http
from umbilical.tunnel.identities import AgentGate
from umbilical.tunnel.interfaces import AgentAuthenticator, AuthenticationRefused, Publisher
from umbilical.tunnel.listening import ATTEND, PAUSE_SECONDS, SERVE, SocketListener, pass_on
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.merged_metrics import Families
from umbilical.tunnel.metrics import CertificateMetrics, ServerGauges, ServerMetrics, render_state
from umbilical.tunnel.passing import AgentPassing, Passing
from umbilical.tunnel.ports import ServerPorts
from umbilical.tunnel.round_trips import WindowBudget
from umbilical.tunnel.server_process import MakePublisher, withdraw
from umbilical.tunnel.service_manager import ServiceManager
from umbilical.tunnel.settings import AuditSettings, CapSettings, Limits, ServerSettings
from umbilical.tunnel.status.parts import certificates as certificate_parts
from umbilical.tunnel.status.routes import StatusAccess, StatusRoutes
from umbilical.tunnel.status.server_status import leases, merged, server_head
from umbilical.tunnel.status.state import Document
from umbilical.tunnel.worker import PROFILE_SECONDS, WorkerOrder
from umbilical.tunnel.worker_process import WorkerProcess, told

logger = logging.getLogger(__name__)

START_SECONDS: Final = 60.0
EXIT_SECONDS: Final = 10.0
"""How long after its time limit a worker may take to close everything, before it is killed."""
PASS_SECONDS: Final = 2.0
"""For connections that were accepted right before the stop."""
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 10.0
STEADY_SECONDS: Final = 60.0
"""A worker that served for so long is replaced at once; otherwise pauses double."""


SHARED_CAPS: Final = ("client_tunnels", "dial_rate")
"""Limits of the whole server; every agent connects to every worker, so the other two hold for each of them."""


def worker_settings(settings: ServerSettings, index: int) -> ServerSettings:
    """A worker is a whole server for agents, so the servers that they count are as many times more. It has its part of
    the memory for windows."""
    window_bytes = max(1, WindowBudget.of(settings.limits).total_bytes // settings.workers)
    changed = {
        "server_id": settings.server_ids()[index],
        "server_count": settings.server_count * settings.workers,
        "limits": Limits(**(vars(settings.limits) | {"window_bytes": window_bytes})),
        "audit": AuditSettings(_of_worker(settings.audit.path, index), settings.audit.max_bytes),
        "caps": CapSettings(**(vars(settings.caps) | {name: _part(settings, name) for name in SHARED_CAPS})),
    }
    return ServerSettings(**(vars(settings) | changed))


def _of_worker(path: Path | None, index: int) -> Path | None:
    """Each worker rotates a file of its own; a device or pipe is not rotated, and shared."""
    if path is None or (path.exists() and not path.is_file()):
        return path
    return path.with_stem(f"{path.stem}-{index}")


def _part(settings: ServerSettings, cap: str) -> int:
    """Rounded up: a part of 0 would be no limit."""
    limit: int = getattr(settings.caps, cap)
    return -(-limit // settings.workers)


class Supervisor:
    def __init__(
        self, settings: ServerSettings, loop: Loop, authenticator: AgentAuthenticator | None, logs: tuple[str, ...]
    ) -> None:
        self.settings: Final = settings
        self.metrics: Final = ServerMetrics()
        self._loop: Final = loop
        self._authenticator: Final = authenticator
        self._logs: Final = logs
        self._for_agents: Final = AgentPassing(loop, settings.workers)
        self._for_clients: Final = Passing(loop, settings.workers)
        self._workers: Final[dict[int, WorkerProcess]] = {}
        self._keepers: Final[list[asyncio.Task[Any]]] = []
        self._orders: Final[set[asyncio.Task[Any]]] = set()
        self._ended: Families = {}
        """Counters of workers that have ended."""
        self._replaced: Final = [0] * settings.workers
        self._stopping = False
        self._ports: ServerPorts | None = None
        self._listeners: list[SocketListener] = []
        self._look: asyncio.Task[Any] | None = None
        self._started_at: Final = loop.now
        self.publisher: Publisher | None = None
        self._events: Final = EventSource(on_heard=self._have_workers_tell)
        self.admin_tls: Final = certificates.admin(
            settings.admin_tls, settings.tls_policy, loop, self.metrics.certificates
        )

    def listen(self, passed: socket.socket | None = None) -> None:
        """`passed` is the socket for clients if it is open. Raises StartupError, also for files that workers could
        not use."""
        unused = CertificateMetrics()
        certificates.agent_listener(self.settings, self._loop, unused)
        certificates.frontend(self.settings, "h2", self._loop, unused)
        AgentGate(self.settings.agent_identities, self.settings.token_identity)
        self._ports = ServerPorts(self.settings, passed)

    async def start(self) -> None:
        """Start all workers, then accept. Raises StartupError."""
        assert self._ports is not None
        for index in range(self.settings.workers):
            await self._start_one(index)
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.gather(*[worker.started for worker in self._workers.values()])
        except TimeoutError:
            why = f"it does not serve within {START_SECONDS:g} s"
            remedy = "see the lines above in the log"
            raise StartupError("UMB440", "a worker did not start", why, remedy) from None
        for index in range(self.settings.workers):
            self._keepers.append(own_task(self._keep(index)))
        for sock, passing in ((self._ports.agents, self._for_agents), (self._ports.clients, self._for_clients)):
            self._listeners.append(SocketListener(self._loop, sock, passing.accepted, passing))

    async def _start_one(self, index: int) -> WorkerProcess:
        checks = self._authenticator is not None
        order = WorkerOrder(worker_settings(self.settings, index), checks, self._logs)
        worker = self._workers[index] = WorkerProcess(
            order, {"authenticate": self._authenticate, "events": self._take_events}
        )
        self._for_agents.over[index] = worker.agents_socket
        self._for_clients.over[index] = worker.clients_socket
        await worker.start()
        for other in [self._workers[number] for number in self._workers if number != index]:
            if not other.ended.done():
                self._order(_introduce(worker, other))
        if self._events.heard:
            self._order(worker.tell("tell-events", True))
        logger.info("worker started server=%s pid=%d", order.settings.server_id, worker.pid)
        return worker

    async def _authenticate(self, token: str) -> str | None:
        assert self._authenticator is not None
        try:
            await self._authenticator.authenticate(token)
        except AuthenticationRefused as refused:
            return str(refused)
        return None

    async def _keep(self, index: int) -> None:
        """Replace this worker whenever it ends, until the supervisor stops."""
        clock = asyncio.get_running_loop()
        pause, began = FIRST_PAUSE_SECONDS, clock.time()
        while True:
            worker = self._workers[index]
            status = await _end_of(worker)
            await self._bury(index, worker)
            if self._is_stopping():
                return
            pause = FIRST_PAUSE_SECONDS if clock.time() - began >= STEADY_SECONDS else pause
            self._report_end(index, worker, status, pause)
            await asyncio.sleep(pause)
            if self._is_stopping():
                return
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            began = clock.time()
            self._replaced[index] += 1
            await self._start_one(index)

    def _is_stopping(self) -> bool:
        return self._stopping

    def _report_end(self, index: int, worker: WorkerProcess, status: int, pause: float) -> None:
        cause = causes.FailureCause("UMB440", f"it ended with {told(status)}; a new one starts in {pause:g} s")
        text = "%s worker lost server=%s pid=%d: %s"
        logger.error(text, cause.code, self.settings.server_ids()[index], worker.pid, cause.text, extra=cause.fields)

    async def _bury(self, index: int, worker: WorkerProcess) -> None:
        self._for_agents.over[index] = None
        self._for_clients.over[index] = None
        self._ended = merged_metrics.merge([self._ended, merged_metrics.growing(worker.metrics)])
        worker.metrics, worker.is_ready, worker.agents, worker.tunnels = {}, False, frozenset(), 0
        worker.brief = None
        await worker.close()

    async def look(self) -> None:
        """Take the reports of all workers; callers at the same time share one look."""
        if self._look is None or self._look.done():
            self._look = own_task(self._look_at_all())
        await asyncio.shield(self._look)

    async def _look_at_all(self) -> None:
        await asyncio.gather(*[worker.look() for worker in self._workers.values()])

    def reload(self) -> None:
        """Have all workers look at their certificate files now."""
        for worker in self._workers.values():
            self._order(worker.tell("reload"))

    def is_ready(self) -> bool:
        return not self._stopping and any(worker.is_ready for worker in self._workers.values())

    def agent_count(self) -> int:
        return len(frozenset[str]().union(*[worker.agents for worker in self._workers.values()]))

    def render_metrics(self) -> bytes:
        own = merged_metrics.parse(self.metrics.render(ServerGauges()).decode())
        parts = [own, *[worker.metrics for worker in self._workers.values()], self._ended]
        return merged_metrics.render(merged_metrics.merge(parts) | self._own_families())

    def brief(self) -> Document:
        """The status without lists, from the last reports."""
        return self._merged([worker.brief for worker in self._workers.values()])

    async def document(self, most_tunnels: int, worker: str) -> Document | None:
        """The status of all workers as that of one server, or with a number that of one worker."""
        chosen = list(self._workers.values())
        if worker:
            one = self.worker(worker)
            return None if one is None else await one.status(most_tunnels)
        await self.look()
        document = self._merged(await asyncio.gather(*[one.status(most_tunnels) for one in chosen]))
        items = document["tunnels"]["items"][:most_tunnels]
        document["tunnels"] |= {"shown": len(items), "items": items}
        return document

    def events(self) -> EventSource:
        return self._events

    def whose(self) -> Document:
        return {"kind": "ServerStatus", "id": self.settings.server_id}

    def _have_workers_tell(self, heard: bool) -> None:
        for worker in self._workers.values():
            self._order(worker.tell("tell-events", heard))

    async def _take_events(self, events: str) -> None:
        self._events.pass_on(events.encode())

    def _order(self, work: Coroutine[Any, Any, Any]) -> None:
        task = own_task(work)
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)

    def _merged(self, found: Sequence[Document | None]) -> Document:
        settings = self.settings
        own = server_head(settings, self._loop.now - self._started_at) | {
            "agents": {"expected": settings.expected_agents or None},
            "leases": leases(self.publisher, settings.server_count * settings.workers),
            "certificates": certificate_parts([self.admin_tls] if self.admin_tls is not None else []),
        }
        own["server"]["stopping"] = self._stopping
        return merged([one for one in found if one is not None], own, self.agent_count())

    def _own_families(self) -> Families:
        out = Exposition()
        ids = [(server_id,) for server_id in self.settings.server_ids()]
        out.counter(
            "umbilical_worker_replacements_total",
            "Workers that ended and were replaced, by the ID of the worker.",
            ("worker",),
            dict(zip(ids, self._replaced, strict=True)),
        )
        out.counter(
            "umbilical_worker_clients_total",
            "Connections of clients that were passed to a worker, by its ID.",
            ("worker",),
            dict(zip(ids, self._for_clients.passed, strict=True)),
        )
        render_state(out, self.brief()["state"])
        return merged_metrics.parse(out.render().decode())

    async def until(self, event: asyncio.Event) -> None:
        """Wait for the event. A bug that ends a keeper ends the process, rather than leave it with fewer workers."""
        waiting = own_task(event.wait())
        try:
            await asyncio.wait({waiting, *self._keepers}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_task(waiting)
        for keeper in self._keepers:
            if keeper.done():
                keeper.result()

    def worker(self, number: str) -> WorkerProcess | None:
        return self._workers.get(int(number)) if number.isascii() and number.isdigit() and len(number) < 9 else None

    async def leave(self, second: asyncio.Event) -> int:
        """Stop accepting, have all workers end their tunnels, and wait for their end; a second signal hurries them."""
        seconds = self.settings.graceful_shutdown_seconds
        await self.stop_accepting()
        workers = list(self._workers.values())
        await asyncio.gather(*[worker.tell("leave") for worker in workers])
        ended = own_task(_all_ended(workers))
        insisted = own_task(second.wait())
        limit = max(seconds, 0.0) + EXIT_SECONDS
        await asyncio.wait({ended, insisted}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        await end_task(insisted)
        if not ended.done():
            await asyncio.gather(*[worker.tell("hurry") for worker in workers])
            await asyncio.wait({ended}, timeout=EXIT_SECONDS)
        await end_task(ended)
        return 1 if second.is_set() else 0

    async def stop_accepting(self) -> None:
        """Accepted connections still reach a worker."""
        self._stopping = True
        if self._ports is not None:
            self._ports.remove_socket_file()
        for listener in self._listeners[1:]:
            listener.accept_rest()
        for listener in self._listeners:
            listener.close()
        deadline = asyncio.get_running_loop().time() + PASS_SECONDS
        while not self._for_clients.flush() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        await self.stop_accepting()
        for worker in self._workers.values():
            worker.kill()
        ended = own_task(_all_ended(list(self._workers.values())))
        await asyncio.wait({ended}, timeout=EXIT_SECONDS)
        for task in [ended, *self._keepers, *self._orders]:
            await end_task(task)
        for worker in self._workers.values():
            await worker.close()
        for passing in (self._for_agents, self._for_clients):
            passing.close()
        if self._ports is not None:
            self._ports.agents.close()
            self._ports.clients.close()


async def _end_of(worker: WorkerProcess) -> int:
    """Wait for its exit status. One that hangs is killed: the probes of a kubelet reach the supervisor only."""
    hanging = own_task(worker.hang())
    try:
        await asyncio.wait({worker.ended, hanging}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_task(hanging)
    if not worker.ended.done():
        cause = causes.FailureCause("UMB440", "it answers no more and is killed")
        logger.error("%s worker hangs pid=%d: %s", cause.code, worker.pid, cause.text, extra=cause.fields)
        worker.kill()
    return await asyncio.shield(worker.ended)


async def _introduce(one: WorkerProcess, other: WorkerProcess) -> None:
    """Give two workers the two sockets over which they relay (siblings.py)."""
    for server, agent in ((one, other), (other, one)):
        ends = socket.socketpair()
        try:
            for worker, end, kind in ((server, ends[0], SERVE), (agent, ends[1], ATTEND)):
                await _hand_over(worker, end, kind)
        finally:
            for end in ends:
                end.close()


async def _hand_over(worker: WorkerProcess, end: socket.socket, kind: int) -> None:
    """Wait while it takes nothing, as long as it lives."""
    while not worker.ended.done():
        try:
            pass_on(worker.clients_socket, end, kind)
            return
        except BlockingIOError:
            await asyncio.sleep(PAUSE_SECONDS)
        except OSError:
            return  # it has just ended


async def _all_ended(workers: list[WorkerProcess]) -> None:
    for worker in workers:
        await asyncio.shield(worker.ended)


class _HealthRoutes:
    """Those of a server, after a look at the workers."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._routes = ServerHealthRoutes(supervisor.is_ready, supervisor.render_metrics, supervisor.agent_count)

    async def respond(self, request: HttpRequest) -> HttpResponse:
        if request.path != "/healthz":
            await self._supervisor.look()
        return await self._routes.respond(request)


class _AdminRoutes:
    """Profiles are of the supervisor, or with `?worker=k` of a worker."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._profiling = supervisor.settings.enable_profiling
        self._routes = ServerAdminRoutes(supervisor.render_metrics, profiling=self._profiling)

    async def respond(self, request: HttpRequest) -> HttpResponse:
        if request.path == "/metrics":
            await self._supervisor.look()
        asked = parse_qs(request.query).get("worker")
        if asked is None or not self._profiling or not request.path.startswith("/debug/pprof/"):
            return await self._routes.respond(request)
        worker = self._supervisor.worker(asked[0])
        if worker is None:
            last = self._supervisor.settings.workers - 1
            return HttpResponse(404, f"no such worker; they are numbered from 0 to {last}\n".encode())
        name = request.path.removeprefix("/debug/pprof/")
        seconds = parse_qs(request.query).get("seconds", [""])[0]
        return profile_response(name, *await worker.profile(name, seconds, PROFILE_SECONDS))


async def run_supervisor(
    settings: ServerSettings,
    authenticator: AgentAuthenticator | None,
    *,
    publish: MakePublisher | None = None,
    logs: tuple[str, ...] = ("native", "text", "info"),
    manager: ServiceManager | None = None,
) -> int:
    """Like `run_server`, with `settings.workers` processes. Raises StartupError, with nothing open."""
    manager = manager or ServiceManager()
    async with AsyncExitStack() as stack:
        stop = StopRequests()
        stack.callback(stop.close)
        supervisor = Supervisor(settings, data_plane_of_running_loop(), authenticator, logs)
        stack.push_async_callback(supervisor.close)
        await open_http(stack, settings.health_listen, _HealthRoutes(supervisor), "health")
        admin = StatusRoutes(_AdminRoutes(supervisor), supervisor, StatusAccess.of(settings))
        await open_http(stack, settings.admin_listen, admin, "admin", supervisor.admin_tls)
        supervisor.listen(manager.clients_socket(settings.frontend))
        await supervisor.start()
        publisher = supervisor.publisher = publish(supervisor.metrics) if publish is not None else None
        publishing = own_task(publisher.run()) if publisher is not None else None
        if publishing is not None:
            stack.push_async_callback(end_task, publishing)
        text = "server ready to serve server=%s mode=%s workers=%d"
        logger.info(text, settings.server_id, settings.mode.value, settings.workers)
        reload_on_hangup(stack, partial(manager.reloading, supervisor.reload))
        manager.ready(stack, lambda: f"workers: {settings.workers}, agents connected: {supervisor.agent_count()}")
        await supervisor.until(stop.first)
        manager.stopping()
        # In parallel: an API server that hangs must not delay the notice to agents.
        withdrawing = None if publisher is None else own_task(withdraw(publisher, publishing))
        code = await supervisor.leave(stop.second)
        if withdrawing is not None:
            await withdrawing
    return code
