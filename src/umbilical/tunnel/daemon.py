"""What all daemons share: tasks that they own, streams of accepted sockets, and the signals to stop and to reload."""

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Final

from umbilical.tunnel.socket_transport import open_transport

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def own_task(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    return asyncio.get_running_loop().create_task(work)


async def end_task(task: "asyncio.Task[Any]") -> None:
    """Cancel and wait. An exception of the task is not raised here: the task logs its own failures."""
    task.cancel()
    await asyncio.wait({task})


async def open_streams(
    sock: socket.socket, limit: int, peername: Any = None, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Give asyncio a socket that was accepted; with `tls` the handshake follows. Raises OSError, with the socket
    closed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport: asyncio.Transport
    try:
        if tls is None:
            transport = await open_transport(sock, protocol, peername)
        else:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock, ssl=tls)
    except BaseException:
        sock.close()
        raise
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class StopRequests:
    """Catches SIGTERM and SIGINT in the running loop, until `close`."""

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


def reload_on_hangup(stack: AsyncExitStack, reload: Callable[[], None]) -> None:
    """Call `reload` at each SIGHUP, which otherwise ends a process, until the stack closes."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload)
    stack.callback(loop.remove_signal_handler, signal.SIGHUP)
