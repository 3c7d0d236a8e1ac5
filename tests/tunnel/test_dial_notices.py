"""Dials that fail are told with their code, and a storm of them in a few lines."""

import pytest
from tests.support import packet_messages
from tests.support.in_process import Stage, refused_address
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import ScriptedAgent, expect, open_proxy_stream
from tests.support.tunnel_client import DialRefused

from umbilical.konnectivity.dial_failure import PROBE_ADDRESS
from umbilical.tunnel.dial_notices import MAX_KINDS, REPEAT_SECONDS, DialNotices, Hush


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


def test_the_good_answer_to_a_probe_of_our_own_clients_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    notices = DialNotices()
    notices.refused("UMB401", PROBE_ADDRESS, "a1", "connection refused", 0.0)
    assert caplog.text == ""
    notices.refused("UMB406", PROBE_ADDRESS, "a1", "no answer", 0.0)
    assert "UMB406" in caplog.text


def test_without_agents_a_storm_of_dials_anywhere_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    told = DialNotices()
    for number in range(100):
        told.refused("UMB301", f"10.0.0.{number}:443", "-", "No agent available", 1000.0)
    assert len(notices(caplog)) == 1


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
