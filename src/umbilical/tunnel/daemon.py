"""What a server's and an agent's process share: their HTTP ports and the tasks that they own."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

from umbilical.fault import StartupError
from umbilical.tunnel.admin import HttpListener, Routes
from umbilical.tunnel.settings import ListenAddress


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


def own_task(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    return asyncio.get_running_loop().create_task(work)


async def end_task(task: "asyncio.Task[Any]") -> None:
    """Cancel and wait; its own failure was logged by itself or matters no more."""
    task.cancel()
    await asyncio.wait({task})
