"""The ports that clients connect to: bounded, each connection one owned task, and a drain at the end.

What a connection says is its service's business; this knows only how many there are and when they must be gone.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

from umbilical.fault import StartupError
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.relay import cut, part
from umbilical.proxies.settings import ListenerSettings
from umbilical.tunnel.listening import EXHAUSTED_SECONDS, MOST_ACCEPTS_PER_TURN, listen_tcp
from umbilical.tunnel.settings import ListenAddress

logger = logging.getLogger(__name__)

READ_AHEAD_BYTES: Final = 32 * 1024
"""Of a client that nobody reads from yet, its socket is stopped past twice this much: a crowd may do so at once."""
_OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class ConnectionService(Protocol):
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, from its first byte to its last; what is written when it returns is still delivered.

        It may raise OSError and TimeoutError: the client is cut off.
        """
        ...

    def drain(self) -> None:
        """From now on no client is coming; whoever keeps one waiting for its next request may let it go."""
        ...


class ProxyListener:
    def __init__(self, settings: ListenerSettings, service: ConnectionService, metrics: ProxyMetrics) -> None:
        self._settings: Final = settings
        self._service: Final = service
        self._metrics: Final = metrics
        self._sockets: list[socket.socket] = []
        self._resting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: Final = asyncio.Event()
        self._idle.set()
        self._told_limit = False
        metrics.connections = self.open_connections

    @property
    def is_listening(self) -> bool:
        return bool(self._sockets)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [sock.getsockname()[:2] for sock in self._sockets]

    def open_connections(self) -> int:
        return len(self._tasks)

    def listen(self, what: str) -> None:
        """Listen on every address, or on none. Raises StartupError; `what` names the listener in it."""
        loop = asyncio.get_running_loop()
        try:
            for address in self._settings.listen:
                self._bind(address, what)
        except StartupError:
            for sock in self._sockets:
                sock.close()
            self._sockets = []
            raise
        for sock in self._sockets:
            loop.add_reader(sock, self._accept, sock)

    def _bind(self, address: ListenAddress, what: str) -> None:
        """The IPv6 half of the default is passed over on a machine that has no IPv6."""
        try:
            self._sockets.append(listen_tcp(address, what))
        except StartupError as fault:
            cause = fault.__cause__
            absent = isinstance(cause, OSError) and cause.errno in _NO_SUCH_FAMILY
            if not (self._settings.ipv6_if_there and ":" in address.host and absent):
                raise
            logger.info("not listening on [%s]: this machine has no IPv6", address.host)

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(MOST_ACCEPTS_PER_TURN):
            if not self._accept_one(sock):
                return

    def _accept_one(self, sock: socket.socket) -> bool:
        try:
            client, _ = sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            self._accept_failed(sock, error)
            return False
        client.setblocking(False)
        if len(self._tasks) >= self._settings.max_connections:
            self._refuse(client, "limit")
            return True
        self._told_limit = False
        self._own(self._serve(client))
        return True

    def _refuse(self, client: socket.socket, reason: str) -> None:
        client.close()
        self._metrics.refused(reason)
        if reason == "limit" and not self._told_limit:
            self._told_limit = True
            most = self._settings.max_connections
            logger.warning("%d clients are connected, which is the limit: more are closed at once", most)

    def _accept_failed(self, sock: socket.socket, error: OSError) -> None:
        """The client waits in the backlog; without a rest the loop would spin on it."""
        if error.errno not in _OUT_OF_FILES:
            logger.warning("cannot accept a connection: %s", error.strerror or error)
            return
        logger.error("cannot accept connections: %s; resting", error.strerror)
        loop = asyncio.get_running_loop()
        loop.remove_reader(sock)
        self._resting[sock] = loop.call_later(EXHAUSTED_SECONDS, self._rested, sock)

    def _rested(self, sock: socket.socket) -> None:
        del self._resting[sock]
        asyncio.get_running_loop().add_reader(sock, self._accept, sock)

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        self._idle.clear()
        task.add_done_callback(self._left)

    def _left(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._idle.set()

    async def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=READ_AHEAD_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, client)
        except OSError:
            client.close()
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            await self._service.serve(reader, writer)
            await part(reader, writer)
        except (OSError, TimeoutError):
            pass  # the client is gone or too slow, and has nothing to hear
        except Exception as error:
            logger.exception("internal error in a connection: %r", error)
        finally:
            cut(writer)

    def stop_accepting(self) -> None:
        """Take whoever has connected already, for their system told them that we did; and then nobody."""
        patient = self._settings.drain_seconds > 0
        for sock in self._sockets:
            self._stop_watching(sock)
            self._clear_backlog(sock, patient)
            sock.close()
        self._sockets = []
        self._service.drain()

    def _stop_watching(self, sock: socket.socket) -> None:
        if (timer := self._resting.pop(sock, None)) is not None:
            timer.cancel()
        else:
            asyncio.get_running_loop().remove_reader(sock)

    def _clear_backlog(self, sock: socket.socket, patient: bool) -> None:
        for _ in range(socket.SOMAXCONN):
            try:
                client, _ = sock.accept()
            except OSError:
                return
            if patient and len(self._tasks) < self._settings.max_connections:
                client.setblocking(False)
                self._own(self._serve(client))
            else:
                self._refuse(client, "draining")

    async def until_idle(self) -> None:
        """Until the last client has left."""
        await self._idle.wait()

    async def close(self) -> None:
        """Nobody is left after this; twice is harmless."""
        if self._sockets:
            self.stop_accepting()
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # transports close their sockets in the loop's next turn
