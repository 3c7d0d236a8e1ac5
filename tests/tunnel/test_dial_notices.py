"""Dials that fail are told with their code, and a storm of them in a few lines."""

import os
import signal
import subprocess
import sys
import time
from typing import cast

import pytest
from tests.support import packet_messages
from tests.support.in_process import PATIENCE_SECONDS, Stage, refused_address
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import ScriptedAgent, expect, open_proxy_stream
from tests.support.tunnel_client import DialRefused

from umbilical.tunnel.agent_stream import AgentStream
from umbilical.tunnel.dial_notices import MAX_KINDS, REPEAT_SECONDS, DialNotices, Hush
from umbilical.tunnel.tcp_facts import TcpFacts


def notices(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.endswith("dial_notices")]


# ---------------------------------------------------------------------- not too often


def test_the_same_thing_is_said_once_in_a_while_with_how_often_it_was_kept_back() -> None:
    hush = Hush(10.0)
    assert [hush.due("a", 1000.0), hush.due("a", 1001.0), hush.due("a", 1009.9)] == [0, None, None]
    assert [hush.due("b", 1001.0), hush.due("a", 1010.0), hush.due("a", 1011.0)] == [0, 2, None]


def test_the_memory_of_what_was_said_is_bounded() -> None:
    hush = Hush()
    for number in range(3 * MAX_KINDS):
        assert hush.due(str(number), 1000.0) == 0
    assert len(hush._told) <= MAX_KINDS


def test_a_storm_is_a_line_for_each_endpoint_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    told = DialNotices()
    for number in range(100):
        told.refused("UMB401", "10.0.0.5:443", "a1", "connection refused", 1000.0 + number / 100)
    told.refused("UMB401", "10.0.0.6:443", "a1", "connection refused", 1002.0)
    told.refused("UMB401", "10.0.0.5:443", "a1", "connection refused", 1002.0 + REPEAT_SECONDS)
    assert notices(caplog) == [
        "UMB401 dial of 10.0.0.5:443 failed agent=a1: connection refused",
        "UMB401 dial of 10.0.0.6:443 failed agent=a1: connection refused",
        "UMB401 dial of 10.0.0.5:443 failed agent=a1: connection refused (99 more since the last such line)",
    ]


def test_without_agents_a_storm_of_dials_anywhere_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    told = DialNotices()
    for number in range(100):
        told.refused("UMB301", f"10.0.0.{number}:443", "-", "No agent available", 1000.0)
    assert len(notices(caplog)) == 1


def test_a_slow_dial_is_told_only_where_segments_were_lost_since_the_last_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = DialNotices()
    told.slow(1, "10.0.0.5:443", "a1", 0.8, None, 1000.0)
    told.slow(1, "10.0.0.5:443", "a1", 0.8, TcpFacts(0, 0, 50), 1000.0)
    assert notices(caplog) == []
    told.slow(1, "10.0.0.5:443", "a1", 0.8, TcpFacts(0, 4, 50), 1000.0)
    assert notices(caplog) == [
        "UMB409 dial of 10.0.0.5:443 took 0.8 s agent=a1: packets get lost, 4 of 50 segments to it had to be sent again"
    ]
    told.slow(1, "10.0.0.5:443", "a1", 0.8, TcpFacts(0, 4, 60), 1000.0 + 2 * REPEAT_SECONDS)
    assert len(notices(caplog)) == 1
    told.agent_gone(1)
    assert told._sent_again == {}


# ---------------------------------------------------------------------- from real dials


@pytest.mark.parametrize("mode", ["grpc", "http-connect"])
def test_a_dial_without_any_agent_is_told(stage: Stage, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "umbilical.tunnels")
    server = stage.start_server(mode)
    with pytest.raises(DialRefused, match="No agent available"):
        server.frontend.open("10.0.0.5:443")
    assert notices(caplog) == ["UMB301 dial of 10.0.0.5:443 failed agent=-: No agent available"]
    assert 'code=UMB301 end="No agent available"' in caplog.text


def test_a_dial_that_no_agent_may_carry_is_told_apart(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    server = stage.start_server(strategies=("destHost",))
    ScriptedAgent(server, identifiers="host=elsewhere")
    with pytest.raises(DialRefused, match="No agent available"):
        server.frontend.open("10.0.0.5:443")
    assert [line[:6] for line in notices(caplog)] == ["UMB405"]


def test_an_endpoint_that_refuses_is_told_by_both_sides(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "umbilical.tunnels")
    server, _ = stage.start_pair()
    address = refused_address()
    with pytest.raises(DialRefused, match="connection refused"):
        server.frontend.open(address)
    text = f"dial tcp {address}: connect: connection refused"
    assert notices(caplog) == [f"UMB401 dial of {address} failed agent=agent-0: {text}"]
    assert caplog.text.count(f'code=UMB401 end="{text}"') == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("dial tcp 10.0.0.5:443: i/o timeout", "UMB402"),
        ("dial tcp: lookup web: no such host", "UMB404"),
        ("dial tcp 10.0.0.5:443: connect: no route to host", "UMB401"),
    ],
)
def test_an_agents_error_is_told_under_its_own_code(
    stage: Stage, error: str, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = stage.start_server("grpc")
    agent = ScriptedAgent(server)
    stream = open_proxy_stream(server)
    stream.send(packet_messages.dial_request("10.0.0.5:443", 7))
    dial_id = agent.next_dial().random
    agent.send(packet_messages.dial_response(dial_id, 0, error))
    assert expect(stream, PacketType.DIAL_RSP).dialResponse.error == error  # the wire knows no codes
    assert [line[:6] for line in notices(caplog)] == [code]


def test_an_agent_that_is_lost_during_a_dial_is_told(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    server = stage.start_server("grpc")
    agent = ScriptedAgent(server)
    stream = open_proxy_stream(server)
    stream.send(packet_messages.dial_request("10.0.0.5:443", 7))
    agent.next_dial()
    agent.channel.close()
    expect(stream, PacketType.DIAL_RSP)
    assert [line[:6] for line in notices(caplog)] == ["UMB408"]


# ---------------------------------------------------------------------- agents that are silent


def test_an_agent_that_is_stopped_is_told_while_the_dial_still_waits(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """A real process, really stopped: its kernel goes on acknowledging, so the network is not to blame."""
    server = stage.start_server("grpc")
    agent = _agent_process(stage, server.agent_port)
    try:
        server.wait_for_agents()
        os.kill(agent.pid, signal.SIGSTOP)
        stream = open_proxy_stream(server)
        stream.send(packet_messages.dial_request("127.0.0.1:9", 7))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not notices(caplog) and time.monotonic() < deadline:
            time.sleep(0.05)
        (line,) = notices(caplog)
        assert line.startswith("UMB406 dial of 127.0.0.1:9 unanswered for ")
        assert line.endswith("its machine took the request, but the agent answers not even a ping")
        os.kill(agent.pid, signal.SIGCONT)
        assert "connection refused" in expect(stream, PacketType.DIAL_RSP).dialResponse.error
    finally:
        agent.kill()
        agent.wait(PATIENCE_SECONDS)


def _agent_process(stage: Stage, port: int) -> "subprocess.Popen[bytes]":
    pki = stage.pki
    command = [
        sys.executable, "-m", "umbilical", "agent", "run", "--server", f"127.0.0.1:{port}",
        "--ca", str(pki.authority.certificate_file), "--cert", str(pki.agent.certificate),
        "--key", str(pki.agent.key), "--health", "127.0.0.1:0", "--admin", "127.0.0.1:0",
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_an_agent_that_lives_while_its_endpoint_is_slow_is_not_blamed(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = stage.start_server("grpc")
    agent = ScriptedAgent(server)
    stream = open_proxy_stream(server)
    stream.send(packet_messages.dial_request("10.0.0.5:443", 7))
    dial_id = agent.next_dial().random
    for seconds in (2.5, 5.0, 7.5):
        stage.skip(seconds, monkeypatch)
        agent.channel.catch_up()  # reads the ping, answers it, and waits until the server has seen that
    assert notices(caplog) == []
    agent.send(packet_messages.dial_response(dial_id, 1))
    expect(stream, PacketType.DIAL_RSP)


def test_a_network_that_acknowledges_nothing_is_told_apart(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umbilical.tunnel.agent_stream.tcp_facts", lambda sock: TcpFacts(3, 5, 40))
    server = stage.start_server("grpc")
    ScriptedAgent(server)
    stream = open_proxy_stream(server)
    stream.send(packet_messages.dial_request("10.0.0.5:443", 7))
    stage.eventually(lambda: server.server.exchange.board.pending_count() == 1)
    stage.skip(2.5, monkeypatch)
    (link,) = server.server.exchange.links.values()
    stage.eventually(lambda: cast(AgentStream, link.shell).probed_at > 0)
    stage.skip(5.0, monkeypatch)
    stage.eventually(lambda: bool(notices(caplog)))
    assert notices(caplog)[0].startswith("UMB407 dial of 10.0.0.5:443 unanswered for ")
