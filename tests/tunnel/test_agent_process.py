"""An agent from its start to its exit code, by real signals."""

import asyncio
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemons import PATIENCE_SECONDS, agent_settings, answers, aside, get, kill_self, play
from tests.support.in_process import Stage, echo, refused_address
from tests.support.tunnel_client import receive_exactly
from tests.support.tunnel_pki import TunnelPki

from umbilical.tunnel.agent_process import run_agent
from umbilical.tunnel.daemon import own_task
from umbilical.tunnel.errors import StartupError
from umbilical.tunnel.metrics import AgentMetrics
from umbilical.tunnel.settings import AgentSettings, ListenAddress, TlsFiles


class ScriptedCounter:
    def __init__(self) -> None:
        self.story: list[str] = []

    def __call__(self, metrics: AgentMetrics, on_change: Callable[[], None]) -> "ScriptedCounter":
        assert isinstance(metrics, AgentMetrics)
        on_change()  # as early as can be: nothing runs yet
        return self

    def published_addresses(self) -> Sequence[tuple[str, int]]:
        return ()

    def server_count(self) -> int | None:
        return None

    async def run(self) -> None:
        self.story.append("counting")
        try:
            await asyncio.Event().wait()
        finally:
            self.story.append("stopped")


def _nobody() -> int:
    return int(refused_address().rpartition(":")[2])


def test_health_answers_before_any_server_or_the_api_is_reached_o10(tunnel_pki: TunnelPki) -> None:
    """Upstream waits for its lease cache first, which may itself need the tunnel."""
    settings = agent_settings(tunnel_pki, _nobody(), drain_linger_seconds=0.01)
    counter = ScriptedCounter()

    async def script() -> None:
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

    play(script())
    assert counter.story == ["counting", "stopped"]


def test_a_drained_agent_serves_a_new_dial_and_leaves_after_the_linger_o6(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = stage.start_server()
    settings = agent_settings(stage.pki, server.agent_port, drain_linger_seconds=10.0)
    endpoint = stage.endpoint().serve(echo)

    async def script() -> None:
        agent = own_task(run_agent(settings))
        await answers(settings.health_listen, "/readyz", 200)
        kill_self()
        await aside(lambda: stage.eventually(lambda: all(link.draining for link in _links(server))))
        tunnel = await aside(lambda: server.frontend.open(endpoint.address))
        await aside(lambda: tunnel.send(b"hello"))
        assert await aside(lambda: receive_exactly(tunnel, 5)) == b"hello"
        await aside(lambda: stage.skip(11.0, monkeypatch))  # longer than the linger: a tunnel keeps it
        await asyncio.sleep(0.5)
        assert not agent.done()
        assert (await get(settings.health_listen, "/readyz"))[0] == 200
        await aside(tunnel.close)
        await aside(server.wait_until_quiet)
        await aside(lambda: stage.skip(11.0, monkeypatch))
        assert await asyncio.wait_for(agent, PATIENCE_SECONDS) == 0

    play(script())
    server.wait_for_agents(0)


def _links(server: Any) -> list[Any]:
    return list(server.server.exchange.links.values())


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_agent_at_once_o6(stage: Stage, second: signal.Signals) -> None:
    server = stage.start_server()
    settings = agent_settings(stage.pki, server.agent_port, drain_linger_seconds=1000.0)
    endpoint = stage.endpoint()

    async def script() -> None:
        agent = own_task(run_agent(settings))
        await answers(settings.health_listen, "/readyz", 200)
        tunnel = await aside(lambda: server.frontend.open(endpoint.address))
        kill_self()
        await aside(lambda: stage.eventually(lambda: all(link.draining for link in _links(server))))
        assert not agent.done()
        kill_self(second)
        assert await asyncio.wait_for(agent, PATIENCE_SECONDS) == 0
        assert await aside(lambda: tunnel.receive(1)) == b""

    play(script())


def test_a_drained_agent_that_reached_nobody_leaves_too_o6(tunnel_pki: TunnelPki) -> None:
    settings = agent_settings(tunnel_pki, _nobody(), drain_linger_seconds=0.05)

    async def script() -> None:
        agent = own_task(run_agent(settings))
        await answers(settings.health_listen, "/healthz", 200)
        kill_self()
        assert await asyncio.wait_for(agent, PATIENCE_SECONDS) == 0

    play(script())


def test_startup_failures_leave_nothing_behind_o11(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = ListenAddress("127.0.0.1", taken.getsockname()[1])
        faults: list[dict[str, Any]] = [
            {"health_listen": port},
            {"admin_listen": port},
            {"tls": TlsFiles(authority=tmp_path / "missing.crt")},
        ]
        for fault in faults:
            _fails_cleanly(agent_settings(tunnel_pki, _nobody(), **fault), taken=port)


def _fails_cleanly(settings: AgentSettings, taken: ListenAddress) -> None:
    counter = ScriptedCounter()

    async def script() -> None:
        with pytest.raises(StartupError) as caught:
            await run_agent(settings, count=counter)
        assert caught.value.code.startswith("UMB02")
        for address in {settings.health_listen, settings.admin_listen} - {taken}:
            assert await get(address, "/") == (0, "")

    play(script())
    assert counter.story == []
