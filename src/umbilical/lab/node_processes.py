"""How the keeper runs programs on nodes: to their end, or in the background with a log."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from umbilical.fault import LabError

STOP_SECONDS: Final = 5.0
# A remaining child may keep the output open for ever.
DRAIN_SECONDS: Final = 0.5
REAP_POLL_SECONDS: Final = 0.005
CHUNK_BYTES: Final = 65536
LEAST_SECONDS: Final = 5.0
"""A program that ended earlier than this after its start is not started again: it would end again."""


@dataclass(frozen=True)
class NodeProgram:
    """A command, starting with `nsenter` into a node, and its environment."""

    command: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class ProgramOutput:
    exit_code: int | None
    """None: timeout."""
    stdout: bytes
    stderr: bytes
    is_whole: bool = True
    """False: it printed too much and was killed."""


class BackgroundProcess:
    """A background program with a log."""

    def __init__(self, program: NodeProgram, log: Path, *, restarts: bool) -> None:
        self._program, self._log, self._restarts = program, log, restarts
        self._begin()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    async def stop(self, *, kill: bool) -> int:
        """End it, then kill the rest of its process group; return its exit code.

        Only the program itself gets SIGTERM, so that it can stop its children in its own way.
        """
        self._restarts = False
        if not kill:
            self._process.send_signal(signal.SIGTERM)
            await asyncio.wait([self._ended], timeout=STOP_SECONDS)
        # Also after an orderly end: it may have left children in its group.
        _signal_group(self._process, signal.SIGKILL)
        await self._ended
        return self._process.wait()

    def _begin(self) -> None:
        self._since = time.monotonic()
        self._process = _launch(self._program, self._log)
        self._ended = _watch(self._process)
        self._ended.add_done_callback(lambda _: self._restart())

    def _restart(self) -> None:
        """Start it again, as a service manager does; but a failure at the start must stay visible."""
        if self._restarts and time.monotonic() - self._since >= LEAST_SECONDS:
            with self._log.open("a") as log:
                log.write(f"umbilical: ended with {self.exit_code}, started again\n")
            self._begin()


def start(program: NodeProgram, log: Path, *, restarts: bool = False) -> BackgroundProcess:
    """Start it with both outputs appended to `log`, in an existing directory.

    `restarts`: whether it starts again after any end but `stop`.
    """
    return BackgroundProcess(program, log, restarts=restarts)


def _launch(program: NodeProgram, log: Path) -> subprocess.Popen[bytes]:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return _popen(program, subprocess.DEVNULL, descriptor, descriptor)
    finally:
        os.close(descriptor)


async def run(program: NodeProgram, stdin: bytes | None, timeout_seconds: float, limit_bytes: int) -> ProgramOutput:
    """Run it to its end; on timeout or cancellation its whole process group is killed."""
    source = _as_file(stdin)
    try:
        process = _popen(program, subprocess.DEVNULL if source is None else source, subprocess.PIPE, subprocess.PIPE)
    finally:
        if source is not None:
            os.close(source)
    try:
        return await _outcome(process, timeout_seconds, limit_bytes)
    finally:
        _signal_group(process, signal.SIGKILL)
        await _reap(process)


class _Pipe:
    """Collects one output of a program."""

    def __init__(self, limit_bytes: int) -> None:
        self.content = bytearray()
        self.is_whole = True
        self._limit_bytes = limit_bytes

    async def fill(self, reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            self.content += chunk
            if len(self.content) > self._limit_bytes:
                self.is_whole = False
                return


async def _outcome(process: subprocess.Popen[bytes], timeout_seconds: float, limit_bytes: int) -> ProgramOutput:
    pipes = [_Pipe(limit_bytes), _Pipe(limit_bytes)]
    deadline = time.monotonic() + timeout_seconds
    async with asyncio.TaskGroup() as group:
        streams = [await _reader(stream) for stream in (process.stdout, process.stderr)]
        readers = [group.create_task(pipe.fill(reader)) for pipe, (reader, _) in zip(pipes, streams, strict=True)]
        try:
            has_ended = await _wait(process, readers, pipes, deadline)
        finally:
            for task, (_, transport) in zip(readers, streams, strict=True):
                task.cancel()
                transport.close()
    is_whole = all(pipe.is_whole for pipe in pipes)
    stdout, stderr = (bytes(pipe.content[:limit_bytes]) for pipe in pipes)
    return ProgramOutput(process.poll() if has_ended else None, stdout, stderr, is_whole)


async def _wait(
    process: subprocess.Popen[bytes], readers: list[asyncio.Task[None]], pipes: list[_Pipe], deadline: float
) -> bool:
    """Wait for the end, too much output, or the deadline; return False on timeout."""
    ended = _watch(process)
    pending = {ended, *readers}
    while not ended.done():
        seconds = deadline - time.monotonic()
        done, pending = await asyncio.wait(pending, timeout=max(seconds, 0), return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return False
        if not all(pipe.is_whole for pipe in pipes):
            return True
    if any(not task.done() for task in readers):
        await asyncio.wait(readers, timeout=DRAIN_SECONDS)
    return True


async def _reader(stream: object) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stream)
    return reader, transport


def _popen(program: NodeProgram, stdin: int, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            program.command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=dict(program.environment),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        shown = " ".join(program.command)[:200]
        raise LabError(
            "UMB816", f"failed to run {shown!r}", str(error), "check its arguments and environment"
        ) from error


def _as_file(content: bytes | None) -> int | None:
    """Write stdin to a memory file, so that nothing has to feed a pipe."""
    if content is None:
        return None
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb", closefd=False) as stream:
        stream.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _watch(process: subprocess.Popen[bytes]) -> "asyncio.Future[None]":
    """Return a future that is done when the process has ended. Uses a pidfd: no thread, no signal handler."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    descriptor = os.pidfd_open(process.pid)

    def notice() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        process.poll()
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(descriptor, notice)
    return ended


async def _reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a killed process without blocking the loop: a hanging disk can delay its end."""
    deadline = time.monotonic() + STOP_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        await asyncio.sleep(REAP_POLL_SECONDS)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # Every program leads a session, so its pid is its group's id; the group can outlive it.
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass
