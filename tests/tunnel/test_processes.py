"""What both processes share: an HTTP port that opens or reports the error, and tasks that end with their owner."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support import packet_messages
from tests.support.coroutines import PATIENCE_SECONDS, play
from tests.support.daemons import agent_settings, answers, aside, frontend_of, get, kill_self, server_settings
from tests.support.in_process import Stage, echo, listening, refused_address
from tests.support.proxy_client_by_hand import ProxyClient
from tests.support.tunnel_client import Tunnel, assert_echoes
from tests.support.tunnel_pki import TunnelPki

from umbilical.fault import StartupError
from umbilical.tunnel.admin import AgentHealthRoutes
from umbilical.tunnel.agent_process import run_agent
from umbilical.tunnel.daemon import StopRequests, end_task, own_task
from umbilical.tunnel.http_server import open_http
from umbilical.tunnel.metrics import AgentMetrics, ServerMetrics
from umbilical.tunnel.server_process import run_server
from umbilical.tunnel.settings import FrontendMode, ListenAddress, ServerSettings, TlsFiles, UnixFrontend


def _routes() -> AgentHealthRoutes:
    return AgentHealthRoutes(lambda: True, lambda: b"")


async def test_a_port_that_is_taken_names_a_next_step() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with AsyncExitStack() as stack:
            with pytest.raises(StartupError) as caught:
                await open_http(stack, ListenAddress("127.0.0.1", port), _routes(), "health")
    error = caught.value
    assert (error.code, error.what) == ("UMB023", f"cannot listen on 127.0.0.1:{port} for health")
    assert error.why.startswith("Address already in use")
    assert error.remedy == f"see who holds the port: ss -ltnp 'sport = :{port}'"


async def test_ending_a_task_waits_for_its_end_and_hides_its_failure() -> None:
    async def stubborn(story: list[str]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            story.append("cleaned up")

    async def failing() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("too late to matter") from None

    story: list[str] = []
    first, second = own_task(stubborn(story)), own_task(failing())
    await asyncio.sleep(0)
    await end_task(first)
    assert story == ["cleaned up"]
    await end_task(second)
    assert isinstance(second.exception(), OSError)


class Scripted:
    """Notes when it runs and when it is stopped."""

    begun = ""

    def __init__(self) -> None:
        self.story: list[str] = []

    async def run(self) -> None:
        self.story.append(self.begun)
        try:
            await asyncio.Event().wait()
        finally:
            self.story.append("stopped")


class ScriptedCounter(Scripted):
    begun = "counting"

    def __call__(self, metrics: AgentMetrics, on_change: Callable[[], None]) -> "ScriptedCounter":
        assert isinstance(metrics, AgentMetrics)
        on_change()  # as early as can be: nothing runs yet
        return self

    def published_addresses(self) -> Sequence[tuple[str, int]]:
        return ()

    def published_ids(self) -> dict[tuple[str, int], set[str]]:
        return {}

    def server_count(self) -> int | None:
        return None


def _nobody() -> int:
    return int(refused_address().rpartition(":")[2])


async def test_health_answers_before_any_server_or_the_api_is_reached(tunnel_pki: TunnelPki) -> None:
    """Upstream waits for its lease cache first, which may itself need the tunnel."""
    settings = agent_settings(tunnel_pki, _nobody(), drain_linger_seconds=0.01)
    counter = ScriptedCounter()

    agent = own_task(run_agent(settings, count=counter))
    await answers(settings.health_listen, "/healthz", 200)
    status, body = await get(settings.health_listen, "/readyz")
    assert status == 503
    assert body == "[+]ping ok\n[-]server-connected failed: no servers connected\n"
    _, metrics = await get(settings.health_listen, "/metrics")
    assert "konnectivity_network_proxy_agent_open_server_connections 0" in metrics
    assert (await get(settings.admin_listen, "/metrics"))[0] == 301
    kill_self()
    assert await agent == 0
    assert await get(settings.health_listen, "/healthz") == (0, "")
    assert counter.story == ["counting", "stopped"]


async def test_a_drained_agent_serves_a_new_dial_and_leaves_after_the_linger(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = stage.start_server()
    settings = agent_settings(stage.pki, server.agent_port, drain_linger_seconds=10.0)
    endpoint = stage.endpoint().serve(echo)

    agent = own_task(run_agent(settings))
    await answers(settings.health_listen, "/readyz", 200)
    kill_self()
    await aside(lambda: stage.eventually(lambda: all(link.draining for link in _links(server))))
    tunnel = await aside(lambda: server.frontend.open(endpoint.address))
    await aside(lambda: assert_echoes(tunnel))
    await aside(lambda: stage.skip(11.0, monkeypatch))  # longer than the linger: a tunnel keeps it
    await asyncio.sleep(0.5)
    assert not agent.done()
    assert (await get(settings.health_listen, "/readyz"))[0] == 200
    await aside(tunnel.close)
    await aside(server.wait_until_quiet)
    await aside(lambda: stage.skip(11.0, monkeypatch))
    assert await asyncio.wait_for(agent, PATIENCE_SECONDS) == 0
    server.wait_for_agents(0)


def _links(server: Any) -> list[Any]:
    return list(server.server.core.links())


async def _ends_with(server: asyncio.Task[int], tunnel: Tunnel) -> None:
    """The server lets the tunnel go on, and ends when that ends."""
    await aside(lambda: assert_echoes(tunnel))
    assert not server.done()
    tunnel.close()
    assert await server == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_the_agent_at_once(stage: Stage, second: signal.Signals) -> None:
    server = stage.start_server()
    settings = agent_settings(stage.pki, server.agent_port, drain_linger_seconds=1000.0)
    endpoint = stage.endpoint()

    agent = own_task(run_agent(settings))
    await answers(settings.health_listen, "/readyz", 200)
    tunnel = await aside(lambda: server.frontend.open(endpoint.address))
    kill_self()
    await aside(lambda: stage.eventually(lambda: all(link.draining for link in _links(server))))
    assert not agent.done()
    kill_self(second)
    assert await asyncio.wait_for(agent, PATIENCE_SECONDS) == 0
    assert await aside(lambda: tunnel.receive(1)) == b""


def _fails_cleanly(
    start: Coroutine[Any, Any, int], *listens: ListenAddress | UnixFrontend, taken: ListenAddress
) -> None:
    async def script() -> None:
        with pytest.raises(StartupError) as caught:
            await start
        assert caught.value.code.startswith("UMB02")
        for address in set(listens) - {taken}:
            assert await get(address, "/") == (0, "")

    play(script())


def test_startup_failures_leave_nothing_behind(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    counter = ScriptedCounter()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = ListenAddress("127.0.0.1", taken.getsockname()[1])
        missing = TlsFiles(authority=tmp_path / "missing.crt")
        faults: list[dict[str, Any]] = [{"health_listen": port}, {"admin_listen": port}, {"tls": missing}]
        for fault in faults:
            settings = agent_settings(tunnel_pki, _nobody(), **fault)
            start = run_agent(settings, count=counter)
            _fails_cleanly(start, settings.health_listen, settings.admin_listen, taken=port)
    assert counter.story == []


class ScriptedPublisher(Scripted):
    """Notes also when the lease is taken away."""

    begun = "published"

    def __call__(self, metrics: ServerMetrics) -> "ScriptedPublisher":
        assert isinstance(metrics, ServerMetrics)
        return self

    async def withdraw(self) -> None:
        self.story.append("withdrawn")

    def describe(self) -> list[dict[str, object]]:
        return []


async def test_a_server_serves_and_leaves_on_the_first_signal(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    settings = server_settings(tunnel_pki, tmp_path)
    publisher = ScriptedPublisher()

    server = own_task(run_server(settings, None, publish=publisher))
    await answers(settings.health_listen, "/healthz", 200)
    assert await get(settings.health_listen, "/readyz") == (500, "no connection to any proxy agent")
    assert "konnectivity_network_proxy_server_ready_backends" in (await get(settings.admin_listen, "/metrics"))[1]
    assert publisher.story == ["published"]
    kill_self()
    assert await server == 0
    assert await get(settings.health_listen, "/healthz") == (0, "")
    assert await get(settings.admin_listen, "/metrics") == (0, "")
    assert publisher.story == ["published", "stopped", "withdrawn"]
    assert not (tmp_path / "frontend.sock").exists()


def test_startup_failures_leave_nothing_behind_in_the_process(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    publisher = ScriptedPublisher()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = ListenAddress("127.0.0.1", taken.getsockname()[1])
        faults: list[dict[str, Any]] = [
            {"health_listen": port},
            {"admin_listen": port},
            {"agent_listen": port},
            {"frontend": UnixFrontend(tmp_path / "no" / "folder" / "x.sock")},
            {"agent_tls": TlsFiles(tmp_path / "missing.crt", tmp_path / "missing.key")},
        ]
        for fault in faults:
            settings = server_settings(tunnel_pki, tmp_path, **fault)
            start = run_server(settings, None, publish=publisher)
            listens = (settings.health_listen, settings.admin_listen, settings.agent_listen)
            _fails_cleanly(start, *listens, taken=port)
    assert publisher.story == []
    assert list(tmp_path.iterdir()) == []


@asynccontextmanager
async def serving(
    stage: Stage, folder: Path, publish: ScriptedPublisher | None = None, **settings: Any
) -> AsyncIterator[tuple[asyncio.Task[int], ServerSettings, Tunnel]]:
    """A server with an agent, and a tunnel to an echo."""
    made = server_settings(stage.pki, folder, **settings)
    server = own_task(run_server(made, None, publish=publish))
    stage.start_agent(made.agent_listen.port)
    with listening() as endpoint:
        await answers(made.health_listen, "/readyz", 200)
        yield server, made, await aside(lambda: frontend_of(made).open(endpoint.serve(echo).address))


async def test_a_graceful_leave_is_unready_at_once_and_lets_a_tunnel_end(stage: Stage, tmp_path: Path) -> None:
    async with serving(stage, tmp_path, graceful_shutdown_seconds=1000.0) as (server, settings, tunnel):
        kill_self()
        await answers(settings.health_listen, "/readyz", 500)
        assert (await get(settings.health_listen, "/healthz"))[0] == 200
        assert not (tmp_path / "frontend.sock").exists()
        await _ends_with(server, tunnel)


async def test_a_signal_sends_grpc_clients_elsewhere_at_once_and_their_tunnels_go_on(
    stage: Stage, tmp_path: Path
) -> None:
    settings = server_settings(stage.pki, tmp_path, graceful_shutdown_seconds=1000.0, mode=FrontendMode.GRPC)
    server = own_task(run_server(settings, None))
    stage.start_agent(settings.agent_listen.port)
    await answers(settings.health_listen, "/readyz", 200)
    with listening() as endpoint, frontend_of(settings).connect() as sock:
        client = ProxyClient(sock)
        stream = client.call()
        client.send(stream, packet_messages.dial_request(endpoint.serve(echo).address, 7))
        await aside(lambda: client.read_until("data", 1))
        kill_self()
        await aside(lambda: client.read_until("goaway", 2))
        assert [last for last, _ in client.goaways()] == [2**31 - 1, stream.stream_id]
        answer = client.packets(stream)[0].dialResponse
        client.send(stream, packet_messages.data(answer.connectID, b"still here"))
        await aside(lambda: client.read_until("data", 2))
        assert client.payload(stream) == [b"still here"]
        assert not server.done()
    assert await server == 0


async def test_a_leaving_server_withdraws_its_lease_before_it_waits_for_its_tunnels(
    stage: Stage, tmp_path: Path
) -> None:
    publisher = ScriptedPublisher()
    async with serving(stage, tmp_path, publisher, graceful_shutdown_seconds=1000.0) as (server, _, tunnel):
        kill_self()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while publisher.story != ["published", "stopped", "withdrawn"]:
                await asyncio.sleep(0.01)
        await _ends_with(server, tunnel)


async def test_an_api_that_hangs_does_not_delay_the_notice_to_agents(stage: Stage, tmp_path: Path) -> None:
    settings = server_settings(stage.pki, tmp_path, graceful_shutdown_seconds=1000.0)
    released = asyncio.Event()

    class Hanging(ScriptedPublisher):
        async def withdraw(self) -> None:
            await released.wait()
            self.story.append("withdrawn")

    publisher = Hanging()

    server = own_task(run_server(settings, None, publish=publisher))
    agent = stage.start_agent(settings.agent_listen.port)
    await aside(agent.wait_until_ready)
    kill_self()
    await aside(lambda: stage.eventually(lambda: not agent.agent.is_ready()))
    assert not server.done()
    released.set()
    assert await server == 0
    assert publisher.story == ["published", "stopped", "withdrawn"]


async def test_a_second_signal_ends_the_wait(stage: Stage, tmp_path: Path) -> None:
    async with serving(stage, tmp_path, graceful_shutdown_seconds=1000.0) as (server, settings, tunnel):
        kill_self()
        await answers(settings.health_listen, "/readyz", 500)
        kill_self(signal.SIGINT)
        assert await server == 1
        assert await aside(lambda: tunnel.receive(1)) == b""
        tunnel.close()


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_asks_and_the_second_insists(first: signal.Signals, second: signal.Signals) -> None:
    stop = StopRequests()
    try:
        await asyncio.sleep(0.01)
        assert not stop.first.is_set()
        os.kill(os.getpid(), first)
        await stop.first.wait()
        assert not stop.second.is_set()
        os.kill(os.getpid(), second)
        await stop.second.wait()
    finally:
        stop.close()


async def test_closing_gives_the_signals_back() -> None:
    stop = StopRequests()
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    stop.close()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
