"""The dialer for programs without asyncio: real sockets, served by one background thread.

with BlockingDialer(settings) as dialer:
    sock = dialer.open("10.128.2.5", 8443)
"""

import asyncio
import select
import socket
import threading
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from umbilical.dialer.dialer import Dialer
from umbilical.dialer.settings import DialerSettings
from umbilical.dialer.streams import Streams, plain_streams
from umbilical.tunnel.daemon import own_task

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK_BYTES: Final = 256 * 1024
GONE_SECONDS: Final = 1.0
"""Interval for checking whether a program that ended its side has closed the socket: no event reports it."""
STOP_SECONDS: Final = 30.0

Result = TypeVar("Result")


class TunnelFailure:
    """The error with which the tunnel behind a socket ended; empty while it is open and after an orderly end."""

    def __init__(self) -> None:
        self.failure = ""


class TunnelSocket(socket.socket):
    """One end of a socket pair. Reading from a broken tunnel raises an error instead of returning the end."""

    end: TunnelFailure = TunnelFailure()

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        octets = super().recv(size, flags)
        return octets if octets or not size else self._ended(b"")

    def recv_into(self, buffer: "WriteableBuffer", nbytes: int = 0, flags: int = 0, /) -> int:
        return super().recv_into(buffer, nbytes, flags) or self._ended(0)

    def _ended(self, nothing: Result) -> Result:
        if self.end.failure:
            raise ConnectionResetError(self.end.failure)
        return nothing


class BlockingDialer:
    """May be used from several threads."""

    def __init__(self, settings: DialerSettings) -> None:
        """Raises StartupError as `Dialer` does."""
        self._dialer: Final = Dialer(settings)
        self._buffer_bytes: Final = settings.buffer_bytes
        self._lock: Final = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pumps: Final[set[asyncio.Task[None]]] = set()
        self._dials: Final[set[asyncio.Task[Any]]] = set()
        self._closed = False

    def open(self, host: str, port: int, timeout: float | None = None) -> TunnelSocket:
        """Return a connected socket; `timeout` is for the dial and the socket. Raises DialFailed, TimeoutError."""
        dial = self._start_dial(host, port)
        try:
            sock = dial.result(timeout)
        except CancelledError:
            raise _is_closed() from None
        except BaseException:
            dial.cancel()
            dial.add_done_callback(_close_cancelled)
            raise
        sock.settimeout(timeout)
        return sock

    def close(self) -> None:
        """End every connection that was opened here, and the thread."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._end(), loop).result(STOP_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_SECONDS)
        loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start_dial(self, host: str, port: int) -> "Future[TunnelSocket]":
        """Start a dial under the lock, so that `close` finds every dial that has begun."""
        with self._lock:
            if self._closed:
                raise _is_closed()
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # A daemon thread: a script that does not call `close` must be able to exit.
                self._thread = threading.Thread(target=self._loop.run_forever, name="umbilical-dialer", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(self._dial(host, port), self._loop)

    async def _end(self) -> None:
        while tasks := self._dials | self._pumps:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await self._dialer.close()
        for _ in range(3):  # aborted transports are closed in the loop's next turns
            await asyncio.sleep(0)
        await asyncio.get_running_loop().shutdown_default_executor()

    async def _dial(self, host: str, port: int) -> TunnelSocket:
        task = asyncio.current_task()
        assert task is not None
        self._dials.add(task)
        try:
            return await self._open(host, port)
        finally:
            self._dials.discard(task)

    async def _open(self, host: str, port: int) -> TunnelSocket:
        tunnel = await self._dialer.open(host, port)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        handed = TunnelSocket(theirs.family, theirs.type, theirs.proto, fileno=theirs.detach())
        handed.end = TunnelFailure()
        try:
            local = await plain_streams(ours, self._buffer_bytes)
        except BaseException:
            tunnel[1].transport.abort()
            ours.close()
            handed.close()
            raise
        pump = own_task(_pump(tunnel, local, handed.end))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)
        return handed


def _is_closed() -> RuntimeError:
    return RuntimeError("the dialer is closed")


def _close_cancelled(opened: "Future[TunnelSocket]") -> None:
    """Close the socket of a dial that was cancelled too late."""
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


async def _pump(tunnel: Streams, local: Streams, end: TunnelFailure) -> None:
    """Copy both directions until both have ended, the program has closed its socket, or the tunnel breaks."""
    writers = tunnel[1], local[1]
    try:
        await _relay(tunnel, local, end)
        for writer in writers:
            writer.close()
        for writer in writers:
            with suppress(OSError):
                await writer.wait_closed()
    finally:
        for writer in writers:
            writer.transport.abort()


async def _relay(tunnel: Streams, local: Streams, end: TunnelFailure) -> None:
    async with asyncio.TaskGroup() as group:
        down = group.create_task(_down(tunnel[0], local[1], end))
        await _up(tunnel[1], local)
        if _is_gone(local[1]) or not tunnel[1].can_write_eof():
            down.cancel()


async def _down(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, end: TunnelFailure) -> None:
    try:
        await _copy(reader, writer)
    except OSError as error:
        end.failure = str(error) or "the tunnel broke"
    writer.write_eof()


async def _up(writer: asyncio.StreamWriter, local: Streams) -> None:
    """Return when the program has closed its socket, or nothing more can be sent."""
    try:
        await _copy(local[0], writer)
    except OSError:
        return  # the other direction reports the cause to the program
    if writer.can_write_eof() and not _is_gone(local[1]):
        writer.write_eof()
        while not _is_gone(local[1]):
            await asyncio.sleep(GONE_SECONDS)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while octets := await reader.read(CHUNK_BYTES):
        writer.write(octets)
        await writer.drain()


def _is_gone(writer: asyncio.StreamWriter) -> bool:
    """Return whether both directions of the socket pair have ended, or the program has closed its end."""
    descriptor = writer.get_extra_info("socket").fileno()
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(mask & (select.POLLHUP | select.POLLERR) for _, mask in poll.poll(0))
