"""A real server and real agents in this process, on the real event loop in a thread; the test plays everybody else.

`Stage.call` runs a function in the loop's thread, `Stage.stepping` holds that thread still and turns the data plane
by hand. Endpoints are listening sockets: the kernel lets dials succeed, the test decides what happens then.
"""

import asyncio
import concurrent.futures
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from tests.support.tunnel_client import Frontend, close_leftovers
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import TunnelPki

from umbilical.tunnel.agent import Agent
from umbilical.tunnel.dialing import Dial
from umbilical.tunnel.event_loop import EventLoop, new_event_loop
from umbilical.tunnel.interfaces import AgentAuthenticator
from umbilical.tunnel.metrics import AgentGauges, ServerGauges
from umbilical.tunnel.server import Server
from umbilical.tunnel.settings import (
    AgentSettings,
    FrontendMode,
    ListenAddress,
    ServerAddress,
    ServerSettings,
    TcpFrontend,
    TlsFiles,
    UnixFrontend,
)

PATIENCE_SECONDS: Final = 60.0
LOOPBACK: Final = ListenAddress("127.0.0.1", 0)
Result = TypeVar("Result")


class ScriptedResolver:
    """Answers no name until the test does; addresses never come here."""

    def __init__(self) -> None:
        self.asked: list[tuple[Dial, str, int]] = []

    def resolve(self, dial: Dial, host: str, port: int) -> None:
        self.asked.append((dial, host, port))

    def answer(self, address: str) -> None:
        """Resolve every open question to one IPv4 address; to be called in the loop's thread."""
        host, _, port = address.rpartition(":")
        for dial, _, _ in self.asked:
            dial.resolved([(socket.AF_INET, host, int(port))])
        self.asked.clear()


class RunningServer:
    """A server that listens, and where."""

    def __init__(self, stage: "Stage", settings: ServerSettings, authenticator: AgentAuthenticator | None) -> None:
        self.stage: Final = stage
        self.settings: Final = settings
        self.server: Final = Server(settings, stage.loop.data_plane, authenticator)
        stage.call(self.server.listen)
        self.agent_port: Final = stage.call(self.server.agent_port)
        self.frontend: Final = self._frontend()

    def _frontend(self) -> Frontend:
        frontend, mode = self.settings.frontend, self.settings.mode.value
        if isinstance(frontend, UnixFrontend):
            return Frontend(mode, unix_path=frontend.path)
        pki = self.stage.pki
        alpn = ["h2"] if mode == "grpc" else ["http/1.1"]
        context = pki.authority.client_context(pki.client, alpn)
        return Frontend(mode, port=self.stage.call(self.server.frontend_port), tls=context)

    def gauges(self) -> ServerGauges:
        return self.stage.call(self.server.core.gauges)

    def dial_failures(self) -> dict[str, int]:
        return self.stage.call(lambda: dict(self.server.core.metrics.dial_failures))

    def wait_for_agents(self, count: int = 1) -> None:
        self.stage.eventually(lambda: self.server.core.gauges().connect_streams == count)

    def wait_until_quiet(self) -> None:
        """Neither dial nor tunnel nor client is left."""
        self.stage.eventually(lambda: is_quiet(self.server.core.gauges()))


def is_quiet(gauges: ServerGauges) -> bool:
    busy = (gauges.proxy_streams, gauges.http_connections, gauges.pending_dials, gauges.established_connections)
    return busy == (0, 0, 0, 0)


class RunningAgent:
    def __init__(self, stage: "Stage", settings: AgentSettings) -> None:
        self.stage: Final = stage
        self.resolver: Final = ScriptedResolver()
        self.agent: Final = stage.call(lambda: Agent(settings, stage.loop.data_plane, self.resolver))
        self.connecting: Final = asyncio.run_coroutine_threadsafe(self.agent.keep_connected(), stage.loop)

    def gauges(self) -> AgentGauges:
        return self.stage.call(self.agent.gauges)

    def wait_until_ready(self) -> None:
        self.stage.eventually(self.agent.is_ready)

    def wait_until_idle(self) -> None:
        self.stage.eventually(self.agent.is_idle)

    def wait_for_servers(self, *server_ids: str) -> None:
        self.stage.eventually(lambda: sorted(self.agent._links) == sorted(server_ids))

    def stop(self) -> None:
        """As a dying process does: all sockets close, nothing is said."""
        self.connecting.cancel()
        with suppress(concurrent.futures.CancelledError):
            self.connecting.result(PATIENCE_SECONDS)
        self.stage.call(self.agent.close)


class Stage:
    def __init__(self, pki: TunnelPki, folder: Path) -> None:
        self.pki: Final = pki
        self.folder: Final = folder
        self.loop: Final[EventLoop] = new_event_loop()
        self.servers: Final[list[RunningServer]] = []
        self.agents: Final[list[RunningAgent]] = []
        self.leftovers: Final = ExitStack()
        """What a test opened here; closed before the servers and the agents are."""
        self._thread: Final = threading.Thread(target=self._run, name="stage")
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def start_server(
        self,
        mode: str = "http-connect",
        *,
        tcp: bool = False,
        authenticator: AgentAuthenticator | None = None,
        client_lists: Path | None = None,
        agent_lists: Path | None = None,
        **settings: Any,
    ) -> RunningServer:
        pki = self.pki
        files = (pki.server.certificate, pki.server.key, pki.authority.certificate_file)
        tls = TlsFiles(*files, agent_lists)
        frontend = (
            TcpFrontend(LOOPBACK, TlsFiles(*files, client_lists))
            if tcp
            else UnixFrontend(self.folder / f"{len(self.servers)}.sock")
        )
        values: dict[str, Any] = {"server_id": f"server-{len(self.servers)}", "agent_listen": LOOPBACK} | settings
        made = ServerSettings(frontend=frontend, agent_tls=tls, mode=FrontendMode(mode), **values)
        self.servers.append(RunningServer(self, made, authenticator))
        return self.servers[-1]

    def start_agent(self, server_port: int, *more_ports: int, **settings: Any) -> RunningAgent:
        """Connects at once; its beat is fast."""
        pki = self.pki
        values: dict[str, Any] = {
            "agent_id": f"agent-{len(self.agents)}",
            "tls": TlsFiles(pki.agent.certificate, pki.agent.key, pki.authority.certificate_file),
            "sync_interval_seconds": 0.05,
            "sync_interval_cap_seconds": 0.2,
        } | settings
        servers = tuple(ServerAddress("127.0.0.1", port) for port in (server_port, *more_ports))
        self.agents.append(RunningAgent(self, AgentSettings(**({"servers": servers} | values))))
        return self.agents[-1]

    def start_pair(self, mode: str = "http-connect", **settings: Any) -> tuple[RunningServer, RunningAgent]:
        """A server and its agent, connected."""
        server = self.start_server(mode, **settings)
        agent = self.start_agent(server.agent_port)
        server.wait_for_agents()
        agent.wait_until_ready()
        return server, agent

    def endpoint(self) -> "Endpoint":
        return self.leftovers.enter_context(listening())

    def call(self, function: Callable[[], Result]) -> Result:
        async def asked() -> Result:
            return function()

        return self.run(asked())

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_SECONDS)

    def eventually(self, fact: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the fact holds, asked in the loop's thread."""
        deadline = time.monotonic() + seconds
        while not self.call(fact):
            assert time.monotonic() < deadline, "it did not come true in time"
            time.sleep(0.002)

    @contextmanager
    def stepping(self) -> Iterator[Callable[[], None]]:
        """Hold the loop still; the value turns the data plane once."""
        held, free = threading.Event(), threading.Event()

        def hold() -> None:
            held.set()
            free.wait(PATIENCE_SECONDS)

        self.loop.call_soon_threadsafe(hold)
        assert held.wait(PATIENCE_SECONDS)
        try:
            yield lambda: _turn(self.loop)
        finally:
            free.set()

    def skip(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let so much time pass at once, for everything in this process that asks the monotonic clock."""
        clock = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: clock() + seconds)
        self.call(lambda: None)

    def stop(self) -> None:
        """Stop everybody. Whatever is still watched then was leaked by the server or an agent."""
        close_leftovers()
        self.leftovers.close()
        try:
            for agent in self.agents:
                agent.stop()
            for server in self.servers:
                self.call(server.server.close)
            self.eventually(lambda: self.watched() == 0)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(PATIENCE_SECONDS)
            self.loop.close()

    def watched(self) -> int:
        """How many descriptors the data plane watches."""
        return len(self.loop.data_plane._handlers)


def _turn(loop: EventLoop) -> None:
    loop.data_plane.turn(0.0)


Behaviour = Callable[[socket.socket], None]


class Endpoint:
    """A TCP destination. `accept` hands the next connection to the test, `serve` gives all to a behaviour."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener: Final = listener
        self._threads: Final[list[threading.Thread]] = []
        self._accepted: Final[list[socket.socket]] = []
        listener.settimeout(PATIENCE_SECONDS)
        self.address: Final = _address(listener)

    def accept(self) -> socket.socket:
        sock, _ = self._listener.accept()
        sock.settimeout(PATIENCE_SECONDS)
        self._accepted.append(sock)
        return sock

    def serve(self, behaviour: Behaviour) -> "Endpoint":
        self._start(self._serve, behaviour)
        return self

    def _serve(self, behaviour: Behaviour) -> None:
        with suppress(OSError):
            while True:
                self._start(_behave, behaviour, self.accept())

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, name="endpoint", daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits in accept
        self._listener.close()
        for sock in self._accepted:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(PATIENCE_SECONDS)
        for sock in self._accepted:
            sock.close()


def _behave(behaviour: Behaviour, sock: socket.socket) -> None:
    with sock, suppress(OSError):
        behaviour(sock)


@contextmanager
def listening() -> Iterator[Endpoint]:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        endpoint = Endpoint(listener)
        try:
            yield endpoint
        finally:
            endpoint.close()


def echo(sock: socket.socket) -> None:
    while octets := sock.recv(1 << 16):
        sock.sendall(octets)


def sink(sock: socket.socket) -> None:
    while sock.recv(1 << 16):
        pass


def banner(sock: socket.socket) -> None:
    sock.sendall(b"BANNER\r\n")
    sink(sock)


def source(size: int) -> Behaviour:
    """Send so many bytes, then end."""

    def behave(sock: socket.socket) -> None:
        chunk = bytes(1 << 16)
        for _ in range(size // len(chunk)):
            sock.sendall(chunk)
        sock.sendall(chunk[: size % len(chunk)])

    return behave


def read_to_end(sock: socket.socket) -> bytes:
    received = bytearray()
    while octets := sock.recv(1 << 18):
        received += octets
    return bytes(received)


def refused_address() -> str:
    """An address where nobody listens: no port that the kernel gives away, not even to the dial itself."""
    return f"127.0.0.1:{free_port()}"


def _address(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"
