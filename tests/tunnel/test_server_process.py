"""A server from its start to its exit code, by real signals."""

import asyncio
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemons import (
    PATIENCE_SECONDS,
    answers,
    aside,
    frontend_of,
    get,
    kill_self,
    play,
    server_settings,
)
from tests.support.in_process import Stage, echo, listening
from tests.support.tunnel_client import receive_exactly
from tests.support.tunnel_pki import TunnelPki

from umbilical.tunnel.daemon import own_task
from umbilical.tunnel.errors import StartupError
from umbilical.tunnel.metrics import ServerMetrics
from umbilical.tunnel.server_process import run_server
from umbilical.tunnel.settings import ListenAddress, ServerSettings, TlsFiles, UnixFrontend


class ScriptedPublisher:
    """Notes when it runs and when the lease is taken away."""

    def __init__(self) -> None:
        self.story: list[str] = []

    def __call__(self, metrics: ServerMetrics) -> "ScriptedPublisher":
        assert isinstance(metrics, ServerMetrics)
        return self

    async def run(self) -> None:
        self.story.append("published")
        try:
            await asyncio.Event().wait()
        finally:
            self.story.append("stopped")

    async def withdraw(self) -> None:
        self.story.append("withdrawn")


def test_a_server_serves_and_leaves_on_the_first_signal(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    settings = server_settings(tunnel_pki, tmp_path)
    publisher = ScriptedPublisher()

    async def script() -> None:
        server = own_task(run_server(settings, None, publish=publisher))
        await answers(settings.health_listen, "/healthz", 200)
        assert await get(settings.health_listen, "/readyz") == (500, "no connection to any proxy agent")
        assert "konnectivity_network_proxy_server_ready_backends" in (await get(settings.admin_listen, "/metrics"))[1]
        assert publisher.story == ["published"]
        kill_self()
        assert await server == 0
        assert await get(settings.health_listen, "/healthz") == (0, "")
        assert await get(settings.admin_listen, "/metrics") == (0, "")

    play(script())
    assert publisher.story == ["published", "stopped", "withdrawn"]
    assert not (tmp_path / "frontend.sock").exists()


def test_startup_failures_leave_nothing_behind_o11(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = ListenAddress("127.0.0.1", taken.getsockname()[1])
        nowhere = UnixFrontend(tmp_path / "no" / "folder" / "x.sock")
        missing = TlsFiles(tmp_path / "missing.crt", tmp_path / "missing.key")
        faults: list[dict[str, Any]] = [
            {"health_listen": port},
            {"admin_listen": port},
            {"agent_listen": port},
            {"frontend": nowhere},
            {"agent_tls": missing},
        ]
        for fault in faults:
            _fails_cleanly(server_settings(tunnel_pki, tmp_path, **fault), taken=port)
    assert list(tmp_path.iterdir()) == []


def _fails_cleanly(settings: ServerSettings, taken: ListenAddress) -> None:
    publisher = ScriptedPublisher()

    async def script() -> None:
        with pytest.raises(StartupError) as caught:
            await run_server(settings, None, publish=publisher)
        assert caught.value.code.startswith("UMB02")
        for address in {settings.health_listen, settings.admin_listen, settings.agent_listen} - {taken}:
            assert await get(address, "/") == (0, "")

    play(script())
    assert publisher.story == []


def test_a_graceful_leave_is_unready_at_once_and_lets_a_tunnel_end_o5(stage: Stage, tmp_path: Path) -> None:
    settings = server_settings(stage.pki, tmp_path, graceful_shutdown_seconds=PATIENCE_SECONDS)

    async def script() -> None:
        server = own_task(run_server(settings, None))
        stage.start_agent(settings.agent_listen.port)
        with listening() as endpoint:
            await answers(settings.health_listen, "/readyz", 200)
            endpoint.serve(echo)
            tunnel = await aside(lambda: frontend_of(settings).open(endpoint.address))
            kill_self()
            await answers(settings.health_listen, "/readyz", 500)
            assert (await get(settings.health_listen, "/healthz"))[0] == 200
            assert not (tmp_path / "frontend.sock").exists()
            await aside(lambda: tunnel.send(b"still here"))
            assert await aside(lambda: receive_exactly(tunnel, 10)) == b"still here"
            assert not server.done()
            tunnel.close()
            assert await server == 0

    play(script())


def test_a_leaving_server_withdraws_its_lease_before_it_waits_for_its_tunnels(stage: Stage, tmp_path: Path) -> None:
    settings = server_settings(stage.pki, tmp_path, graceful_shutdown_seconds=1000.0)
    publisher = ScriptedPublisher()

    async def script() -> None:
        server = own_task(run_server(settings, None, publish=publisher))
        stage.start_agent(settings.agent_listen.port)
        with listening() as endpoint:
            await answers(settings.health_listen, "/readyz", 200)
            tunnel = await aside(lambda: frontend_of(settings).open(endpoint.serve(echo).address))
            kill_self()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while publisher.story != ["published", "stopped", "withdrawn"]:
                    await asyncio.sleep(0.01)
            await aside(lambda: tunnel.send(b"still here"))
            assert await aside(lambda: receive_exactly(tunnel, 10)) == b"still here"
            assert not server.done()
            tunnel.close()
            assert await server == 0

    play(script())


def test_an_api_that_hangs_keeps_nobody_from_hearing_that_the_server_leaves(stage: Stage, tmp_path: Path) -> None:
    settings = server_settings(stage.pki, tmp_path, graceful_shutdown_seconds=1000.0)
    released = asyncio.Event()

    class Hanging(ScriptedPublisher):
        async def withdraw(self) -> None:
            await released.wait()
            self.story.append("withdrawn")

    publisher = Hanging()

    async def script() -> None:
        server = own_task(run_server(settings, None, publish=publisher))
        agent = stage.start_agent(settings.agent_listen.port)
        await aside(agent.wait_until_ready)
        kill_self()
        await aside(lambda: stage.eventually(lambda: not agent.agent.is_ready()))
        assert not server.done()
        released.set()
        assert await server == 0

    play(script())
    assert publisher.story == ["published", "stopped", "withdrawn"]


def test_a_second_signal_ends_the_patience(stage: Stage, tmp_path: Path) -> None:
    settings = server_settings(stage.pki, tmp_path, graceful_shutdown_seconds=1000.0)

    async def script() -> None:
        server = own_task(run_server(settings, None))
        stage.start_agent(settings.agent_listen.port)
        with listening() as endpoint:
            await answers(settings.health_listen, "/readyz", 200)
            tunnel = await aside(lambda: frontend_of(settings).open(endpoint.address))
            kill_self()
            await answers(settings.health_listen, "/readyz", 500)
            kill_self(signal.SIGINT)
            assert await server == 1
            assert await aside(lambda: tunnel.receive(1)) == b""
            tunnel.close()

    play(script())
