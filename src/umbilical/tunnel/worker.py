"""A worker: a whole server whose connections, orders and answers to questions come from the supervisor."""

import asyncio
import logging
import os
import pickle
import signal
import socket
import struct
from typing import Any, Final, NoReturn

from umbilical.fault import StartupError
from umbilical.record import Record
from umbilical.tunnel.control import Control, Handle, PeerGone, QuestionFailed
from umbilical.tunnel.daemon import end_task, own_task
from umbilical.tunnel.event_loop import data_plane_of_running_loop
from umbilical.tunnel.interfaces import AuthenticationRefused
from umbilical.tunnel.pprof import MAX_SECONDS, Profiler
from umbilical.tunnel.server import Server
from umbilical.tunnel.server_process import leave
from umbilical.tunnel.settings import ServerSettings
from umbilical.tunnel.status.routes import encode
from umbilical.tunnel.status.server_status import ServerStatus

logger = logging.getLogger(__name__)

REVIEW_SECONDS: Final = 30.0
"""For the supervisor's answer; each request to the API has a shorter limit of its own."""
PROFILE_SECONDS: Final = MAX_SECONDS + 10.0
_SIZE: Final = struct.Struct("!I")


class WorkerOrder(Record):
    """What a worker is told at its start; it goes over the control socket and never through arguments."""

    settings: ServerSettings
    checks_tokens: bool
    logs: tuple[str, ...]
    """How `cli` set up the log of the supervisor."""


class WorkerSockets(Record):
    """Ends of socketpairs, the other ends are the supervisor's."""

    control: socket.socket
    agents: socket.socket
    clients: socket.socket

    def all(self) -> tuple[socket.socket, ...]:
        return self.control, self.agents, self.clients


def write_order(control: socket.socket, order: WorkerOrder) -> None:
    octets = pickle.dumps(order)
    control.sendall(_SIZE.pack(len(octets)) + octets)


def read_order(control: socket.socket) -> WorkerOrder:
    """Only from the socket that the supervisor made: what is read here is trusted."""
    size = _SIZE.unpack(control.recv(_SIZE.size, socket.MSG_WAITALL))[0]
    order = pickle.loads(control.recv(size, socket.MSG_WAITALL))
    assert isinstance(order, WorkerOrder)
    return order


class SupervisorReviews:
    """Asks the supervisor, which alone talks to the API; an `AgentAuthenticator`."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def authenticate(self, token: str) -> None:
        try:
            refusal = await self._control.ask("authenticate", token, REVIEW_SECONDS)
        except PeerGone as gone:
            text = f"Failed to validate authentication token, err:no answer from the supervisor: {gone}"
            raise AuthenticationRefused(text) from gone
        if refusal is not None:
            raise AuthenticationRefused(refusal)


class Worker:
    """Carries out what the supervisor asks for."""

    def __init__(self, order: WorkerOrder) -> None:
        self.leaving: Final = asyncio.Event()
        self.hurried: Final = asyncio.Event()
        handles: dict[str, Handle] = {
            "report": self._report,
            "reload": self._reload,
            "leave": self._leave,
            "hurry": self._hurry,
            "profile": self._profile,
            "status": self._tell_status,
            "tell-events": self._tell_events,
        }
        self.control: Final = Control(handles)
        self._profiler: Final = Profiler()
        reviews = SupervisorReviews(self.control) if order.checks_tokens else None
        self.server: Final = Server(order.settings, data_plane_of_running_loop(), reviews)
        self._status: Final = ServerStatus(self.server)
        self._telling: asyncio.Task[Any] | None = None

    async def _report(self, _: Any) -> dict[str, Any]:
        server = self.server
        agents = [link.agent_id for link in server.agent_links()]
        metrics = server.render_metrics().decode()
        tunnels = server.core.open_tunnels()
        found = {"ready": server.is_ready(), "agents": agents, "tunnels": tunnels, "metrics": metrics}
        return found | {"status": self._status.brief()}

    async def _tell_status(self, most_tunnels: int) -> str:
        return (await encode(self._status.describe(most_tunnels))).decode()

    async def _tell_events(self, wanted: bool) -> None:
        """Pass events to the supervisor from now on, or no more."""
        if self._telling is not None:
            await end_task(self._telling)
        self._telling = own_task(self._pass_events()) if wanted else None

    async def _pass_events(self) -> None:
        """The supervisor answers each batch, so that a slow one is cut here, as any listener."""
        events = self.server.core.events
        while True:
            listener = events.listen()
            try:
                while octets := await listener.next():
                    await self.control.ask("events", octets.decode())
            except (PeerGone, QuestionFailed):
                return
            finally:
                events.leave(listener)

    async def _reload(self, _: Any) -> None:
        self.server.reload()

    async def _leave(self, _: Any) -> None:
        self.leaving.set()

    async def _hurry(self, _: Any) -> None:
        self.hurried.set()

    async def _profile(self, given: list[str]) -> list[Any]:
        status, body = await self._profiler.take(given[0], given[1])
        return [status, body.decode("utf-8", "replace")]


async def run_worker(order: WorkerOrder, sockets: WorkerSockets) -> int:
    """Serve until the supervisor says so, or is gone; return the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they may reach all processes of a service; the supervisor decides
    try:
        worker = Worker(order)
    except StartupError as fault:
        logger.error("%s %s: %s", fault.code, fault.what, fault.why)
        await _tell_failure(sockets.control, fault)
        return 1
    server, control = worker.server, worker.control
    try:
        server.take_passed(sockets.agents, sockets.clients)
        await control.open(sockets.control)
        serving = own_task(control.run())
        await control.ask("started")
        logger.info("worker ready to serve server=%s", order.settings.server_id)
        asked = own_task(worker.leaving.wait())
        await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
        code = 0
        if serving.done():
            _vanish(order.settings.server_id)
        if worker.leaving.is_set():
            left = own_task(leave(server, worker.hurried))
            await asyncio.wait({serving, left}, return_when=asyncio.FIRST_COMPLETED)
            if not left.done():
                _vanish(order.settings.server_id)
            code = left.result()
        await end_task(asked)
        await end_task(serving)
    finally:
        server.close()
    return code


def _vanish(server_id: str) -> NoReturn:
    """End as a killed server does. An orderly close would tell clients that their agents had left."""
    logger.warning("the supervisor is gone: server=%s ends, with all its tunnels", server_id)
    logging.shutdown()
    os._exit(1)


async def _tell_failure(sock: socket.socket, fault: StartupError) -> None:
    control = Control({})
    await control.open(sock)
    serving = own_task(control.run())
    try:
        await control.ask("failed", [fault.code, fault.what, fault.why, fault.remedy])
    except PeerGone:
        pass
    await end_task(serving)
