"""An agent with several servers: all at once, each address on its own, names that move, rolling restarts."""

import logging
import socket
import threading
from typing import Any, Final

import pytest
from tests.support import packet_messages
from tests.support.fixture_types import Logged, Patch
from tests.support.in_process import PATIENCE_SECONDS, RunningAgent, Stage, echo
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import GOAWAY, ScriptedServer, dial_through, expect, framed, say_goodbye
from tests.support.tunnel_pair import free_port

from umbilical.tunnel.server_targets import LOOK_AGAIN_SECONDS, MISSING_SECONDS
from umbilical.tunnel.settings import ListenAddress, ServerAddress

QUIET_SECONDS: Final = 0.3
"""Several intervals of the sync loop: every due dial has been made by then."""
RARELY: Final[dict[str, Any]] = {"sync_interval_seconds": 3600.0, "sync_interval_cap_seconds": 3600.0}
"""No beat comes in the life of a test: what happens, happens at once."""


def servers(agent: RunningAgent) -> list[str]:
    return agent.stage.call(lambda: sorted(agent.agent._links))


def long_ago(agent: RunningAgent) -> None:
    """As if no attempt had been made lately, so that the next one needs not wait for the beat."""
    for target in agent.agent._book.targets():
        target.attempted_at = float("-inf")


def is_left_alone(server: ScriptedServer) -> bool:
    server._listener.settimeout(QUIET_SECONDS)
    try:
        server.accept_channel()
    except TimeoutError:
        return True
    return False


def test_an_agent_connects_to_all_its_servers_whatever_count_they_announce(stage: Stage) -> None:
    running = [stage.start_server() for _ in range(3)]
    agent = stage.start_agent(*(server.agent_port for server in running), **RARELY)
    agent.wait_for_servers("server-0", "server-1", "server-2")
    assert agent.gauges().open_server_connections == 3
    assert agent.gauges().known_server_count == 1
    endpoint = stage.endpoint().serve(echo)
    for server in running:
        server.wait_for_agents()
        server.frontend.open(endpoint.address).close()


def test_an_agent_may_be_ready_only_with_all_servers(stage: Stage) -> None:
    first, port = stage.start_server(), free_port()
    choosy = stage.start_agent(first.agent_port, port, ready_servers="all")
    easy = stage.start_agent(first.agent_port, port)
    easy.wait_until_ready()
    choosy.wait_for_servers("server-0")
    assert not stage.call(choosy.agent.is_ready)
    assert stage.call(choosy.agent.why_unready) == f"servers connected: 1 of 1, not reached: 127.0.0.1:{port}"
    second = stage.start_server(agent_listen=ListenAddress("127.0.0.1", port))
    choosy.wait_until_ready()
    stage.call(second.server.close)
    stage.eventually(lambda: not choosy.agent.is_ready())
    assert stage.call(easy.agent.is_ready)


def test_a_silent_server_delays_no_other(stage: Stage) -> None:
    silent, live = ScriptedServer(stage), ScriptedServer(stage)
    agent = stage.start_agent(silent.port, live.port, **RARELY)
    silent.accept_call()
    live.accept("live")
    agent.wait_for_servers("live")


def test_a_dead_server_is_tried_on_its_own_and_found_when_it_comes(stage: Stage) -> None:
    live, gone = ScriptedServer(stage), ScriptedServer(stage)
    gone._listener.close()
    agent = stage.start_agent(live.port, gone.port)
    live.accept("live")
    agent.wait_for_servers("live")
    ScriptedServer(stage, port=gone.port).accept("late")
    agent.wait_for_servers("late", "live")
    assert is_left_alone(live)


def test_two_addresses_of_one_server_hold_the_older_link_and_are_not_dialled_again(stage: Stage) -> None:
    first, second = ScriptedServer(stage), ScriptedServer(stage)
    agent = stage.start_agent(first.port, second.port)
    older = first.accept("same")
    agent.wait_for_servers("same")
    (link,) = stage.call(lambda: list(agent.agent._links.values()))
    second.accept("same").wait_for_end()
    stage.eventually(lambda: all(target.links == {link} for target in agent.agent._book.targets()))
    assert is_left_alone(second)
    assert is_left_alone(first)
    assert stage.call(lambda: list(agent.agent._links.values())) == [link]
    for server in (first, second):
        server._listener.settimeout(PATIENCE_SECONDS)
    older.channel.close()
    first.accept("one")
    second.accept("two")
    agent.wait_for_servers("one", "two")


def test_an_address_that_stays_dead_is_reported_once_while_another_serves(stage: Stage, caplog: Logged) -> None:
    caplog.set_level(logging.DEBUG)
    live, gone = ScriptedServer(stage), ScriptedServer(stage)
    gone._listener.close()
    agent = stage.start_agent(live.port, gone.port)
    live.accept("live")
    agent.wait_for_servers("live")
    caplog.clear()
    text = f"cannot connect to server=127.0.0.1:{gone.port}: TCP: dial"
    stage.eventually(lambda: caplog.text.count(text) >= 4)
    failures = [record.levelno for record in caplog.records if text in record.getMessage()]
    assert failures.count(logging.WARNING) <= 1


@pytest.fixture
def names(monkeypatch: Patch) -> dict[str, list[str]]:
    """Answers of the resolver by name, changed by tests. IP addresses resolve to themselves."""
    answers: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def look_up(host: str, port: int, **options: Any) -> list[Any]:
        found = answers.get(host, [host])
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [entry for address in found for entry in real(address, port, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return answers


def two_of_one_name(stage: Stage) -> tuple[ScriptedServer, ScriptedServer]:
    """On two addresses of this machine, with one port; their certificate is for `localhost`."""
    one = ScriptedServer(stage)
    return one, ScriptedServer(stage, host="127.0.0.2", port=one.port)


def start_named(stage: Stage, port: int, **settings: Any) -> RunningAgent:
    return stage.start_agent(port, servers=(ServerAddress("localhost", port),), **settings)


def test_a_server_that_its_name_lost_is_drained_and_left_when_idle(
    stage: Stage, names: dict[str, list[str]], monkeypatch: Patch
) -> None:
    one, two = two_of_one_name(stage)
    names["localhost"] = ["127.0.0.1", "127.0.0.2"]
    agent = start_named(stage, one.port, drain_linger_seconds=0.01)
    old = one.accept("one")
    two.accept("two")
    agent.wait_for_servers("one", "two")
    connection_id = dial_through(old, stage.endpoint().serve(echo).address)
    names["localhost"].remove("127.0.0.1")
    stage.skip(LOOK_AGAIN_SECONDS + 1, monkeypatch)
    stage.eventually(lambda: any(target.missing_since is not None for target in agent.agent._book.targets()))
    assert servers(agent) == ["one", "two"], "resolvers rotate their answers: one is not enough"
    stage.skip(MISSING_SECONDS + 1, monkeypatch)
    agent.wait_for_servers("two")
    expect(old, PacketType.DRAIN)
    old.send(packet_messages.data(connection_id, b"still served"))
    assert expect(old, PacketType.DATA).data.data == b"still served"
    old.send(packet_messages.close_request(connection_id))
    expect(old, PacketType.CLOSE_RSP)
    old.wait_for_end()


def test_the_last_server_is_kept_although_nothing_leads_to_it_any_more(
    stage: Stage, names: dict[str, list[str]], monkeypatch: Patch
) -> None:
    one, two = two_of_one_name(stage)
    two._listener.close()
    names["localhost"] = ["127.0.0.1"]
    agent = start_named(stage, one.port, drain_linger_seconds=0.01)
    stream = one.accept("one")
    agent.wait_for_servers("one")
    names["localhost"][:] = ["127.0.0.2"]
    stage.skip(LOOK_AGAIN_SECONDS + 1, monkeypatch)
    stage.eventually(lambda: len(agent.agent._book.targets()) == 2)
    stage.skip(MISSING_SECONDS + 1, monkeypatch)
    stage.eventually(lambda: len(agent.agent._book.targets()) == 1)
    dial_through(stream, stage.endpoint().serve(echo).address)
    assert agent.gauges().open_server_connections == 1


def test_a_name_that_is_not_known_is_reported_and_looked_up_again(
    stage: Stage, names: dict[str, list[str]], caplog: Logged
) -> None:
    server = ScriptedServer(stage)
    names["localhost"] = []
    agent = start_named(stage, server.port)
    text = f"UMB314 cannot connect to server=localhost:{server.port}: TCP: lookup localhost: Name or service not known"
    stage.eventually(lambda: caplog.text.count(text) >= 2)
    names["localhost"].append("127.0.0.1")
    server.accept("found")
    agent.wait_for_servers("found")


def test_a_lookup_that_hangs_delays_no_other_server(
    stage: Stage, names: dict[str, list[str]], monkeypatch: Patch
) -> None:
    answered, quick = threading.Event(), socket.getaddrinfo

    def look_up(host: str, port: int, **options: Any) -> list[Any]:
        if host == "localhost":
            answered.wait(PATIENCE_SECONDS)
        return list(quick(host, port, **options))

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    names["localhost"] = ["127.0.0.1"]
    live, slow = ScriptedServer(stage), ScriptedServer(stage)
    given = (ServerAddress("localhost", slow.port), ServerAddress("127.0.0.1", live.port))
    agent = stage.start_agent(live.port, servers=given)
    live.accept("live")
    agent.wait_for_servers("live")
    answered.set()
    slow.accept("slow")
    agent.wait_for_servers("live", "slow")


def test_a_lookup_that_is_never_answered_is_reported(stage: Stage, caplog: Logged, monkeypatch: Patch) -> None:
    answered = threading.Event()
    stage.leftovers.callback(answered.set)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [answered.wait(PATIENCE_SECONDS)])
    agent = start_named(stage, 1)
    stage.eventually(lambda: agent.agent._book.sources()[0].is_busy)
    stage.skip(21, monkeypatch)
    stage.eventually(lambda: "TCP: lookup localhost: no answer within 20 s" in caplog.text)
    assert "UMB314" in caplog.text


def test_behind_a_proxy_the_proxy_looks_the_name_up(stage: Stage, monkeypatch: Patch) -> None:
    proxy = stage.endpoint()
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
    stage.start_agent(0, servers=(ServerAddress("konnectivity.example", 8091),))
    asked = b""
    sock = proxy.accept()
    while not asked.endswith(b"\r\n\r\n"):
        asked += sock.recv(1)
    assert asked.startswith(b"CONNECT konnectivity.example:8091 HTTP/1.1\r\n")


def test_a_server_that_leaves_is_dialled_again_at_once_on_its_own_address(stage: Stage) -> None:
    first, second = ScriptedServer(stage), ScriptedServer(stage)
    agent = stage.start_agent(first.port, second.port, **RARELY)
    old = first.accept("one")
    second.accept("two")
    agent.wait_for_servers("one", "two")
    dial_through(old, stage.endpoint().serve(echo).address)
    stage.call(lambda: long_ago(agent))
    say_goodbye(old)
    first.accept("one-again")
    agent.wait_for_servers("one-again", "two")
    assert agent.gauges().open_endpoint_connections == 1, "its tunnel goes on"
    assert is_left_alone(second)


def test_a_dial_that_comes_right_behind_a_goodbye_is_served(stage: Stage) -> None:
    """The server had accepted its client before it was stopped."""
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port, **RARELY)
    old = server.accept("one")
    agent.wait_until_ready()
    request = packet_messages.dial_request(stage.endpoint().serve(echo).address, 7)
    http2 = old.channel.http2
    http2.send_data(old.stream_id, framed(request))
    old.channel.socket.sendall(GOAWAY + http2.data_to_send())
    connection_id = expect(old, PacketType.DIAL_RSP).dialResponse.connectID
    old.send(packet_messages.data(connection_id, b"served"))
    assert expect(old, PacketType.DATA).data.data == b"served"


def test_a_drained_agent_notifies_every_server_and_dials_none(stage: Stage) -> None:
    first, second, third = (ScriptedServer(stage) for _ in range(3))
    third._listener.close()
    agent = stage.start_agent(first.port, second.port, third.port)
    streams = [first.accept("one"), second.accept("two")]
    agent.wait_for_servers("one", "two")
    stage.call(agent.agent.drain)
    for stream in streams:
        expect(stream, PacketType.DRAIN)
    streams[0].channel.close()
    agent.wait_for_servers("two")
    assert is_left_alone(first)
    assert is_left_alone(ScriptedServer(stage, port=third.port))
    dial_through(streams[1], stage.endpoint().serve(echo).address)
