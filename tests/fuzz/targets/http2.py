"""One HTTP/2 connection, server or client side: it never raises, and reports a fault of its peer once.

Input: how (bit 0: client side, bit 1: the end answers, bit 2: after the greeting, with an open stream, bit 3: frames),
the largest piece, then the bytes of the peer; or its frames: type, flags, stream, and a payload behind its length.
"""

from collections.abc import Iterator
from typing import Final

from tests.fuzz.choices import Choices, pieces
from tests.wire.http2.ends import HEADERS, REQUEST, Ours, RecordedEvent, frame, greeting, settings_frame, split

from umbilical.wire.grpc import OK, RESPONSE_HEADERS, trailers
from umbilical.wire.http2 import frames
from umbilical.wire.http2.events import ConnectionEvent, DataReceived, HeadersReceived
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.packet_data import DataPrefix

CLIENT_SIDE: Final = 1
ANSWERS: Final = 2
GREETED: Final = 4
FRAMES: Final = 8
MOST_ANSWERED: Final = 32
"""Bytes of ours per byte of the peer: its smallest frames are 9 bytes, our largest answers are trailers."""
GREETING_BYTES: Final = 1024
PING: Final = frame(frames.PING, 0, 0, bytes(8))


class AnsweringEnd(Ours):
    """Does what servers and agents do with calls: answers, sends the payload back, ends."""

    def _record(self, event: ConnectionEvent) -> RecordedEvent:
        recorded = super()._record(event)
        sender = self.connection.sender
        if isinstance(event, HeadersReceived) and not self.connection.streams.is_client:
            sender.send_headers(event.stream, RESPONSE_HEADERS)
        if isinstance(event, DataReceived):
            sender.send_message(event.stream, recorded.payload)
            self.write(event.stream, DataPrefix(event.stream.stream_id, 1), recorded.payload)
        if isinstance(event, HeadersReceived | DataReceived) and recorded.end_stream:
            sender.finish(event.stream, trailers(OK, "done"))
        return recorded


def target(data: bytes) -> None:
    choices = Choices(data)
    how, largest = choices.number(), choices.number()
    octets = b"".join(_frames(choices)) if how & FRAMES else choices.rest()
    if how & ANSWERS:
        _feed(how, octets, largest)
    else:
        assert _feed(how, octets, len(octets)) == _feed(how, octets, largest), "cut differently, other events"


def next_frame(choices: Choices) -> bytes:
    return frame(choices.number(), choices.number(), choices.number(), choices.counted())


def _frames(choices: Choices) -> Iterator[bytes]:
    while not choices.is_empty():
        yield next_frame(choices)


def _feed(how: int, octets: bytes, largest: int) -> tuple[list[RecordedEvent], bytes, set[int]]:
    """Give an end the bytes of its peer, and check it all along; return what came of it."""
    end = _end(how)
    said = b""
    for piece in pieces(octets, largest):
        end.give(piece)
        _check(end)
        if how & ANSWERS:
            said += end.take()
    said += end.take()
    assert len(said) <= GREETING_BYTES + MOST_ANSWERED * len(octets), "the answers outgrow what was asked"
    split(said)
    return end.events, said, set(end.connection.streams.by_id)


def _end(how: int) -> Ours:
    """Small limits, so that short inputs reach them."""
    is_client = bool(how & CLIENT_SIDE)
    limits = ConnectionLimits(stream_window_bytes=256, max_streams=4)
    end = (AnsweringEnd if how & ANSWERS else Ours)(is_client, limits)
    if is_client:
        end.connection.sender.open_stream(REQUEST)
        end.connection.sender.open_stream(REQUEST)
    if how & GREETED:
        end.give(settings_frame() if is_client else greeting() + HEADERS)
    return end


def _check(end: Ours) -> None:
    sender, streams = end.connection.sender, end.connection.streams.by_id
    names = end.names()
    assert ("failed" in names) == (sender.failure is not None), "a failure is reported"
    if sender.failure is not None:
        assert names.count("failed") == 1
        assert names[-1] == "failed", "after a failure all input is discarded"
        queued = end.connection.outbox.queued_bytes()
        end.give(PING)
        assert (len(end.events), end.connection.outbox.queued_bytes()) == (len(names), queued)
        return
    assert 0 <= sender.window <= frames.LARGEST_WINDOW_BYTES
    for stream in streams.values():
        assert stream.send_window <= frames.LARGEST_WINDOW_BYTES
        assert stream.receive_window >= 0
