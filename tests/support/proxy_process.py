"""`run_proxy` and `run_socks5` in the test's own process, with a scripted tunnel."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from tests.support.coroutines import PATIENCE_SECONDS
from tests.support.daemons import kill_self
from tests.support.proxy_testbed import LoopbackOpener, eventually

from umbilical.fault import StartupError
from umbilical.proxies.metrics import ProxyMetrics
from umbilical.proxies.process import ProxyTunnel


class LoopbackOutbound(LoopbackOpener):
    """Outbound side and tunnel in one."""

    is_tunnel_healthy = True

    def __init__(self) -> None:
        super().__init__()
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


class TunnelMaker:
    """Fails with scripted errors, then returns its outbound side."""

    def __init__(self, *faults: StartupError) -> None:
        self.outbound = LoopbackOutbound()
        self.faults = list(faults)
        self.calls = 0

    def __call__(self, metrics: ProxyMetrics) -> ProxyTunnel:
        self.calls += 1
        if self.faults:
            raise self.faults.pop(0)
        return ProxyTunnel(self.outbound, self.outbound)


@asynccontextmanager
async def running(engine: Coroutine[Any, Any, int], port: int) -> "AsyncIterator[asyncio.Task[int]]":
    """A process that listens on a port of loopback; stopped at the end if it still runs."""
    task = asyncio.get_running_loop().create_task(engine)
    await eventually(lambda: task.done() or _listens(port))
    try:
        yield task
    finally:
        if not task.done():
            kill_self()
        await asyncio.wait({task}, timeout=PATIENCE_SECONDS)
        if not task.done():
            kill_self()
            await asyncio.wait({task}, timeout=PATIENCE_SECONDS)


def _listens(port: int) -> bool:
    with open("/proc/self/net/tcp", encoding="ascii") as table:
        return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in list(table)[1:])
