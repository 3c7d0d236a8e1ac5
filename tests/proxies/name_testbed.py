"""A scripted tunnel, a manual clock, and recorded metrics."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from tests.support.dns_server import ScriptedDns

from umbilical.dialer.failure import DialFailed, DialReason
from umbilical.dialer.settings import DialerSettings, UnixServer
from umbilical.dialer.streams import Streams
from umbilical.fault import ApiUnreachable
from umbilical.proxies.services import ServiceName
from umbilical.proxies.settings import OutboundSettings, Resolution

Outcome = DialReason | Callable[[], Awaitable[Streams]]


async def until(fact: Callable[[], bool]) -> None:
    """Run the loop until the condition holds; `play` limits the time."""
    while not fact():
        await asyncio.sleep(0)


def outbound_settings(resolution: Resolution, **more: Any) -> OutboundSettings:
    dialer = DialerSettings((UnixServer(Path("/nowhere/frontend.sock")),))
    return OutboundSettings(dialer, resolution, **more)


class Counts:
    """Records calls to the metrics."""

    def __init__(self) -> None:
        self.dials: list[tuple[str, str]] = []
        self.lookups: list[tuple[str, str]] = []

    def dialled(self, route: str, result: str, seconds: float) -> None:
        assert seconds >= 0
        self.dials.append((route, result))

    def looked_up(self, source: str, result: str) -> None:
        self.lookups.append((source, result))


class ScriptedTunnel:
    """Opens or fails as scripted by host; any other host is an echo."""

    def __init__(self, outcomes: dict[str, Outcome] | None = None) -> None:
        self.outcomes: Final = outcomes or {}
        self.everything: Outcome | None = None
        """The failure of every dial, while it is set."""
        self.dials: list[tuple[str, int]] = []
        self._echoes: list[asyncio.StreamWriter] = []

    @property
    def hosts(self) -> list[str]:
        return [host for host, _ in self.dials]

    async def open(self, host: str, port: int) -> Streams:
        self.dials.append((host, port))
        outcome = self.everything or self.outcomes.get(host)
        if isinstance(outcome, DialReason):
            raise DialFailed(outcome, host, f"told to be {outcome.value}")
        if outcome is not None:
            return await outcome()
        return await self._echo()

    async def _echo(self) -> Streams:
        ours, theirs = await pipe()
        self._echoes.append(theirs[1])
        theirs[1].write(b"hello")
        return ours

    async def close(self) -> None:
        for writer in self._echoes:
            writer.close()


async def pipe() -> tuple[Streams, Streams]:
    """Both ends of a connection in this process."""
    left, right = socket.socketpair()
    return await asyncio.open_connection(sock=left), await asyncio.open_connection(sock=right)


class TurnedClock:
    """A manual clock; sleepers wake when the test turns it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self.seconds + seconds, woken)
        self.sleepers.append(entry)
        try:
            await woken
        finally:
            self.sleepers.remove(entry)

    def turn(self, seconds: float) -> None:
        self.seconds += seconds
        for due, woken in self.sleepers:
            if due <= self.seconds and not woken.done():
                woken.set_result(None)


class ScriptedServices:
    """The hosted cluster's API, as far as Services go."""

    def __init__(self, services: dict[ServiceName, tuple[str, ...]] | None = None) -> None:
        self.services: Final = services or {}
        self.is_down = False
        self.hold: asyncio.Event | None = None
        self.asked: list[ServiceName] = []
        self.closed = False

    async def cluster_ips(self, namespace: str, name: str) -> tuple[str, ...] | None:
        service = ServiceName(namespace, name)
        self.asked.append(service)
        if self.hold is not None:
            await self.hold.wait()
        if self.is_down:
            raise ApiUnreachable(f"GET {name}", "Connection refused")
        return self.services.get(service)

    async def close(self) -> None:
        self.closed = True


class DnsTunnel:
    """A tunnel to scripted DNS servers by address; any other address is refused."""

    def __init__(self, servers: dict[str, ScriptedDns | DialReason]) -> None:
        self.servers: Final = servers
        self.dials: list[tuple[str, int]] = []

    async def open(self, host: str, port: int) -> Streams:
        self.dials.append((host, port))
        server = self.servers.get(host, DialReason.REFUSED)
        if isinstance(server, DialReason):
            raise DialFailed(server, host, f"told to be {server.value}")
        ours, theirs = await pipe()
        server.serve(theirs)
        return ours

    async def close(self) -> None:
        for server in self.servers.values():
            if isinstance(server, ScriptedDns):
                await server.close()
