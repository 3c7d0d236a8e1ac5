"""The ports for clients: a limit on connections, one task for each, and a drain at the end.

The protocol is the service's part; this only counts connections and ends them.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from umbilical.fault import StartupError
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.relay import cut, part
from umbilical.proxies.settings import ListenerSettings
from umbilical.tunnel.daemon import open_streams
from umbilical.tunnel.descriptors import OUT_OF_FILES, OVER_SECONDS, Shortage
from umbilical.tunnel.listening import MOST_ACCEPTS_PER_TURN, listen_tcp
from umbilical.tunnel.settings import ListenAddress

logger = logging.getLogger(__name__)

READ_AHEAD_BYTES: Final = 32 * 1024
"""Reading from a client stops past twice this much until it is served; kept small because many may wait."""
EXHAUSTED_SECONDS: Final = 0.1
"""Pause after accept(2) found no free file; clients wait in the backlog."""
_NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class ConnectionService(Protocol):
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client; data written before it returns is still delivered.

        It may raise OSError and TimeoutError: the connection is then aborted.
        """
        ...

    def drain(self) -> None:
        """No more clients are accepted; close those that wait between requests."""
        ...


class ProxyListener:
    def __init__(self, settings: ListenerSettings, service: ConnectionService, metrics: ProxyMetrics) -> None:
        self._settings: Final = settings
        self._service: Final = service
        self._metrics: Final = metrics
        self._sockets: list[socket.socket] = []
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: Final = asyncio.Event()
        self._idle.set()
        self._logged_limit = False
        self._shortage: Final = Shortage()
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
        """Listen on every address, or on none. Raises StartupError, which names `what`."""
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
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
            loop.add_reader(sock, self._accept, sock)

    def _bind(self, address: ListenAddress, what: str) -> None:
        """Skip the default IPv6 address on a machine without IPv6."""
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
            client, peername = _accept(sock)
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            self._accept_failed(sock, error)
            return False
        if len(self._tasks) >= self._settings.max_connections:
            self._refuse(client, "limit")
            return True
        self._logged_limit = False
        self._own(self._serve(client, peername))
        return True

    def _refuse(self, client: socket.socket, reason: str) -> None:
        client.close()
        self._metrics.refused(reason)
        if reason == "limit" and not self._logged_limit:
            self._logged_limit = True
            most = self._settings.max_connections
            logger.warning("%d clients are connected, the limit of --max-connections: new connections are closed", most)

    def _accept_failed(self, sock: socket.socket, error: OSError) -> None:
        """Pause: the client waits in the backlog, and the loop would spin on it."""
        if error.errno not in OUT_OF_FILES:
            logger.warning("cannot accept a connection: %s", error.strerror or error)
            return
        loop = asyncio.get_running_loop()
        if self._shortage.refused(f"new clients wait: {error.strerror}", loop.time()):
            loop.call_later(OVER_SECONDS, self._check_shortage)
        loop.remove_reader(sock)
        self._paused[sock] = loop.call_later(EXHAUSTED_SECONDS, self._resume_accepting, sock)

    def _check_shortage(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._shortage.seconds_left(loop.time())
        if left > 0:
            loop.call_later(left, self._check_shortage)

    def _resume_accepting(self, sock: socket.socket) -> None:
        del self._paused[sock]
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

    async def _serve(self, client: socket.socket, peername: Any) -> None:
        try:
            reader, writer = await open_streams(client, READ_AHEAD_BYTES, peername)
        except OSError:
            return
        try:
            await self._service.serve(reader, writer)
            await part(reader, writer)
        except (OSError, TimeoutError):
            pass  # the client disconnected or was too slow
        except Exception as error:
            logger.exception("internal error in a connection: %r", error)
        finally:
            cut(writer)

    def stop_accepting(self) -> None:
        """Accept what is in the backlog, where clients already see a connection, then stop."""
        patient = self._settings.drain_seconds > 0
        for sock in self._sockets:
            self._stop_watching(sock)
            self._clear_backlog(sock, patient)
            sock.close()
        self._sockets = []
        self._service.drain()

    def _stop_watching(self, sock: socket.socket) -> None:
        if (timer := self._paused.pop(sock, None)) is not None:
            timer.cancel()
        else:
            asyncio.get_running_loop().remove_reader(sock)

    def _clear_backlog(self, sock: socket.socket, patient: bool) -> None:
        for _ in range(socket.SOMAXCONN):
            try:
                client, peername = _accept(sock)
            except OSError:
                return
            if patient and len(self._tasks) < self._settings.max_connections:
                self._own(self._serve(client, peername))
            else:
                self._refuse(client, "draining")

    async def until_idle(self) -> None:
        """Return when no client is connected."""
        await self._idle.wait()

    async def close(self) -> None:
        """Close all connections; may be called twice."""
        if self._sockets:
            self.stop_accepting()
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # transports close their sockets in the loop's next turn


def _accept(sock: socket.socket) -> tuple[socket.socket, Any]:
    """Return a non-blocking socket and its peer's address. Raises OSError."""
    # `accept` would read three properties per socket. It calls `_accept`, which typeshed does not declare.
    descriptor, peername = sock._accept()  # type: ignore[attr-defined]
    client = socket.socket(sock.family, socket.SOCK_STREAM, 0, descriptor)
    client.setblocking(False)
    return client, peername
