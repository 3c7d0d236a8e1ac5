"""The agent stays connected: sync loop, duplicates, counts, back-off, tokens, drain."""

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support import packet_messages
from tests.support.in_process import RunningAgent, Stage, echo
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import ScriptedServer, dial_through, expect, say_goodbye

from umbilical.tunnel.settings import ListenAddress, ServerAddress, UnixFrontend


def test_failed_attempts_are_told_and_back_off(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port, sync_interval_seconds=0.02, sync_interval_cap_seconds=0.05)
    for _ in range(4):
        server.accept_channel().close()
    server.accept()
    agent.wait_until_ready()
    assert caplog.text.count(f"cannot connect to server=127.0.0.1:{server.port}") >= 4


def test_a_server_that_keeps_hanging_up_is_not_hammered(stage: Stage) -> None:
    """Every attempt succeeds and is lost at once; the beat of the sync loop still holds between two of them."""
    server = ScriptedServer(stage)
    began = time.monotonic()
    stage.start_agent(server.port, sync_interval_seconds=0.4, sync_interval_cap_seconds=10.0)
    for number in range(5):
        server.accept(f"s{number}").channel.close()
    assert time.monotonic() - began >= 4 * 0.4


def test_a_link_that_lived_is_replaced_without_waiting_for_the_beat(stage: Stage) -> None:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port, sync_interval_seconds=3600.0, sync_interval_cap_seconds=3600.0)
    stream = server.accept()
    agent.wait_until_ready()
    (target,) = agent.agent._book.targets()
    target.attempted_at = -3600.0  # long ago
    stream.channel.close()
    server.accept()


def test_a_server_that_says_nothing_is_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port)
    silent = server.accept_call()
    stage.skip(21, monkeypatch)
    server.accept()
    agent.wait_until_ready()
    silent.wait_for_end()


def test_an_agent_connects_until_it_holds_as_many_servers_as_they_announce(stage: Stage) -> None:
    balancer = ScriptedServer(stage)
    agent = stage.start_agent(balancer.port)
    balancer.accept("s1", 3)
    duplicate = balancer.accept("s1", 3)
    duplicate.wait_for_end()  # already held: this one is closed
    balancer.accept("s2", 3)
    balancer.accept("s3", 3)
    stage.eventually(lambda: agent.agent.gauges().open_server_connections == 3)
    assert agent.gauges().known_server_count == 3
    balancer._listener.settimeout(0.3)
    with pytest.raises(TimeoutError):
        balancer.accept_channel()


def test_sync_forever_keeps_looking(stage: Stage) -> None:
    balancer = ScriptedServer(stage)
    agent = stage.start_agent(balancer.port, sync_forever=True)
    balancer.accept("s1", 1)
    balancer.accept("s2", 1)
    balancer.accept("s1", 1).wait_for_end()
    stage.eventually(lambda: agent.agent.gauges().open_server_connections == 2)


def test_a_count_of_zero_does_not_keep_the_agent_away_for_ever(stage: Stage) -> None:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port)
    server.accept("s1", 0).channel.close()
    server.accept("s2", 0)
    stage.eventually(lambda: list(agent.agent._links) == ["s2"])


@pytest.mark.parametrize(
    ("source", "counted", "wanted"),
    [("default", None, 2), ("default", 5, 5), ("default", 0, 1), ("max", 1, 2), ("max", 4, 4), ("max", None, 2)],
)
def test_leases_and_announcements_are_weighed_as_configured(
    stage: Stage, source: str, counted: int | None, wanted: int
) -> None:
    server = stage.start_server(server_count=2)
    agent = stage.start_agent(server.agent_port, server_count_source=source)
    agent.agent.counter = ScriptedLeases(counted)
    agent.wait_until_ready()
    assert stage.call(agent.agent.server_count) == wanted
    assert agent.gauges().known_server_count == wanted


def test_the_late_end_of_an_old_link_does_not_remove_the_new_one(stage: Stage) -> None:
    """The server said goodbye and came back under its own name; only then the old connection ends."""
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port)
    old = server.accept("same")
    agent.wait_until_ready()
    endpoint = stage.endpoint().serve(echo)
    old_id = dial_through(old, endpoint.address)  # keeps the old link in use
    say_goodbye(old)
    new = server.accept("same")
    agent.wait_until_ready()
    connection_id = dial_through(new, endpoint.address)
    assert old_id == connection_id == 1
    old.channel.close()
    stage.eventually(lambda: agent.agent.gauges().open_endpoint_connections == 1)
    assert agent.agent.is_ready()
    new.send(packet_messages.data(connection_id, b"still here"))
    assert expect(new, PacketType.DATA).data.data == b"still here"


def test_the_token_file_is_read_again_for_every_connect_and_sent_as_it_is(stage: Stage, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    server = ScriptedServer(stage)
    stage.start_agent(server.port, token_path=token)
    stream = server.accept_call()
    assert stream.request_headers["authorization"] == "Bearer first"
    token.write_text("second")
    stream.channel.close()
    assert server.accept_call().request_headers["authorization"] == "Bearer second"


@pytest.mark.parametrize("content", [None, b"\xff\xfe secret"], ids=["missing", "not text"])
def test_a_token_file_that_cannot_be_read_is_told_and_tried_again(
    stage: Stage, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port, token_path=token)
    stage.eventually(lambda: f"service account token {token}: " in caplog.text)
    assert not agent.connecting.done()
    token.write_text("there")
    assert server.accept_call().request_headers["authorization"] == "Bearer there"
    assert "secret" not in caplog.text


RARELY: Final[dict[str, Any]] = {"sync_interval_seconds": 3600.0, "sync_interval_cap_seconds": 3600.0}
"""No beat comes in the life of a test: what happens, happens because of the news."""


class ScriptedLeases:
    """Says what the test says."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count
        self.addresses: list[tuple[str, int]] = []
        self.ids: dict[tuple[str, int], set[str]] = {}

    def server_count(self) -> int | None:
        return self.count

    def published_addresses(self) -> list[tuple[str, int]]:
        return list(self.addresses)

    def published_ids(self) -> dict[tuple[str, int], set[str]]:
        return self.ids

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


def test_an_agent_needs_nothing_but_leases_and_hears_of_each_at_once(stage: Stage) -> None:
    one, two = ScriptedServer(stage), ScriptedServer(stage)
    agent, leases = start(stage, ScriptedLeases(), **RARELY)
    tell(agent, leases, one)
    one.accept("one")
    agent.wait_for_servers("one")
    tell(agent, leases, one, two)
    two.accept("two")
    agent.wait_for_servers("one", "two")
    gauges = agent.gauges()
    assert (gauges.open_server_connections, gauges.known_server_count) == (2, 2)


def test_a_server_that_comes_back_is_dialled_when_its_lease_is_written_not_when_the_back_off_ends(stage: Stage) -> None:
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
    agent.wait_for_servers("back")


def test_a_dead_server_whose_lease_is_withdrawn_is_dialled_no_more(stage: Stage) -> None:
    live, gone = ScriptedServer(stage), ScriptedServer(stage)
    gone._listener.close()
    agent, leases = start(stage, ScriptedLeases())
    tell(agent, leases, live, gone)
    live.accept("live")
    stage.eventually(lambda: any(target.is_failing for target in agent.agent._book.targets()))
    tell(agent, leases, live)
    stage.eventually(lambda: [target.server.port for target in agent.agent._book.targets()] == [live.port])
    agent.wait_for_servers("live")


def test_a_server_that_publishes_no_address_is_reached_through_what_was_given(stage: Stage) -> None:
    balancer, direct = ScriptedServer(stage), ScriptedServer(stage)
    leases = ScriptedLeases(2)
    agent, _ = start(stage, leases, balancer.port)
    leases.addresses = [("127.0.0.1", direct.port)]
    stage.call(agent.agent.leases_changed)
    direct.accept("published")
    balancer.accept("published").wait_for_end()
    balancer.accept("silent")
    agent.wait_for_servers("published", "silent")


def test_behind_a_published_address_the_agent_searches_until_it_holds_every_id_that_is_published_there(
    stage: Stage,
) -> None:
    """The workers of a server, behind one port."""
    server = ScriptedServer(stage)
    agent, leases = start(stage, ScriptedLeases())
    leases.ids = {("127.0.0.1", server.port): {"s-0", "s-1", "s-2"}}
    tell(agent, leases, server)
    server.accept("s-1")
    server.accept("s-1").wait_for_end()
    server.accept("s-0")
    server.accept("s-1").wait_for_end()
    server.accept("s-2")
    agent.wait_for_servers("s-0", "s-1", "s-2")
    assert stage.call(lambda: agent.agent._book.dials_due(1e9, wants_more=True)) == []


def test_an_id_that_is_lost_is_searched_again_and_one_that_is_not_published_any_more_is_not(stage: Stage) -> None:
    server = ScriptedServer(stage)
    agent, leases = start(stage, ScriptedLeases())
    place = ("127.0.0.1", server.port)
    leases.ids = {place: {"s-0", "s-1"}}
    tell(agent, leases, server)
    server.accept("s-0")
    lost = server.accept("s-1")
    agent.wait_for_servers("s-0", "s-1")
    lost.channel.close()
    server.accept("s-0").wait_for_end()
    server.accept("s-1")
    agent.wait_for_servers("s-0", "s-1")
    leases.ids = {place: {"s-0"}}
    tell(agent, leases, server)
    stage.eventually(lambda: not any(source.hides_servers for source in agent.agent._book.sources()))


def test_the_certificate_of_a_published_address_must_be_for_that_host(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The certificate here is for 127.0.0.1 and localhost. Whoever can write leases is not believed more than that."""
    server = stage.start_server()
    elsewhere = stage.start_server(agent_listen=ListenAddress("127.0.0.3", 0))
    agent, leases = start(stage, ScriptedLeases())
    tell(agent, leases, ("127.0.0.3", elsewhere.agent_port), ("localhost", server.agent_port))
    agent.wait_for_servers("server-0")
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
    agent.wait_for_servers("there")
    assert caplog.text.count("UMB207") == 1


def test_the_gate_for_dials_knows_the_agents_own_ports(stage: Stage) -> None:
    places = {"health_listen": ListenAddress("", 9001), "admin_listen": ListenAddress("127.0.0.1", 9002)}
    assert stage.start_agent(1, **places).agent.gate.own_ports == {9001, 9002}
    socket_file = {"admin_listen": UnixFrontend(stage.folder / "admin.sock")}
    assert stage.start_agent(1, **(places | socket_file)).agent.gate.own_ports == {9001}
