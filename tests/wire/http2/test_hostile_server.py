"""Our client's side of a connection against a server that breaks the rules, by the table of its faults."""

from collections.abc import Callable
from typing import Final

import pytest
from tests.support.hostile_server import (
    CHEAP,
    CONNECTION,
    EITHER,
    ENDED,
    FAULTS,
    NEIGHBOUR,
    NOTHING,
    RESET,
    STREAM,
    SUBJECT,
    Fault,
    answer,
    trailers,
)
from tests.wire.http2.ends import REQUEST, Ours, RecordedEvent, frame, goaway_code, settings_frame, split

from umbilical.wire.http2 import frames
from umbilical.wire.http2.frames import ConnectionLimits

MOST_QUEUED_BYTES: Final = 64 * 1024
"""What a client may have to say after a flood that it need not answer."""
FEEDS: Final = {"at once": Ours.give, "byte by byte": Ours.give_slowly}


def client_of(fault: Fault) -> Ours:
    """A client with the four streams of the table; what it sent so far is discarded."""
    client = Ours(True, ConnectionLimits(stream_window_bytes=65_535), gives_credit=False)
    client.give(settings_frame())
    sender = client.connection.sender
    opened = [sender.open_stream(REQUEST) for _ in (SUBJECT, RESET, ENDED, NEIGHBOUR)]
    answered = opened if fault.is_answered else opened[1:]
    client.give(b"".join(answer(stream.stream_id) for stream in answered) + trailers(ENDED))
    sender.reset(client.stream(RESET), frames.CANCEL)
    sender.close_sending(client.stream(ENDED))
    client.take()
    client.events.clear()
    return client


def reaction(client: Ours, fault: Fault) -> tuple[str, int]:
    """What the client tells the server, which must be what it tells its caller."""
    told = split(client.take())
    if any(one.kind == frames.GOAWAY for one in told):
        code = goaway_code(b"".join(frame(one.kind, one.flags, one.stream_id, one.payload) for one in told))
        assert (client.events[-1].name, client.events[-1].code) == ("failed", code)
        return CONNECTION, code
    resets = [(one.stream_id, int.from_bytes(one.payload, "big")) for one in told if one.kind == frames.RST_STREAM]
    if not resets:
        assert not {"reset", "failed"} & set(client.names())
        return NOTHING, 0
    ((stream_id, code),) = set(resets)
    assert stream_id == fault.stream_id
    if stream_id == SUBJECT:
        assert [event.code for event in client.events if event.name == "reset"] == [code]
    return STREAM, code


def allowed(fault: Fault) -> set[tuple[str, int]]:
    scopes = {EITHER: (STREAM, CONNECTION), CHEAP: (CONNECTION,)}.get(fault.reaction, (fault.reaction,))
    silence = {(NOTHING, 0)} if fault.reaction in (NOTHING, CHEAP) else set()
    return {(scope, fault.code) for scope in scopes if scope != NOTHING} | silence


@pytest.mark.parametrize("feed", FEEDS.values(), ids=FEEDS)
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_of_a_server_gets_the_reaction_that_the_rules_ask_for(
    fault: Fault, feed: Callable[[Ours, bytes], None]
) -> None:
    client = client_of(fault)
    feed(client, fault.octets)
    assert client.connection.outbox.queued_bytes() < MOST_QUEUED_BYTES
    assert len(client.connection.streams.by_id) <= 2
    seen = reaction(client, fault)
    assert seen in allowed(fault)
    client.events.clear()
    client.give(frame(frames.DATA, 0, NEIGHBOUR, b"alive"))
    alive = [] if seen[0] == CONNECTION else [RecordedEvent("data", NEIGHBOUR, b"alive")]
    assert client.events == alive


def test_informational_responses_are_not_told_to_the_caller() -> None:
    """It would take them for the response."""
    (fault,) = [fault for fault in FAULTS if fault.name == "informational responses before the response"]
    client = client_of(fault)
    client.give(fault.octets)
    assert [dict(event.headers)[b":status"] for event in client.events if event.name == "headers"] == [b"200"]


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_no_stream_is_opened_beyond_the_limit_of_the_server(limit: int) -> None:
    client = Ours(True)
    client.give(settings_frame([(frames.MAX_CONCURRENT_STREAMS, limit)]))
    sender = client.connection.sender
    for _ in range(limit):
        assert sender.can_open_stream()
        sender.open_stream(REQUEST)
    assert not sender.can_open_stream()


def test_a_limit_that_falls_below_the_open_streams_holds_until_enough_have_ended() -> None:
    client = Ours(True)
    client.give(settings_frame([(frames.MAX_CONCURRENT_STREAMS, 3)]))
    sender = client.connection.sender
    first, second, _ = [sender.open_stream(REQUEST) for _ in range(3)]
    client.give(settings_frame([(frames.MAX_CONCURRENT_STREAMS, 2)]))
    assert len(client.connection.streams.by_id) == 3, "open streams go on: RFC 9113 section 5.1.2"
    for stream in (first, second):
        assert not sender.can_open_stream()
        client.give(frame(frames.RST_STREAM, 0, stream.stream_id, bytes(4)))
    assert sender.can_open_stream()
