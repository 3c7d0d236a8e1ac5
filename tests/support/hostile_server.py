"""Faults of an HTTP/2 server as frames, each with the reaction that RFC 9113 asks of our clients: agent and dialer.

h2spec judges servers only. A client in these rows has opened four streams: SUBJECT, which the row is about; RESET,
which it has reset itself; ENDED, which both sides have ended; NEIGHBOUR, which must survive what concerns another.
"""

import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import hpack
from tests.wire.http2.ends import Frame, frame, settings_frame, split, window_update

from umbilical.wire.grpc import RESPONSE_HEADERS
from umbilical.wire.http2 import frames
from umbilical.wire.http2.frames import (
    COMPRESSION_ERROR,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    PADDED,
    PROTOCOL_ERROR,
    STREAM_CLOSED,
)
from umbilical.wire.http2.headers import HeaderList, encode_plain

SUBJECT, RESET, ENDED, NEIGHBOUR, IDLE, EVEN = 1, 3, 5, 7, 9, 2
FLOOD: Final = 5_000
"""Frames: far more than any honest server sends at once."""
LARGEST_FRAME_BYTES: Final = 16_384

CONNECTION: Final = "connection error"
STREAM: Final = "stream error"
EITHER: Final = "stream or connection error"
NOTHING: Final = "nothing"
CHEAP: Final = "nothing or connection error"
"""The RFC asks for no reaction; what is not ended costs no memory."""


@dataclass(frozen=True)
class Fault:
    """What a server sends after its greeting, and the reaction it must get."""

    name: str
    octets: bytes
    reaction: str
    code: int = PROTOCOL_ERROR
    is_answered: bool = True
    """The server has answered SUBJECT before; otherwise the row itself does."""
    stream_id: int = SUBJECT
    """Of a stream error."""

    def __str__(self) -> str:
        return self.name


def response(*more: tuple[bytes, bytes], status: bytes = b"200") -> HeaderList:
    return [(b":status", status), (b"content-type", b"application/grpc"), *more]


def answer(stream_id: int, headers: HeaderList = RESPONSE_HEADERS, flags: int = END_HEADERS) -> bytes:
    return frame(frames.HEADERS, flags, stream_id, encode_plain(headers))


def trailers(stream_id: int = SUBJECT, *more: tuple[bytes, bytes], flags: int = END_HEADERS | END_STREAM) -> bytes:
    return answer(stream_id, [(b"grpc-status", b"0"), *more], flags)


def block(payload: bytes, flags: int = END_HEADERS) -> bytes:
    return frame(frames.HEADERS, flags, SUBJECT, payload)


def goaway(last_stream_id: int, code: int = 0) -> bytes:
    return frame(frames.GOAWAY, 0, 0, last_stream_id.to_bytes(4, "big") + code.to_bytes(4, "big"))


DATA: Final = frame(frames.DATA, 0, SUBJECT, b"data")
PING: Final = frame(frames.PING, 0, 0, bytes(8))
OPEN_BLOCK: Final = trailers(flags=END_STREAM)
"""A header block that is not complete."""
BOMB: Final = hpack.Encoder().encode([(b"x-bomb", b"0" * 4_000)]) + b"\xbe" * 400
LONG: Final = encode_plain([(b"x-long", b"x" * 70_000)])


def in_frames(payload: bytes) -> bytes:
    """A header block in as few frames as it fits."""
    pieces = [payload[start : start + LARGEST_FRAME_BYTES] for start in range(0, len(payload), LARGEST_FRAME_BYTES)]
    kinds = [frames.HEADERS, *[frames.CONTINUATION] * (len(pieces) - 1)]
    flags = [0] * (len(pieces) - 1) + [END_HEADERS]
    return b"".join(frame(*one[:2], SUBJECT, one[2]) for one in zip(kinds, flags, pieces, strict=True))


def malformed(name: str, *headers: tuple[bytes, bytes], flags: int = END_HEADERS) -> Fault:
    """RFC 9113 section 8.1.1."""
    return Fault(name, answer(SUBJECT, list(headers), flags), STREAM, is_answered=False)


def _with(name: bytes, value: bytes = b"x") -> Fault:
    return malformed(f"response with the header {name!r}: {value!r}", *response((name, value)))


def _frames() -> Iterable[Fault]:
    """Sections 4 to 6: frames by themselves."""
    for kind, name in ((frames.HEADERS, "HEADERS"), (frames.DATA, "DATA"), (frames.RST_STREAM, "RST_STREAM")):
        for stream_id in (0, EVEN, IDLE):
            body = encode_plain(RESPONSE_HEADERS) if kind == frames.HEADERS else b"1234"
            yield Fault(f"{name} on unopened stream {stream_id}", frame(kind, END_HEADERS, stream_id, body), CONNECTION)
    yield Fault("WINDOW_UPDATE on an idle stream", window_update(IDLE, 1), CONNECTION)
    for promised in (EVEN, IDLE):
        promise = promised.to_bytes(4, "big") + encode_plain([(b":method", b"GET"), (b":path", b"/")])
        yield Fault(
            f"PUSH_PROMISE of stream {promised}",
            frame(frames.PUSH_PROMISE, END_HEADERS, SUBJECT, promise),
            CONNECTION,
        )
    yield Fault("CONTINUATION without HEADERS", frame(frames.CONTINUATION, END_HEADERS, SUBJECT), CONNECTION)
    rest = frame(frames.CONTINUATION, END_HEADERS, NEIGHBOUR)
    for name, other in (
        ("DATA", DATA),
        ("PING", PING),
        ("CONTINUATION of another stream", rest),
        ("HEADERS", OPEN_BLOCK),
    ):
        yield Fault(f"header block interrupted by {name}", OPEN_BLOCK + other, CONNECTION)
    for kind, name, flags in ((frames.DATA, "DATA", 0), (frames.HEADERS, "HEADERS", END_HEADERS)):
        for stream_id in (SUBJECT, RESET):
            octets = frame(kind, flags | PADDED, stream_id, b"\x03ab")
            yield Fault(f"{name} with padding longer than itself on stream {stream_id}", octets, CONNECTION)
    yield Fault("padded DATA without a length of padding", frame(frames.DATA, PADDED, SUBJECT), CONNECTION)
    for kind, name in (
        (frames.DATA, "DATA"),
        (frames.HEADERS, "HEADERS"),
        (frames.SETTINGS, "SETTINGS"),
        (0xEE, "unknown"),
    ):
        stream_id = 0 if kind == frames.SETTINGS else SUBJECT
        octets = frame(kind, 0, stream_id, bytes(LARGEST_FRAME_BYTES + 2))
        yield Fault(f"{name} frame larger than allowed", octets, CONNECTION, FRAME_SIZE_ERROR)


def _control() -> Iterable[Fault]:
    """Sections 6.3 to 6.9: SETTINGS and other control frames."""
    sizes = [(frames.PING, "PING", 7, 0), (frames.PING, "PING", 9, 0), (frames.RST_STREAM, "RST_STREAM", 3, SUBJECT)]
    sizes += [(frames.RST_STREAM, "RST_STREAM", 5, SUBJECT), (frames.WINDOW_UPDATE, "WINDOW_UPDATE", 3, 0)]
    sizes += [(frames.WINDOW_UPDATE, "WINDOW_UPDATE", 5, SUBJECT), (frames.GOAWAY, "GOAWAY", 7, 0)]
    sizes += [(frames.SETTINGS, "SETTINGS", 5, 0)]
    for kind, name, size, stream_id in sizes:
        octets = frame(kind, 0, stream_id, bytes(size))
        yield Fault(f"{name} of {size} bytes on stream {stream_id}", octets, CONNECTION, FRAME_SIZE_ERROR)
    yield Fault("PRIORITY of 4 bytes", frame(frames.PRIORITY, 0, SUBJECT, bytes(4)), STREAM, FRAME_SIZE_ERROR)
    yield Fault("SETTINGS with ACK and content", frame(frames.SETTINGS, 1, 0, bytes(6)), CONNECTION, FRAME_SIZE_ERROR)
    for kind, name, size in ((frames.SETTINGS, "SETTINGS", 0), (frames.PING, "PING", 8), (frames.GOAWAY, "GOAWAY", 8)):
        yield Fault(f"{name} on a stream", frame(kind, 0, SUBJECT, bytes(size)), CONNECTION)
    yield Fault("PRIORITY on stream 0", frame(frames.PRIORITY, 0, 0, bytes(5)), CONNECTION)
    window, push, size = frames.INITIAL_WINDOW_SIZE, frames.ENABLE_PUSH, frames.MAX_FRAME_SIZE
    for number, value, code in (
        (window, 1 << 31, FLOW_CONTROL_ERROR),
        (window, 0x7FFFFFFF, FLOW_CONTROL_ERROR),
        (push, 1, PROTOCOL_ERROR),
        (push, 2, PROTOCOL_ERROR),
        (size, 16_383, PROTOCOL_ERROR),
        (size, 1 << 24, PROTOCOL_ERROR),
    ):
        # A stream with more than its first window: the largest first window overflows it.
        octets = window_update(SUBJECT, 1) + settings_frame([(number, value)])
        yield Fault(f"setting {number} of {value}", octets, CONNECTION, code)
    yield Fault("setting ENABLE_PUSH of 0, and an unknown one", settings_frame([(push, 0), (0xAB, 7)]), NOTHING)
    yield Fault("WINDOW_UPDATE of 0 on a stream", window_update(SUBJECT, 0), STREAM)
    yield Fault("WINDOW_UPDATE of 0 on the connection", window_update(0, 0), CONNECTION)
    largest = 0x7FFFFFFF
    yield Fault("window of a stream overflows", window_update(SUBJECT, largest), STREAM, FLOW_CONTROL_ERROR)
    yield Fault("window of the connection overflows", window_update(0, largest), CONNECTION, FLOW_CONTROL_ERROR)
    yield Fault("GOAWAY with a higher last stream than before", goaway(NEIGHBOUR) + goaway(largest), CHEAP)


def _states() -> Iterable[Fault]:
    """Section 5.1: frames that their stream's state forbids or allows."""
    for stream_id, name in ((SUBJECT, "ended by the server"), (ENDED, "ended by both")):
        end = trailers(SUBJECT) if stream_id == SUBJECT else b""
        scope = STREAM if stream_id == SUBJECT else EITHER
        late = frame(frames.DATA, 0, stream_id, b"late")
        yield Fault(f"DATA on a stream {name}", end + late, scope, STREAM_CLOSED, stream_id=stream_id)
        again = trailers(stream_id)
        yield Fault(f"HEADERS on a stream {name}", end + again, scope, STREAM_CLOSED, stream_id=stream_id)
        allowed = window_update(stream_id, 5) + frame(frames.PRIORITY, 0, stream_id, bytes(5))
        yield Fault(f"WINDOW_UPDATE and PRIORITY on a stream {name}", end + allowed, NOTHING)
    late = frame(frames.DATA, 0, RESET, b"late") + window_update(RESET, 5) + trailers(RESET)
    yield Fault(
        "late frames on a stream that the client reset", late + frame(frames.RST_STREAM, 0, RESET, bytes(4)), NOTHING
    )
    yield Fault("DATA before the response", DATA, STREAM, is_answered=False)
    overrun = frame(frames.DATA, 0, SUBJECT, bytes(LARGEST_FRAME_BYTES)) * 5
    yield Fault("DATA beyond the window of its stream", overrun, STREAM, FLOW_CONTROL_ERROR)


def _headers() -> Iterable[Fault]:
    """Section 4.3 and RFC 7541: header blocks."""
    for name, payload in (
        ("an index beyond the table", b"\xff\xff\x03"),
        ("index 0", b"\x80"),
        ("an integer without an end", b"\xff\xff\xff"),
        ("an integer of endless length", b"\xff" + b"\x80" * 30 + b"\x01"),
        ("a string longer than the block", b"\x00\x01a\x7fbc"),
        ("a Huffman string with wrong padding", b"\x00\x01a\x81\x00"),
        ("a table larger than allowed", b"\x3f\xe2\x1f"),
        ("a change of the table's size after a field", b"\x88\x20"),
    ):
        octets = block(payload)
        yield Fault(f"header block with {name}", octets, CONNECTION, COMPRESSION_ERROR, is_answered=False)
    flood = OPEN_BLOCK + frame(frames.CONTINUATION, 0, SUBJECT) * FLOOD
    yield Fault("endless empty CONTINUATION frames", flood, CONNECTION, ENHANCE_YOUR_CALM)
    large = OPEN_BLOCK + frame(frames.CONTINUATION, 0, SUBJECT, bytes(LARGEST_FRAME_BYTES)) * 10
    yield Fault("endless large CONTINUATION frames", large, CONNECTION, ENHANCE_YOUR_CALM)
    yield Fault("header list that decodes to 1.6 MB", block(BOMB), EITHER, ENHANCE_YOUR_CALM, is_answered=False)
    yield Fault("header list of 70 KB", in_frames(LONG), EITHER, ENHANCE_YOUR_CALM, is_answered=False)


def _responses() -> Iterable[Fault]:
    """Section 8: messages that are malformed, and those that are not."""
    yield malformed("response without :status", (b"content-type", b"application/grpc"))
    yield malformed("response without any header")
    yield malformed("response with two :status", (b":status", b"200"), (b":status", b"200"))
    yield malformed("response with :status behind another header", *reversed(response()))
    for name in (b":method", b":path", b":unknown", b":"):
        yield malformed(f"response with {name.decode()}", (b":status", b"200"), (name, b"GET"))
    for status in (b"", b"20", b"2000", b"abc", b"+20"):
        yield malformed(f"response with :status {status!r}", *response(status=status))
    for name in (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"):
        yield _with(name)
    for name in (b"Serverid", b"", b"a b", b"a\tb", b"a\x00b", b"a\x7f", b"\xc3\xa9", b"a:b"):
        yield _with(name)
    for value in (b"a\x00b", b"a\rb", b"a\nb"):
        yield _with(b"x-value", value)
    # Section 8.2.1 forbids it, but grpc-go sends the text of an error as it is, and many such texts end with a space.
    spaced = trailers(SUBJECT, (b"grpc-message", b" rpc error: "))
    yield Fault("trailers with spaces around a text", spaced, NOTHING)
    yield malformed("informational response that ends", *response(status=b"103"), flags=END_HEADERS | END_STREAM)
    yield Fault("trailers without END_STREAM", trailers(flags=END_HEADERS), STREAM)
    yield Fault("trailers with :status", trailers(SUBJECT, (b":status", b"200")), STREAM)
    yield Fault("trailers with capitals", trailers(SUBJECT, (b"Grpc-Message", b"x")), STREAM)
    length = answer(SUBJECT, response((b"content-length", b"5")))
    short = length + frame(frames.DATA, END_STREAM, SUBJECT, b"1234")
    yield Fault("content shorter than content-length", short, STREAM, is_answered=False)
    yield Fault("content longer than content-length", length + DATA * 2, STREAM, is_answered=False)
    informed = answer(SUBJECT, [(b":status", b"100")]) + answer(SUBJECT, [(b":status", b"103"), (b"link", b"x")])
    yield Fault("informational responses before the response", informed + answer(SUBJECT), NOTHING, is_answered=False)


def _floods() -> Iterable[Fault]:
    for name, octets in (
        ("PING", PING),
        ("SETTINGS", settings_frame([(frames.INITIAL_WINDOW_SIZE, 70_000)])),
        ("empty DATA", frame(frames.DATA, 0, SUBJECT)),
        ("DATA of padding", frame(frames.DATA, PADDED, SUBJECT, b"\x01\x00")),
    ):
        yield Fault(f"flood of {name}", octets * FLOOD, CONNECTION, ENHANCE_YOUR_CALM)
    informed = answer(SUBJECT, [(b":status", b"103")]) * FLOOD
    yield Fault("flood of informational responses", informed, EITHER, ENHANCE_YOUR_CALM, is_answered=False)
    for name, octets in (
        ("PRIORITY", frame(frames.PRIORITY, 0, SUBJECT, bytes(5))),
        ("WINDOW_UPDATE", window_update(SUBJECT, 1)),
        ("answers to SETTINGS", frame(frames.SETTINGS, frames.ACK, 0)),
        ("answers to PING", frame(frames.PING, frames.ACK, 0, bytes(8))),
        ("frames of an unknown type", frame(0xEE, 0, 0, b"grease")),
        ("DATA on a stream that the client reset", frame(frames.DATA, 0, RESET)),
        ("RST_STREAM of a stream that the client reset", frame(frames.RST_STREAM, 0, RESET, bytes(4))),
    ):
        yield Fault(f"flood of {name}", octets * FLOOD, CHEAP, ENHANCE_YOUR_CALM)


FAULTS: Final = [*_frames(), *_control(), *_states(), *_headers(), *_responses(), *_floods()]

_SEEN_BY_PROGRAMS: Final = (
    "HEADERS on unopened stream 2",
    "PUSH_PROMISE of stream 2",
    "CONTINUATION without HEADERS",
    "header block with an index beyond the table",
    "endless empty CONTINUATION frames",
    "header list that decodes to 1.6 MB",
    "setting 2 of 1",
    "PING of 7 bytes on stream 0",
    "window of the connection overflows",
    "flood of PING",
    "DATA before the response",
    "response without :status",
    "trailers without END_STREAM",
)
FOR_PROGRAMS: Final = [fault for fault in FAULTS if fault.name in _SEEN_BY_PROGRAMS]
"""A handful for the running agent and dialer, which open SUBJECT alone."""
assert len(FOR_PROGRAMS) == len(_SEEN_BY_PROGRAMS)


def play_server(sock: socket.socket, octets: bytes) -> list[Frame]:
    """Send frames to a client once it has made its call; return what it sends from then to its end."""
    received = b""
    with suppress(OSError):  # a client may leave while it is flooded
        while not any(one.kind == frames.HEADERS for one in _complete(received)):
            received += sock.recv(1 << 16)
        sock.sendall(settings_frame() + octets)
    with suppress(ConnectionError):
        while piece := sock.recv(1 << 16):
            received += piece
    return _complete(received)


def _complete(octets: bytes) -> list[Frame]:
    """The frames so far, without one that is cut short."""
    octets = octets.removeprefix(frames.PREFACE)
    end = 0
    while len(octets) >= (after := end + 9 + int.from_bytes(octets[end : end + 3], "big")) and len(octets) >= end + 9:
        end = after
    return split(octets[:end])


def goaway_codes(told: list[Frame]) -> list[int]:
    return [int.from_bytes(one.payload[4:8], "big") for one in told if one.kind == frames.GOAWAY]
