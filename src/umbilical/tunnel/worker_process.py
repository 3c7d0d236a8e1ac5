"""One worker as the supervisor sees it: the process, its three sockets, what it last reported, its end."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import umbilical
from umbilical.fault import StartupError
from umbilical.tunnel import merged_metrics
from umbilical.tunnel.control import Control, Handle, PeerGone, QuestionFailed
from umbilical.tunnel.daemon import end_task, own_task
from umbilical.tunnel.merged_metrics import Families
from umbilical.tunnel.status.state import Document
from umbilical.tunnel.worker import WorkerOrder, write_order

MODULE: Final = "umbilical.cli.worker"
REPORT_SECONDS: Final = 1.0
"""A worker that hangs must not make the probes of all fail."""
WATCH_SECONDS = 10.0
"""Between two questions whether a worker is alive."""
HANG_SECONDS = 30.0
"""A worker without any answer for so long is killed. As long as three failed probes of a kubelet by default."""


EXITING_SECONDS: Final = 10.0
"""How long a worker may take to end after it has closed its connection: many tunnels, a busy machine."""


class WorkerProcess:
    """From its start to its end; a successor is another object."""

    def __init__(self, order: WorkerOrder, handles: Mapping[str, Handle]) -> None:
        self.started: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        """Fails with StartupError if the worker cannot serve."""
        self.ended: Final[asyncio.Future[int]] = asyncio.get_running_loop().create_future()
        """The exit status; negative: the signal that killed it."""
        self.is_ready = False
        self.agents: frozenset[str] = frozenset()
        self.tunnels = 0
        self.metrics: Families = {}
        self.brief: Document | None = None
        """Its status without lists."""
        own = {"started": self._on_started, "failed": self._on_failed}
        self._control: Final = Control({**handles, **own})
        self._order: Final = order
        self._serving: asyncio.Task[Any] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._death = -1
        self.agents_socket, self._agents_end = _pair(socket.SOCK_SEQPACKET)
        self.clients_socket, self._clients_end = _pair(socket.SOCK_SEQPACKET)
        self._control_socket, self._control_end = _pair(socket.SOCK_STREAM)

    @property
    def pid(self) -> int:
        """0 if no process could be started."""
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        """A failure is in `started`, and then in `ended`."""
        ends = (self._control_end, self._agents_end, self._clients_end)
        numbers = [end.fileno() for end in ends]
        # -P: a module in the working directory must not stand in for one of ours.
        command = [sys.executable, "-P", "-m", MODULE, *map(str, numbers)]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=numbers, env=_environment())
        except OSError as error:
            self._fail(error.strerror or str(error))
            self.ended.set_result(1)
            return
        finally:
            for end in ends:
                end.close()
        self._death = os.pidfd_open(self._process.pid)
        asyncio.get_running_loop().add_reader(self._death, self._on_death)
        try:
            write_order(self._control_socket, self._order)
        except OSError:
            return  # it has ended already
        await self._control.open(self._control_socket)
        self._serving = own_task(self._control.run())

    def _fail(self, why: str) -> None:
        if not self.started.done():
            remedy = "see the lines above in the log"
            self.started.set_exception(StartupError("UMB440", "a worker did not start", why, remedy))
            self.started.exception()  # a successor's start is awaited by nobody

    async def _on_started(self, _: Any) -> None:
        if not self.started.done():
            self.started.set_result(None)

    async def _on_failed(self, fault: list[str]) -> None:
        if not self.started.done():
            self.started.set_exception(StartupError(*fault))
            self.started.exception()

    def _on_death(self) -> None:
        assert self._process is not None
        asyncio.get_running_loop().remove_reader(self._death)
        os.close(self._death)
        status = self._process.wait()
        self._fail(f"it ended with {told(status)} before it served")
        if not self.ended.done():
            self.ended.set_result(status)

    async def look(self) -> None:
        """Take its report. One that does not answer keeps the last one."""
        await self._take_report(REPORT_SECONDS)

    async def hang(self) -> None:
        """Return when it answers no more. What it reports until then is not lost with it."""
        while await self._take_report(HANG_SECONDS):
            await asyncio.sleep(WATCH_SECONDS)
        if self._serving is None or self._serving.done():
            await asyncio.wait({self.ended}, timeout=EXITING_SECONDS)

    async def _take_report(self, seconds: float) -> bool:
        try:
            report = await self._control.ask("report", seconds=seconds)
        except QuestionFailed:
            return True
        except PeerGone:
            return False
        self.is_ready = report["ready"]
        self.agents = frozenset(report["agents"])
        self.tunnels = report["tunnels"]
        self.metrics = merged_metrics.parse(report["metrics"])
        self.brief = report["status"]
        return True

    async def status(self, most_tunnels: int) -> Document | None:
        """One that does not answer keeps its last status without lists; None: it has never reported."""
        try:
            return json.loads(await self._control.ask("status", most_tunnels))  # type: ignore[no-any-return]
        except (PeerGone, QuestionFailed):
            return self.brief

    async def tell(self, name: str, given: Any = None) -> None:
        try:
            await self._control.ask(name, given)
        except (PeerGone, QuestionFailed):
            pass  # it has ended, which is what was wanted

    async def profile(self, name: str, seconds: str, limit: float) -> tuple[int, bytes]:
        try:
            status, text = await self._control.ask("profile", [name, seconds], limit)
        except (PeerGone, QuestionFailed) as error:
            return 503, f"no answer from the worker: {error}\n".encode()
        return status, text.encode()

    def kill(self) -> None:
        if self._process is not None and not self.ended.done():
            self._process.send_signal(signal.SIGKILL)

    async def close(self) -> None:
        """Once it has ended."""
        for sock in (self.agents_socket, self.clients_socket):
            sock.close()
        if self._serving is not None:
            await end_task(self._serving)
        else:
            self._control_socket.close()


def told(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def _pair(kind: int) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    if kind == socket.SOCK_SEQPACKET:
        ours.setblocking(False)
    return ours, theirs


def _environment() -> dict[str, str]:
    """The worker must find the same package, wherever this process has it from."""
    found = [str(Path(umbilical.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, found))}
