"""Bytes that nobody meant, on a connection: never an exception, and cut anywhere they give the same events."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.http2.ends import (
    REQUEST,
    Ours,
    RecordedEvent,
    Theirs,
    frame,
    greeting,
    open_stream,
    pump,
    settings_frame,
)

from umbilical.wire.grpc import OK, RESPONSE_HEADERS, trailers
from umbilical.wire.http2 import frames
from umbilical.wire.http2.headers import encode_headers
from umbilical.wire.packet_data import DataPrefix

HEADERS = frame(frames.HEADERS, frames.END_HEADERS, 1, encode_headers(REQUEST))
U32 = st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 65_535, 65_536, 2**31 - 1, 2**31])
FRAMES = st.builds(
    frame,
    st.integers(0, 10),
    st.sampled_from([0, 1, 4, 5, 8, 9, 12, 13, 0x20, 0x2D, 0xFF]),
    st.sampled_from([0, 1, 1, 1, 2, 3, 5, 2**31 - 1]),
    st.binary(max_size=12)
    | U32.map(lambda value: value.to_bytes(4, "big"))
    | st.tuples(st.integers(0, 7), U32).map(lambda pair: pair[0].to_bytes(2, "big") + pair[1].to_bytes(4, "big"))
    | st.just(encode_headers(REQUEST)),
)


def opened(is_client: bool) -> Ours:
    """An end past its greeting, with one open stream and a fixed clock."""
    ours = Ours(is_client)
    if is_client:
        ours.connection.sender.open_stream(REQUEST)
        ours.give(settings_frame())
    else:
        ours.give(greeting() + HEADERS)
    return ours


def outcome(ours: Ours) -> tuple[list[RecordedEvent], bytes, set[int]]:
    return ours.events, ours.take(), set(ours.connection.streams.by_id)


def assert_same_however_cut(is_client: bool, octets: bytes) -> None:
    at_once, slowly = opened(is_client), opened(is_client)
    at_once.give(octets)
    slowly.give_slowly(octets)
    assert outcome(at_once) == outcome(slowly)
    _assert_alive_or_failed(at_once)


def _assert_alive_or_failed(ours: Ours) -> None:
    assert ours.names().count("failed") <= 1
    assert (ours.connection.sender.failure is not None) == ("failed" in ours.names())
    if ours.connection.sender.failure is not None:
        assert ours.names()[-1] == "failed", "after a failure all input is discarded"


@pytest.mark.parametrize("is_client", [True, False])
@settings(max_examples=300)
@given(st.lists(FRAMES, max_size=12).map(b"".join))
def test_frames_that_are_nearly_right_raise_nothing(is_client: bool, octets: bytes) -> None:
    assert_same_however_cut(is_client, octets)


@pytest.mark.parametrize("is_client", [True, False])
@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing(is_client: bool, octets: bytes) -> None:
    assert_same_however_cut(is_client, octets)


@given(st.binary(max_size=100))
def test_random_bytes_instead_of_a_greeting_raise_nothing(octets: bytes) -> None:
    at_once, slowly = Ours(False), Ours(False)
    at_once.give(octets)
    slowly.give_slowly(octets)
    assert outcome(at_once) == outcome(slowly)


@cache
def transcript(of_client: bool) -> bytes:
    """What one end sends in a lively conversation of our client and our server, or of h2's client and our server."""
    said = {True: b"", False: b""}

    class Recording(Ours):
        def take(self, limit: int = 1 << 30) -> bytes:
            octets = super().take(limit)
            said[self is client] += octets
            return octets

    client, server = Recording(True), Recording(False)
    for number in range(3):
        stream, answer = open_stream(client, server)
        client.write(stream, DataPrefix(stream.stream_id, 1), b"payload")
        server.connection.sender.send_headers(answer, RESPONSE_HEADERS)
        server.connection.sender.send_message(answer, b"answer")
        client.connection.sender.ping(bytes(8))
        pump(client, server)
        if number == 1:
            client.connection.sender.reset(stream, frames.CANCEL)
        else:
            server.connection.sender.finish(answer, trailers(OK, "done"))
            client.connection.sender.close_sending(stream)
        pump(client, server)
    server.connection.sender.goaway(frames.NO_ERROR, "bye")
    pump(client, server)
    return said[of_client]


@cache
def h2_transcript() -> bytes:
    """A client with a header table, padding and priorities, which ours never uses."""
    client, server = Theirs(True), Ours(False)
    said = client.take()
    server.give(said)
    for stream_id in (1, 3, 5):
        client.give(server.take())
        client.http2.send_headers(stream_id, REQUEST, priority_weight=7, priority_exclusive=True)
        client.http2.send_data(stream_id, b"payload", pad_length=stream_id)
        client.http2.ping(bytes(8))
        client.http2.increment_flow_control_window(1_000, stream_id)
        if stream_id == 3:
            client.http2.reset_stream(stream_id)
        octets = client.take()
        said += octets
        server.give(octets)
    assert server.connection.sender.failure is None
    return said


@st.composite
def mutations(draw: st.DrawFn, original: bytes) -> bytes:
    mutated = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(mutated)))
        mutated[at : at + draw(st.sampled_from([0, 1, 1, 1, 4, 9]))] = draw(st.binary(max_size=9))
    return bytes(mutated)


@settings(max_examples=150)
@given(st.data(), st.sampled_from(["our client", "our server", "h2 client"]))
def test_mutated_conversations_raise_nothing(data: st.DataObject, speaker: str) -> None:
    original = h2_transcript() if speaker == "h2 client" else transcript(speaker == "our client")
    octets = data.draw(mutations(original))
    ends = []
    for give in (Ours.give, Ours.give_slowly):
        ours = Ours(speaker == "our server")
        for _ in range(3 if speaker == "our server" else 0):
            ours.connection.sender.open_stream(REQUEST)
        give(ours, octets)
        _assert_alive_or_failed(ours)
        ends.append(outcome(ours))
    assert ends[0] == ends[1]


@given(st.lists(st.integers(1, 400), max_size=30))
def test_a_conversation_gives_the_same_events_however_it_is_cut(cuts: list[int]) -> None:
    for original in (transcript(True), h2_transcript()):
        whole, cut = Ours(False), Ours(False)
        whole.give(original)
        rest = original
        for size in cuts:
            cut.give(rest[:size])
            rest = rest[size:]
        cut.give(rest)
        assert whole.connection.sender.failure is None
        assert outcome(whole) == outcome(cut)
