"""Which agent a client's dial reaches, and that the client notices nothing of an agent that is lost on the way."""

import logging
from collections.abc import Callable

import pytest
from tests.support import packet_messages
from tests.support.fixture_types import Logged, Patch
from tests.support.in_process import RunningServer, Stage
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import ScriptedAgent, open_without_window
from tests.support.tunnel_client import DialRefused, receive_exactly

from umbilical.konnectivity.health import OWED_SECONDS, PROBE_ADDRESS, PROBE_SECONDS, UNANSWERED_IN_A_ROW

MODES = pytest.mark.parametrize("mode", ["http-connect", "grpc"])


def test_the_agent_on_the_destination_is_preferred_and_networks_are_a_strategy(stage: Stage) -> None:
    server = stage.start_server(strategies=("cidr", "default"))
    near = ScriptedAgent(server, "near", "ipv4=192.0.2.7")
    net = ScriptedAgent(server, "net", "cidr=10.0.0.0/8&host=elsewhere")
    near.carry(1, "192.0.2.7:10250")
    near.carry(2, "192.0.2.7:10250")
    net.carry(1, "10.1.2.3:443")
    net.carry(2, "[::ffff:10.1.2.3]:443")
    net.carry(3, "10.1.2.3:443")


def test_networks_that_are_none_are_told_once_and_the_agent_serves(stage: Stage, caplog: Logged) -> None:
    server = stage.start_server(strategies=("cidr", "default"))
    for _ in range(3):
        agent = ScriptedAgent(server, "a", "cidr=10.0.0.0/99")
        agent.carry(1, "10.0.0.1:1")
        agent.close()
        server.wait_for_agents(0)
    told = [message for message in caplog.messages if message.startswith("UMB413")]
    assert told == ["UMB413 agent=a: cidr identifiers that are not networks: '10.0.0.0/99'"]


@MODES
@pytest.mark.parametrize(
    "leave", [ScriptedAgent.close, lambda agent: agent.stream.finish()], ids=["is gone", "ends its stream"]
)
def test_a_dial_outlives_the_agent_that_had_it(
    stage: Stage, mode: str, leave: Callable[[ScriptedAgent], None], caplog: Logged
) -> None:
    caplog.set_level(logging.DEBUG, "umbilical")
    server = stage.start_server(mode)
    first = ScriptedAgent(server, "first")
    dial = server.frontend.dial("web:443")
    first.next_dial()
    second = ScriptedAgent(server, "second")
    leave(first)
    second.accept_dial(9)
    tunnel = dial.finish()
    second.send(packet_messages.data(9, b"hello"))
    assert receive_exactly(tunnel, 5) == b"hello"
    assert server.dial_failures() == {}
    second.send(packet_messages.close_response(9))
    assert tunnel.receive(1) == b""
    tunnel.close()
    server.wait_until_quiet()
    assert any("dial goes to another agent" in message for message in caplog.messages)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "umbilical.tunnels"]
    assert " agent=second target=web:443 " in line
    assert " redials=1 " in line


def test_a_dial_leaves_an_agent_that_takes_no_packets_within_its_time(
    stage: Stage, monkeypatch: Patch, caplog: Logged
) -> None:
    server = stage.start_server(dial_timeout_seconds=10.0)
    open_without_window(server)
    (stalled,) = server.server.core.links()
    dial = server.frontend.dial("web:443")
    stage.eventually(lambda: server.server.core.agents[stalled.key]._waiting_on is not None)
    other = ScriptedAgent(server, "other")
    stage.skip(5, monkeypatch)
    other.accept_dial(1)
    dial.finish()
    assert server.dial_failures() == {}
    assert any(message.startswith("UMB412 agent is last choice agent=stalled") for message in caplog.messages)
    other.carry(2)  # the stalled one has less to do, and is not asked
    stage.skip(5, monkeypatch)
    stage.eventually(lambda: stalled.key not in server.server.core.agents)  # a whole dial's time: it is retired


def test_a_dial_leaves_an_agent_that_answers_no_ping_long_before_its_time_is_over(stage: Stage, caplog: Logged) -> None:
    """A frozen process: its machine takes every byte. The path watch notices after some seconds of real time."""
    server = stage.start_server("grpc", dial_timeout_seconds=3600.0)
    frozen = ScriptedAgent(server, "frozen")
    dial = server.frontend.dial("web:443")
    frozen.next_dial()
    other = ScriptedAgent(server, "other")
    other.accept_dial(1)
    dial.finish()
    assert any(message.startswith("UMB412 agent is last choice agent=frozen") for message in caplog.messages)
    assert server.gauges().connect_streams == 2
    assert frozen.receive(PacketType.DIAL_CLS)


def _leave_unanswered(server: RunningServer, agent: ScriptedAgent, stage: Stage, monkeypatch: Patch) -> None:
    for _ in range(UNANSWERED_IN_A_ROW):
        dial = server.frontend.dial("web:443")
        agent.next_dial()
        stage.skip(10, monkeypatch)
        with pytest.raises(DialRefused):
            dial.finish()
        agent.receive(PacketType.DIAL_CLS)


def test_a_silent_agent_is_last_choice_until_it_answers(stage: Stage, monkeypatch: Patch, caplog: Logged) -> None:
    caplog.set_level(logging.INFO, "umbilical")
    server = stage.start_server("grpc", dial_timeout_seconds=10.0)
    silent = ScriptedAgent(server, "silent")
    _leave_unanswered(server, silent, stage, monkeypatch)
    (told,) = [message for message in caplog.messages if message.startswith("UMB412")]
    assert told.startswith("UMB412 agent is last choice agent=silent ")
    other = ScriptedAgent(server, "other")
    for connection_id in (1, 2, 3):
        other.carry(connection_id)
    stage.skip(PROBE_SECONDS, monkeypatch)
    question = silent.next_dial()
    assert question.address == PROBE_ADDRESS
    silent.send(packet_messages.dial_response(question.random, error="missing port in address"))
    stage.eventually(lambda: "agent is chosen again agent=silent: it answers dials again" in caplog.messages)
    silent.carry(1)


def test_our_own_agent_answers_the_question_at_once(stage: Stage, monkeypatch: Patch) -> None:
    """No resolver and no network is asked for it, and no client is in it."""
    server = stage.start_server(dial_timeout_seconds=10.0)
    stage.start_agent(server.agent_port, dial_timeout_seconds=3600.0)
    server.wait_for_agents()
    (link,) = server.server.core.links()
    for _ in range(UNANSWERED_IN_A_ROW):
        dial = server.frontend.dial("never.answered:1")
        stage.eventually(lambda: bool(link.pending))
        stage.skip(10, monkeypatch)
        with pytest.raises(DialRefused):
            dial.finish()
    stage.eventually(lambda: link.sick)
    stage.skip(PROBE_SECONDS, monkeypatch)
    stage.eventually(lambda: not link.sick)
    assert server.dial_failures() == {"backend_dial_timeout": UNANSWERED_IN_A_ROW}


def test_clients_that_give_up_tell_too_where_dials_have_no_time_limit(stage: Stage, monkeypatch: Patch) -> None:
    server = stage.start_server("grpc")
    silent = ScriptedAgent(server, "silent")
    for _ in range(UNANSWERED_IN_A_ROW):
        dial = server.frontend.dial("web:443")
        silent.next_dial()
        stage.skip(OWED_SECONDS, monkeypatch)
        dial.abandon()
        silent.receive(PacketType.DIAL_CLS)
    ScriptedAgent(server, "other").carry(1)
    ScriptedAgent(server, "another").carry(1)
