"""What a peer that is refused, or that floods, costs in log lines."""

import socket
import time

from tests.support.fixture_types import Logged
from tests.support.in_process import Stage
from tests.support.packet_messages import Packet, PacketType
from tests.support.scripted_peers import CONNECT_PATH, ScriptedAgent, open_agent_channel

from umbilical.tunnel.notices import MAX_KIND_CHARACTERS, MAX_KINDS, MAX_LINES_PER_SECOND, LogThrottle


def test_repeated_messages_are_logged_rarely_with_the_number_suppressed() -> None:
    throttle = LogThrottle(10.0)
    assert [throttle.due("a", 1000.0), throttle.due("a", 1001.0), throttle.due("a", 1009.9)] == [0, None, None]
    assert [throttle.due("b", 1001.0), throttle.due("a", 1010.0), throttle.due("a", 1011.0)] == [0, 2, None]


def test_the_memory_of_what_was_logged_is_bounded_in_kinds_and_in_size() -> None:
    throttle = LogThrottle()
    throttle.due("seen often", 999.0)
    for number in range(3 * MAX_KINDS):
        assert throttle.due("seen often", 1000.0 + number / 1e6) is None
        throttle.due(f"{number} {'x' * 40_000}", 1000.0 + number)
    assert len(throttle._logged) <= MAX_KINDS
    assert max(map(len, throttle._logged)) <= MAX_KIND_CHARACTERS
    assert throttle.due("seen often", 1e6) == 3 * MAX_KINDS


def test_kinds_that_a_peer_varies_cost_a_bounded_number_of_lines_and_are_counted() -> None:
    throttle = LogThrottle()
    logged = [throttle.due(str(number), 1000.0) for number in range(2 * MAX_LINES_PER_SECOND)]
    assert logged == [0] * MAX_LINES_PER_SECOND + [None] * MAX_LINES_PER_SECOND
    assert throttle.due(str(MAX_LINES_PER_SECOND), 1001.0) == 1


FLOOD = 60
"""Streams of one connection; fewer than the limit on streams that live shortly."""


def _lines(caplog: Logged, word: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if word in record.getMessage()]


def test_connect_streams_that_are_reset_at_once_cost_one_line_a_second_with_a_count(
    stage: Stage, caplog: Logged
) -> None:
    caplog.set_level("INFO", "umbilical")
    channel = open_agent_channel(stage.start_server())
    for _ in range(FLOOD):
        channel.open(CONNECT_PATH, [("agentid", "a1"), ("agentidentifiers", "")]).cancel()
    channel.catch_up()
    seconds = len(_lines(caplog, "agent connected"))
    assert seconds < FLOOD / 4
    assert len(_lines(caplog, "agent gone")) <= seconds
    time.sleep(1.1)
    channel.open(CONNECT_PATH, [("agentid", "a1"), ("agentidentifiers", "")]).wait_for_headers()
    assert " more since the last such line)" in _lines(caplog, "agent connected")[-1]


def test_refused_calls_and_repeated_drains_cost_one_line(stage: Stage, caplog: Logged) -> None:
    caplog.set_level("INFO", "umbilical")
    server = stage.start_server()
    channel = open_agent_channel(server)
    for number in range(FLOOD):
        channel.open(f"/no/such/method/{number}").wait_for_end()
    assert len(_lines(caplog, "agent refused")) == 1
    agent = ScriptedAgent(server)
    agent.send(*[Packet(type=PacketType.DRAIN, drain={})] * FLOOD)
    agent.channel.catch_up()
    assert len(_lines(caplog, "agent drains")) == 1


def test_clients_whose_handshake_fails_cost_one_line_for_each_host(stage: Stage, caplog: Logged) -> None:
    caplog.set_level("INFO", "umbilical")
    for mode in ("grpc", "http-connect"):
        caplog.clear()
        server = stage.start_server(mode, tcp=True)
        assert server.frontend.port is not None
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", server.frontend.port), timeout=10) as knock:
                knock.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while knock.recv(4096):
                    pass
        stage.eventually(lambda: bool(_lines(caplog, "client connection failed")))
        assert len(_lines(caplog, "client connection failed")) == 1
