"""The process of a container: started by `container_init`, watched by its pidfd, stopped with all its descendants.

The mount namespace defines a container: every process in it belongs to the container.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from umbilical.fault import PodError
from umbilical.lab.pods.container_plan import ContainerPlan

INIT: Final = "umbilical.lab.pods.container_init"
# Mounts take milliseconds; longer means e.g. a hostPath on a dead file server.
SET_UP_SECONDS: Final = 60.0
# Enough for the kernel after SIGKILL, unless the process hangs in a driver.
KILL_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.01
MAX_COMPLAINT: Final = 4096


class ContainerProcess:
    """One run of a container. `namespace` is an open descriptor of its mount namespace; `stop` closes it."""

    def __init__(self, process: subprocess.Popen[bytes], namespace: int) -> None:
        self._process = process
        # Kept open: the kernel reuses the number of a namespace that is gone, and another container would be mistaken
        # for this one.
        self._namespace: int | None = namespace
        self._ended = asyncio.Event()
        self._descriptor = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._reap)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    async def ended(self) -> int:
        """Wait for the exit; return its code, negative for a signal."""
        await self._ended.wait()
        return int(self._process.returncode)

    async def stop(self, grace_seconds: float) -> int:
        """Send SIGTERM to the first process, after the grace period SIGKILL to all. Idempotent.

        Raises TimeoutError: a process hangs in the kernel.
        """
        try:
            if self.is_running:
                self._process.send_signal(signal.SIGTERM)
                await self._ends_within(grace_seconds)
        finally:
            self._kill()
        deadline = time.monotonic() + KILL_SECONDS
        # Its ports are free for the next run only when the last process is gone.
        while not await self._ends_within(POLL_SECONDS) or self._kill():
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} still exists {KILL_SECONDS:g} s after SIGKILL")
            await asyncio.sleep(POLL_SECONDS)
        self._forget_namespace()
        return int(self._process.returncode)

    async def _ends_within(self, seconds: float) -> bool:
        # asyncio.timeout does not work in a cancelled task before Python 3.11.4.
        waiting = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({waiting}, timeout=seconds)
        finally:
            waiting.cancel()
        return not self.is_running

    def _kill(self) -> bool:
        """Kill all remaining processes; return whether there were any."""
        if self.is_running:
            self._process.kill()
        return self._namespace is not None and kill_members(self._namespace)

    def _forget_namespace(self) -> None:
        if self._namespace is not None:
            os.close(self._namespace)
            self._namespace = None

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._process.wait()
        self._ended.set()


async def launch(plan: ContainerPlan, log: Path) -> ContainerProcess:
    """Start a container; return when its command runs. Raises PodError: UMB832, root or command failed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            process = _start_init(plan, theirs.fileno(), log)
        report = _InitReport(ours)
        try:
            async with asyncio.timeout(SET_UP_SECONDS):
                await report.until_closed()
        except BaseException as error:
            report.give_up(process)
            if isinstance(error, TimeoutError):
                raise _not_started(plan.command[0], f"timed out after {SET_UP_SECONDS:g} s") from None
            raise
    if report.namespace is None or report.complaint:
        report.give_up(process)
        raise _not_started(plan.command[0], report.complaint or "it exited before its root was set up")
    return ContainerProcess(process, report.namespace)


class _InitReport:
    """Messages of `container_init`: its mount namespace, and the error if there is one.

    The exec of the container's command, or the exit, closes its end of the socket.
    """

    def __init__(self, channel: socket.socket) -> None:
        self.namespace: int | None = None
        self.complaint = ""
        self._channel = channel
        self._closed = asyncio.Event()
        channel.setblocking(False)

    async def until_closed(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._channel, self._read)
        try:
            await self._closed.wait()
        finally:
            loop.remove_reader(self._channel)

    def give_up(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        if self.namespace is not None:
            kill_members(self.namespace)
            os.close(self.namespace)

    def _read(self) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._channel, MAX_COMPLAINT, 1)
        except BlockingIOError:
            return
        if descriptors:
            self.namespace = descriptors[0]
        elif message:
            self.complaint = message.decode(errors="replace")
        else:
            self._closed.set()


def kill_members(namespace: int) -> bool:
    """Kill every process of a mount namespace; return whether there were any."""
    found = members(namespace)
    for pid in found:
        kill(pid)
    return bool(found)


def kill(pid: int) -> None:
    """Send SIGKILL; ignore a process that is gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def members(namespace: int) -> list[int]:
    """List the processes of a mount namespace, given as a descriptor."""
    wanted = os.fstat(namespace)
    return [pid for pid in _pids() if _is_in(pid, wanted)]


def left_by(owner: str) -> list[int]:
    """List the processes in containers with this owner, of any runner."""
    return [pid for pid in _pids() if _root_mount(pid) == owner]


def _root_mount(pid: int) -> str:
    """Return the source name of a process's root mount: proc(5), mountinfo."""
    try:
        lines = Path(f"/proc/{pid}/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        if fields.split()[4] == "/":
            return rest.split()[1]
    return ""


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _is_in(pid: int, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/ns/mnt"), wanted)
    except OSError:
        return False


def _start_init(plan: ContainerPlan, channel: int, log: Path) -> subprocess.Popen[bytes]:
    # A memfd: a plan may be longer than a pipe's buffer, and holds secrets.
    with (
        os.fdopen(os.memfd_create("plan", os.MFD_CLOEXEC), "w+b") as handed,
        os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab") as output,
    ):
        handed.write(plan.to_json())
        handed.seek(0)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", INIT, str(channel)],
            stdin=handed,
            stdout=output,
            stderr=output,
            pass_fds=(channel,),
            start_new_session=True,
        )


def _not_started(program: str, why: str) -> PodError:
    remedy = "check the container's command, mounts and image in the manifest"
    return PodError("UMB832", f"could not start container process {program}", why, remedy)
