"""The process of a container: started through `container_init`, watched by its pidfd, ended with all that came of it.

A container is its mount namespace: whoever lives in it belongs to it, sessions and parents notwithstanding.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from umbilical.lab.pods.container_plan import ContainerPlan
from umbilical.lab.pods.errors import PodError

INIT: Final = "umbilical.lab.pods.container_init"
# Mounts take milliseconds. Whatever hangs longer (a hostPath on a dead file server) will not get better.
SET_UP_SECONDS: Final = 60.0
# After SIGKILL the kernel needs no longer, unless the process hangs in a driver.
KILL_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.01
MAX_COMPLAINT: Final = 4096


class ContainerProcess:
    """One run of a container."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._namespace = _mount_namespace(process.pid)
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
        """Ask the first process to end, after the grace time end everything. Stopping twice is fine."""
        try:
            if self.is_running:
                self._process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(grace_seconds):
                    await self.ended()
        except TimeoutError:
            pass
        finally:
            self._kill()
        async with asyncio.timeout(KILL_SECONDS):
            code = await self.ended()
            # Not before the last one is gone are its ports free for the next run.
            while self._kill():
                await asyncio.sleep(POLL_SECONDS)
            return code

    def _kill(self) -> bool:
        """Kill all that is left; return whether there was anything."""
        if self.is_running:
            self._process.kill()
        left = members(self._namespace)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return bool(left)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._process.wait()
        self._ended.set()


async def launch(plan: ContainerPlan, log: Path) -> ContainerProcess:
    """Start a container; return when its own command runs.

    Raises:
        PodError: UMB832, its root could not be made, or there is no such command in it.
    """
    reading, writing = os.pipe()
    try:
        process = _start_init(plan, writing, log)
    finally:
        os.close(writing)
    try:
        async with asyncio.timeout(SET_UP_SECONDS):
            # The exec closes the other end, and so does whoever complains.
            complaint = await _read_until_closed(reading)
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        os.close(reading)
    if complaint:
        process.wait()
        raise _not_started(plan.command[0], complaint)
    return ContainerProcess(process)


def members(namespace: str) -> list[int]:
    """List the processes of a mount namespace."""
    return [pid for pid in _pids() if namespace and _mount_namespace(pid) == namespace]


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _mount_namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return ""


def _start_init(plan: ContainerPlan, complaints: int, log: Path) -> subprocess.Popen[bytes]:
    # A file in memory: a plan may be longer than a pipe holds, and there are secrets in it.
    with (
        os.fdopen(os.memfd_create("plan", os.MFD_CLOEXEC), "w+b") as handed,
        os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab") as output,
    ):
        handed.write(plan.to_json())
        handed.seek(0)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", INIT, str(complaints)],
            stdin=handed,
            stdout=output,
            stderr=output,
            pass_fds=(complaints,),
            start_new_session=True,
        )


async def _read_until_closed(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()
    chunks: list[bytes] = []

    def read() -> None:
        chunk = os.read(descriptor, MAX_COMPLAINT)
        chunks.append(chunk)
        if not chunk and not done.done():
            done.set_result(b"".join(chunks))

    loop.add_reader(descriptor, read)
    try:
        return await done
    finally:
        loop.remove_reader(descriptor)


def _not_started(program: str, complaint: bytes) -> PodError:
    try:
        why = str(json.loads(complaint)["why"])
    except (ValueError, KeyError, TypeError):
        why = complaint.decode(errors="replace")
    remedy = "check the container's command, mounts and image in the manifest"
    return PodError("UMB832", f"container process {program} is not started", why, remedy)
