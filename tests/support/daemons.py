"""`run_server` and `run_agent` inside the test's own process: real signals, real ports, and the test as a coroutine."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.support.coroutines import PATIENCE_SECONDS
from tests.support.tunnel_client import Frontend
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import TunnelPki

from umbilical.tunnel.settings import (
    AgentSettings,
    FrontendMode,
    ListenAddress,
    ServerAddress,
    ServerSettings,
    TlsFiles,
    UnixFrontend,
)

Result = TypeVar("Result")


def server_settings(pki: TunnelPki, folder: Path, **settings: Any) -> ServerSettings:
    tls = TlsFiles(pki.server.certificate, pki.server.key, pki.authority.certificate_file)
    values: dict[str, Any] = {
        "server_id": "s",
        "frontend": UnixFrontend(folder / "frontend.sock"),
        "agent_listen": ListenAddress("127.0.0.1", free_port()),
        "agent_tls": tls,
        "mode": FrontendMode.HTTP_CONNECT,
        "health_listen": ListenAddress("127.0.0.1", free_port()),
        "admin_listen": ListenAddress("127.0.0.1", free_port()),
    }
    return ServerSettings(**(values | settings))


def agent_settings(pki: TunnelPki, server_port: int, **settings: Any) -> AgentSettings:
    values: dict[str, Any] = {
        "agent_id": "a",
        "servers": (ServerAddress("127.0.0.1", server_port),),
        "tls": TlsFiles(pki.agent.certificate, pki.agent.key, pki.authority.certificate_file),
        "sync_interval_seconds": 0.05,
        "sync_interval_cap_seconds": 0.2,
        "health_listen": ListenAddress("127.0.0.1", free_port()),
        "admin_listen": ListenAddress("127.0.0.1", free_port()),
    }
    return AgentSettings(**(values | settings))


def frontend_of(settings: ServerSettings) -> Frontend:
    assert isinstance(settings.frontend, UnixFrontend)
    return Frontend(settings.mode.value, unix_path=settings.frontend.path)


async def get(address: ListenAddress | UnixFrontend, path: str, host: str = "x", more: str = "") -> tuple[int, str]:
    """Status and body; (0, "") when nobody listens. `more` are further header lines."""
    try:
        if isinstance(address, UnixFrontend):
            reader, writer = await asyncio.open_unix_connection(address.path)
        else:
            reader, writer = await asyncio.open_connection(address.host, address.port)
    except OSError:
        return 0, ""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split(b" ")[1]), body.decode()


async def answers(address: ListenAddress, path: str, status: int) -> None:
    """Wait until a path answers so."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await get(address, path))[0] != status:
            await asyncio.sleep(0.01)


async def aside(work: Callable[[], Result]) -> Result:
    """Blocking work of the test, beside the loop."""
    return await asyncio.to_thread(work)


def kill_self(number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)
