"""What the processes share: HTTP ports for health and administration, the tasks that they own, and signals."""

import asyncio
import signal
import socket
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from http import HTTPStatus
from typing import Any, Final

from umbilical.fault import StartupError
from umbilical.tunnel import admin
from umbilical.tunnel.admin import Request, Response, Routes
from umbilical.tunnel.settings import ListenAddress
from umbilical.wire import http1
from umbilical.wire.errors import ProtocolViolation

MAX_CONNECTIONS: Final = 256
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def own_task(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    return asyncio.get_running_loop().create_task(work)


async def end_task(task: "asyncio.Task[Any]") -> None:
    """Cancel and wait; its own failure was logged by itself or matters no more."""
    task.cancel()
    await asyncio.wait({task})


class StopRequests:
    """Use within a running loop; `close` gives the signals back."""

    def __init__(self) -> None:
        self.first: Final = asyncio.Event()
        self.second: Final = asyncio.Event()
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._came)

    def _came(self) -> None:
        if self.first.is_set():
            self.second.set()
        self.first.set()

    def close(self) -> None:
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)


class HttpListener:
    """One listening port and the connections on it."""

    def __init__(self, address: ListenAddress, routes: Routes, max_connections: int = MAX_CONNECTIONS) -> None:
        self._address = address
        self._routes = routes
        self._max_connections = max_connections
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._server: asyncio.Server | None = None
        self.port = address.port
        """The port that is listened on; differs from the asked one if that was 0."""

    async def start(self) -> None:
        """Bind and listen. Raises OSError if that fails."""
        listening = await _bind(self._address)
        self.port = listening.getsockname()[1]
        self._server = await asyncio.start_server(self._accept, sock=listening, limit=admin.READ_BYTES)

    async def stop(self) -> None:
        """Stop listening and end every connection. Twice is harmless."""
        if self._server is None:
            return
        self._server.close()
        while tasks := list(self._connections):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await self._server.wait_closed()
        await asyncio.sleep(0)  # aborted transports close their sockets in the loop's next turn
        self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connection = _Connection(reader, writer, self._routes)
        # A crowd of idle scrapers must not keep a health probe out.
        if len(self._connections) >= self._max_connections and not self._drop_idle():
            writer.transport.abort()
            return
        self._connections[task] = connection
        try:
            await connection.run()
            await _finish(writer)
        except (asyncio.CancelledError, TimeoutError, OSError):
            pass  # only `stop` and `_drop_idle` cancel; a broken or slow client has nothing to hear
        finally:
            writer.transport.abort()
            del self._connections[task]

    def _drop_idle(self) -> bool:
        for task, connection in self._connections.items():
            if connection.is_idle:
                connection.is_idle = False
                task.cancel()
                return True
        return False


async def open_http(stack: AsyncExitStack, address: ListenAddress, routes: Routes, what: str) -> HttpListener:
    """Upstream only logs a port that it cannot open; nobody would probe it then, so we do not start."""
    listener = HttpListener(address, routes)
    try:
        await listener.start()
    except OSError as error:
        raise StartupError(
            "UMB023",
            f"cannot listen on {address.host or '*'}:{address.port} for {what}",
            error.strerror or str(error),
            f"see who holds the port: ss -ltnp 'sport = :{address.port}'",
        ) from error
    stack.push_async_callback(listener.stop)
    return listener


class _Connection:
    """One client, request after request. A request with a body, which no probe and no scraper sends, brings h11 in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, routes: Routes) -> None:
        self._reader = reader
        self._writer = writer
        self._routes = routes
        self._rest = b""
        """Bytes behind the last request: the next one has begun already."""
        self.is_idle = False

    async def run(self) -> None:
        while await self._serve_one():
            pass

    async def _serve_one(self) -> bool:
        """Serve one request; tell whether another may follow."""
        try:
            head, seen = await self._read_head()
        except ProtocolViolation as violation:
            await admin.write(self._writer, http1.violation_reply(violation))
            return False
        if head is None:
            return False
        if head.has_body:
            from umbilical.tunnel.http_bodies import BodyConnection

            await BodyConnection(self._reader, self._writer, self._routes, seen).run()
            return False
        request = admin.request_of(head.method, head.target, head.headers_host or "")
        response = await admin.answer(self._routes, request)
        await admin.write(self._writer, _response_bytes(request, response, head.version, head.keep_alive))
        return head.keep_alive

    async def _read_head(self) -> "tuple[http1.Http1Request | None, bytes]":
        """The next request's head and all bytes that were read for it; none when the client has ended."""
        parser = http1.Http1RequestReader(admin.MAX_HEAD_BYTES)
        data, self._rest = self._rest or await self._first_bytes(), b""
        seen = bytearray()
        async with asyncio.timeout(admin.HEAD_SECONDS):
            while data:
                seen += data
                head = parser.feed(data)
                if head is not None:
                    self._rest = parser.rest
                    return head, bytes(seen)
                data = await self._reader.read(admin.READ_BYTES)
        return None, b""

    async def _first_bytes(self) -> bytes:
        self.is_idle = True
        async with asyncio.timeout(admin.IDLE_SECONDS):
            data = await self._reader.read(admin.READ_BYTES)
        self.is_idle = False
        return data


def _response_bytes(request: Request, response: Response, version: str, keep_alive: bool) -> bytes:
    lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in admin.response_headers(response)]
    if not keep_alive:
        lines.append("Connection: close")
    elif version == "HTTP/1.0":
        lines.append("Connection: keep-alive")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return head if request.method == "HEAD" else head + response.body


async def _bind(address: ListenAddress) -> socket.socket:
    if not address.host:
        return _bind_everywhere(address.port)
    if (literal := _family_of(address.host)) is not None:
        # To look up what is an address already would start a thread and load the tables of international names.
        return socket.create_server((address.host, address.port), family=literal)
    found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    # As Go: the first IPv4 address of a name, or the first of any kind.
    family, _, _, _, where = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return socket.create_server(where[:2], family=family)


def _family_of(host: str) -> int | None:
    """The family of a host that is an address; None for names, and for addresses with a zone."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return family
    return None


def _bind_everywhere(port: int) -> socket.socket:
    """One socket for IPv4 and IPv6, as Go makes it; IPv4 alone where the kernel has no IPv6."""
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


async def _finish(writer: asyncio.StreamWriter) -> None:
    """Close, giving a client that reads a moment to take what was written."""
    writer.close()
    async with asyncio.timeout(5):
        await writer.wait_closed()
