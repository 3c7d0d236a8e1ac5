"""An agent that knows servers by their leases: where they publish to be, and what it does when that changes."""

import asyncio
from typing import Any, Final

import pytest
from tests.support.in_process import RunningAgent, Stage
from tests.support.scripted_peers import ScriptedServer

from umbilical.tunnel.settings import ListenAddress, ServerAddress

RARELY: Final[dict[str, Any]] = {"sync_interval_seconds": 3600.0, "sync_interval_cap_seconds": 3600.0}
"""No beat comes in the life of a test: what happens, happens because of the news."""


class ScriptedLeases:
    """Says what the test says."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count
        self.addresses: list[tuple[str, int]] = []

    def server_count(self) -> int | None:
        return self.count

    def published_addresses(self) -> list[tuple[str, int]]:
        return list(self.addresses)

    async def run(self) -> None:
        await asyncio.Event().wait()


def start(stage: Stage, leases: ScriptedLeases, *given: int, **settings: Any) -> tuple[RunningAgent, ScriptedLeases]:
    """An agent with these leases and, unless ports are given, with nothing else to go by."""
    servers = tuple(ServerAddress("127.0.0.1", port) for port in given)
    agent = stage.start_agent(0, servers=servers, **settings)
    stage.call(lambda: setattr(agent.agent, "counter", leases))
    return agent, leases


def tell(agent: RunningAgent, leases: ScriptedLeases, *servers: ScriptedServer | tuple[str, int]) -> None:
    """Leases now publish these, and the agent hears of it."""

    def act() -> None:
        leases.addresses = [_address(server) for server in servers]
        leases.count = len(servers)
        agent.agent.leases_changed()

    agent.stage.call(act)


def _address(server: ScriptedServer | tuple[str, int]) -> tuple[str, int]:
    return server if isinstance(server, tuple) else ("127.0.0.1", server.port)


def wait_for(agent: RunningAgent, *server_ids: str) -> None:
    agent.stage.eventually(lambda: sorted(agent.agent._links) == sorted(server_ids))


def test_an_agent_needs_nothing_but_leases_and_hears_of_each_at_once(stage: Stage) -> None:
    one, two = ScriptedServer(stage), ScriptedServer(stage)
    agent, leases = start(stage, ScriptedLeases(), **RARELY)
    tell(agent, leases, one)
    one.accept("one")
    wait_for(agent, "one")
    tell(agent, leases, one, two)
    two.accept("two")
    wait_for(agent, "one", "two")
    gauges = agent.gauges()
    assert (gauges.open_server_connections, gauges.known_server_count) == (2, 2)


def test_a_server_that_comes_back_is_dialled_when_its_lease_is_written_not_when_the_back_off_ends(
    stage: Stage,
) -> None:
    gone = ScriptedServer(stage)
    gone._listener.close()
    agent, leases = start(stage, ScriptedLeases(), **RARELY)
    tell(agent, leases, gone)
    stage.eventually(lambda: any(target.is_failing for target in agent.agent._book.targets()))
    back = ScriptedServer(stage, port=gone.port)
    (target,) = agent.agent._book.targets()
    target.attempted_at = float("-inf")  # long ago
    tell(agent, leases, gone)
    back.accept("back")
    wait_for(agent, "back")


def test_a_dead_server_whose_lease_is_withdrawn_is_dialled_no_more(stage: Stage) -> None:
    live, gone = ScriptedServer(stage), ScriptedServer(stage)
    gone._listener.close()
    agent, leases = start(stage, ScriptedLeases())
    tell(agent, leases, live, gone)
    live.accept("live")
    stage.eventually(lambda: any(target.is_failing for target in agent.agent._book.targets()))
    tell(agent, leases, live)
    stage.eventually(lambda: [target.server.port for target in agent.agent._book.targets()] == [live.port])
    wait_for(agent, "live")


def test_a_server_that_publishes_no_address_is_reached_through_what_was_given(stage: Stage) -> None:
    balancer, direct = ScriptedServer(stage), ScriptedServer(stage)
    leases = ScriptedLeases(2)
    agent, _ = start(stage, leases, balancer.port)
    leases.addresses = [("127.0.0.1", direct.port)]
    stage.call(agent.agent.leases_changed)
    direct.accept("published")
    balancer.accept("published").wait_for_end()
    balancer.accept("silent")
    wait_for(agent, "published", "silent")


def test_the_certificate_of_a_published_address_must_be_for_that_host(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The certificate here is for 127.0.0.1 and localhost. Whoever can write leases is not believed more than that."""
    server = stage.start_server()
    elsewhere = stage.start_server(agent_listen=ListenAddress("127.0.0.3", 0))
    agent, leases = start(stage, ScriptedLeases())
    tell(agent, leases, ("127.0.0.3", elsewhere.agent_port), ("localhost", server.agent_port))
    wait_for(agent, "server-0")
    stage.eventually(lambda: f"UMB323 cannot connect to server=127.0.0.3:{elsewhere.agent_port}" in caplog.text)
    assert agent.gauges().open_server_connections == 1


def test_an_agent_without_any_server_says_so_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    agent, leases = start(stage, ScriptedLeases())
    stage.call(agent.agent.leases_changed)
    server = ScriptedServer(stage)
    assert "UMB207" not in caplog.text, "the leases are not listed yet"
    tell(agent, leases)
    stage.eventually(lambda: "UMB207 no server to connect to" in caplog.text)
    tell(agent, leases, server)
    server.accept("there")
    wait_for(agent, "there")
    assert caplog.text.count("UMB207") == 1
