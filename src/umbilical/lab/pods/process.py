"""The process of a container: started through `container_init`, watched by its pidfd, ended with all that came of it.

A container is its mount namespace: whoever lives in it belongs to it, sessions and parents notwithstanding.
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
# Mounts take milliseconds. Whatever hangs longer (a hostPath on a dead file server) will not get better.
SET_UP_SECONDS: Final = 60.0
# After SIGKILL the kernel needs no longer, unless the process hangs in a driver.
KILL_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.01
MAX_COMPLAINT: Final = 4096


class ContainerProcess:
    """One run of a container. `namespace` is an open descriptor of its mount namespace, closed when all is over."""

    def __init__(self, process: subprocess.Popen[bytes], namespace: int) -> None:
        self._process = process
        # Held open: the kernel gives the number of a namespace that is gone to the next one, and then another
        # container would be taken for this one.
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
        """Wait for the end; return the exit code, negative for a signal's number."""
        await self._ended.wait()
        return int(self._process.returncode)

    async def stop(self, grace_seconds: float) -> int:
        """Ask the first process to end, after the grace time end everything. Stopping twice is fine.

        Raises TimeoutError: something hangs in the kernel.
        """
        try:
            if self.is_running:
                self._process.send_signal(signal.SIGTERM)
                await self._ends_within(grace_seconds)
        finally:
            self._kill()
        deadline = time.monotonic() + KILL_SECONDS
        # Not before the last one is gone are its ports free for the next run.
        while not await self._ends_within(POLL_SECONDS) or self._kill():
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} is there {KILL_SECONDS:g} s after SIGKILL")
            await asyncio.sleep(POLL_SECONDS)
        self._forget_namespace()
        return int(self._process.returncode)

    async def _ends_within(self, seconds: float) -> bool:
        # Not by asyncio.timeout: before Python 3.11.4 it does not work in a task that was cancelled, as ours was.
        waiting = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({waiting}, timeout=seconds)
        finally:
            waiting.cancel()
        return not self.is_running

    def _kill(self) -> bool:
        """Kill all that is left; return whether there was anything."""
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
    """Start a container; return when its command runs. Raises PodError: UMB832, no root or no such command."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            process = _start_init(plan, theirs.fileno(), log)
        news = _News(ours)
        try:
            async with asyncio.timeout(SET_UP_SECONDS):
                await news.until_closed()
        except BaseException as error:
            news.give_up(process)
            if isinstance(error, TimeoutError):
                raise _not_started(plan.command[0], f"nothing after {SET_UP_SECONDS:g} s") from None
            raise
    if news.namespace is None or news.complaint:
        news.give_up(process)
        raise _not_started(plan.command[0], news.complaint or "it ended before it had a root")
    return ContainerProcess(process, news.namespace)


class _News:
    """What `container_init` tells: its mount namespace as soon as it has one, and what went wrong.

    Its end of the socket is closed by the exec of the container's command, or by its own end.
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
    """Kill every process of a mount namespace; return whether there was any."""
    found = members(namespace)
    for pid in found:
        kill(pid)
    return bool(found)


def kill(pid: int) -> None:
    """End a process at once; one that is gone is fine."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def members(namespace: int) -> list[int]:
    """List the processes of a mount namespace, given by an open descriptor of it."""
    wanted = os.fstat(namespace)
    return [pid for pid in _pids() if _is_in(pid, wanted)]


def left_by(owner: str) -> list[int]:
    """List the processes in containers that bear the owner's mark, whoever started them."""
    return [pid for pid in _pids() if _root_mount(pid) == owner]


def _root_mount(pid: int) -> str:
    """Return the name under which a process's root was mounted: proc(5), mountinfo."""
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
    # A file in memory: a plan may be longer than a pipe holds, and there are secrets in it.
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
    return PodError("UMB832", f"container process {program} is not started", why, remedy)
