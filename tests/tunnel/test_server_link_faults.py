"""A running agent and a server that breaks the rules of HTTP/2: it leaves, says so once, and comes again in time."""

import logging
from typing import Any, Final

import pytest
from tests.support import packet_messages
from tests.support.fixture_types import Logged
from tests.support.hostile_server import (
    CONNECTION,
    FOR_PROGRAMS,
    SUBJECT,
    Fault,
    answer,
    goaway_codes,
    play_server,
    response,
)
from tests.support.in_process import Stage, echo
from tests.support.packet_messages import PacketType
from tests.support.scripted_peers import Channel, ScriptedServer, expect
from tests.wire.http2.ends import frame, settings_frame

from umbilical.wire.http2 import frames

HELLO: Final = answer(SUBJECT, response((b"serverid", b"hostile"), (b"servercount", b"1")))
UNDERSTANDS_STREAMS: Final = ("umbilical-streams", "1")
QUIET_SECONDS: Final = 0.3
RARELY: Final[dict[str, Any]] = {"sync_interval_seconds": 3600.0, "sync_interval_cap_seconds": 3600.0}


def complaints(logged: Logged) -> list[logging.LogRecord]:
    return [one for one in logged.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize("fault", FOR_PROGRAMS, ids=str)
def test_an_agent_leaves_a_server_that_breaks_the_rules_and_comes_again(
    stage: Stage, caplog: Logged, fault: Fault
) -> None:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port)
    with server.accept_socket() as sock:
        told = play_server(sock, (HELLO if fault.is_answered else b"") + fault.octets)
    if fault.reaction == CONNECTION and len(fault.octets) < 1000:
        assert goaway_codes(told) == [fault.code]
    server.accept()
    agent.wait_for_servers("scripted")
    (complaint,) = complaints(caplog)
    assert complaint.exc_info is None


def test_a_server_that_fails_after_its_hello_is_tried_once_in_an_interval(stage: Stage) -> None:
    server = ScriptedServer(stage)
    stage.start_agent(server.port, **RARELY)
    with server.accept_socket() as sock:
        play_server(sock, HELLO + frame(frames.PUSH_PROMISE, frames.END_HEADERS, SUBJECT, bytes(4)))
    server._listener.settimeout(QUIET_SECONDS)
    with pytest.raises(TimeoutError):
        server.accept_socket()


def test_informational_responses_before_the_hello_are_accepted(stage: Stage, caplog: Logged) -> None:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port, **RARELY)
    channel = server.accept_channel()
    stream = channel.accept(60.0)
    channel.socket.sendall(answer(stream.stream_id, [(b":status", b"103")]))
    channel.respond(stream, [("serverid", "scripted"), ("servercount", "1")])
    agent.wait_for_servers("scripted")
    assert not complaints(caplog)


def test_a_server_that_takes_no_streams_at_all_is_left_with_its_reason(stage: Stage, caplog: Logged) -> None:
    server = ScriptedServer(stage)
    agent = stage.start_agent(server.port)
    refusal = frame(frames.RST_STREAM, 0, SUBJECT, frames.REFUSED_STREAM.to_bytes(4, "big"))
    with server.accept_socket() as sock:
        play_server(sock, settings_frame([(frames.MAX_CONCURRENT_STREAMS, 0)]) + refusal)
    server.accept()
    agent.wait_for_servers("scripted")
    (complaint,) = complaints(caplog)
    assert "stream reset by the server (HTTP/2 error 7)" in complaint.getMessage()


def dial(stream: Any, address: str, dial_id: int) -> Any:
    stream.send(packet_messages.dial_request(address, dial_id))
    return expect(stream, PacketType.DIAL_RSP).dialResponse


def limit_streams(channel: Any, limit: int) -> None:
    assert isinstance(channel, Channel)
    channel.socket.sendall(settings_frame([(frames.MAX_CONCURRENT_STREAMS, limit)]))
    channel.catch_up()


def test_an_agent_refuses_dials_beyond_the_streams_that_its_server_allows(stage: Stage) -> None:
    server = ScriptedServer(stage)
    stage.start_agent(server.port)
    stream = server.accept(metadata=[UNDERSTANDS_STREAMS])
    endpoint = stage.endpoint().serve(echo)
    limit_streams(stream.channel, 1)
    assert dial(stream, endpoint.address, 1).error == "too many tunnels: the server allows no more streams"
    limit_streams(stream.channel, 3)
    first, second = (dial(stream, endpoint.address, number) for number in (2, 3))
    assert (first.error, second.error) == ("", "")
    limit_streams(stream.channel, 2)
    assert dial(stream, endpoint.address, 4).error == "too many tunnels: the server allows no more streams"
    stream.channel.http2.reset_stream(first.connectID)
    stream.channel.http2.reset_stream(second.connectID)
    stream.channel.flush()
    assert dial(stream, endpoint.address, 5).error == ""
