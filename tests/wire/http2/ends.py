"""Two ends of a connection in memory, ours and one of `h2` as the reference, and a pump between them."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, Protocol

import h2.config
import h2.connection
import h2.events
import h2.settings

from umbilical.wire.grpc import request_headers
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import Block, BlockPool
from umbilical.wire.http2.connection import Connection
from umbilical.wire.http2.events import (
    ConnectionEvent,
    ConnectionFailed,
    DataReceived,
    GoawayReceived,
    HeadersReceived,
    PingAnswered,
    SettingsReceived,
    StreamReset,
    WindowOpened,
)
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.headers import encode_headers
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import PayloadPrefix

BLOCK_BYTES: Final = 64 * 1024
MANY_TURNS: Final = 200_000
REQUEST: Final = request_headers(b"/ProxyService/Proxy", b"localhost", b"http", b"test")


class End(Protocol):
    def take(self, limit: int) -> bytes:
        """Return at most `limit` of the bytes to send."""

    def give(self, octets: bytes) -> None:
        """Bytes arrived."""


@dataclass(frozen=True)
class RecordedEvent:
    """A copy of one event of ours that can be compared."""

    name: str
    stream_id: int = 0
    payload: bytes = b""
    end_stream: bool = False
    headers: tuple[tuple[bytes, bytes], ...] = ()
    code: int = 0
    text: str = ""


class Ours:
    """Our connection; records events and, unless `gives_credit` is False, credits DATA at once."""

    def __init__(
        self,
        is_client: bool,
        limits: ConnectionLimits | None = None,
        *,
        pool: BlockPool | None = None,
        gives_credit: bool = True,
    ) -> None:
        self.pool = pool or BlockPool(BLOCK_BYTES, 1)
        self.connection = Connection(
            is_client, limits or ConnectionLimits(), self.pool, Block(BLOCK_BYTES), shared_block=False
        )
        self.events: list[RecordedEvent] = []
        self.received: dict[int, bytearray] = {}
        self.now = 0.0
        self.gives_credit = gives_credit

    def take(self, limit: int = 1 << 30) -> bytes:
        taken = bytearray()
        while len(taken) < limit and (view := self.connection.outbox.pending()) is not None:
            assert view, "an empty view would be sent for ever"
            piece = bytes(view[: limit - len(taken)])
            taken += piece
            self.connection.outbox.sent(len(piece))
        self.connection.sender.after_flush()
        return bytes(taken)

    def give(self, octets: bytes) -> None:
        rest = memoryview(octets)
        while rest:
            room = self.connection.receive_room()
            count = min(len(room), len(rest))
            assert count, "no room to receive into"
            room[:count] = rest[:count]
            rest = rest[count:]
            self.connection.received(count, self.now)
            while (event := self.connection.next_event()) is not None:
                self.events.append(self._record(event))
            self.connection.settle()

    def give_slowly(self, octets: bytes) -> None:
        """One byte at a time."""
        for position in range(len(octets)):
            self.give(octets[position : position + 1])

    def _record(self, event: ConnectionEvent) -> RecordedEvent:
        if isinstance(event, DataReceived):
            return self._record_data(event)
        if isinstance(event, HeadersReceived):
            stream_id, headers = event.stream.stream_id, tuple(event.headers)
            return RecordedEvent("headers", stream_id, end_stream=event.end_stream, headers=headers)
        if isinstance(event, StreamReset):
            return RecordedEvent("reset", event.stream.stream_id, code=event.code, text=event.text)
        if isinstance(event, WindowOpened):
            return RecordedEvent("window opened", event.stream.stream_id if event.stream is not None else 0)
        if isinstance(event, PingAnswered):
            return RecordedEvent("ping answered", text=event.payload.hex())
        if isinstance(event, GoawayReceived):
            return RecordedEvent("goaway", event.last_stream_id, code=event.code, text=event.text)
        if isinstance(event, ConnectionFailed):
            return RecordedEvent("failed", code=event.code, text=event.text)
        assert isinstance(event, SettingsReceived)
        return RecordedEvent("settings")

    def _record_data(self, event: DataReceived) -> RecordedEvent:
        stream_id, payload = event.stream.stream_id, bytes(event.view[event.start : event.end])
        assert payload == event.data[event.start : event.end]
        self.received.setdefault(stream_id, bytearray()).extend(payload)
        if self.gives_credit:
            self.connection.credit(event.stream, len(payload))
        return RecordedEvent("data", stream_id, payload, event.end_stream)

    def names(self) -> list[str]:
        return [event.name for event in self.events]

    def last(self, name: str) -> RecordedEvent:
        return [event for event in self.events if event.name == name][-1]

    def stream(self, stream_id: int) -> Stream:
        return self.connection.streams.by_id[stream_id]

    def write(self, stream: Stream, prefix: PayloadPrefix, payload: bytes) -> int:
        """One DATA packet with as much of the payload as fits now; how much that was."""
        room = self.connection.sender.payload_room(stream, prefix.size)
        if room is None:
            return 0
        count = min(len(room), len(payload))
        room[:count] = payload[:count]
        self.connection.sender.payload_written(stream, prefix.for_length(count), count)
        return count


class Theirs:
    """`h2` in either role."""

    def __init__(self, is_client: bool, settings: dict[int, int] | None = None, *, gives_credit: bool = True) -> None:
        # Some tests break rules on purpose: h2 must not check what it sends.
        configuration = h2.config.H2Configuration(
            client_side=is_client,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.http2 = h2.connection.H2Connection(configuration)
        if settings:
            values = {h2.settings.SettingCodes(number): value for number, value in settings.items()}
            self.http2.local_settings = h2.settings.Settings(client=is_client, initial_values=values)
            self.http2.max_inbound_frame_size = self.http2.local_settings.max_frame_size
        self.http2.initiate_connection()
        self.events: list[Any] = []
        self.received: dict[int, bytearray] = {}
        self.gives_credit = gives_credit
        self._unsent = bytearray()
        self._unread = bytearray()
        self._preface_bytes = 0 if is_client else len(frames.PREFACE)

    def take(self, limit: int = 1 << 30) -> bytes:
        self._unsent += self.http2.data_to_send()
        taken = bytes(self._unsent[:limit])
        del self._unsent[:limit]
        return taken

    def give(self, octets: bytes) -> None:
        """Frame by frame, because h2 lets settings hold only from the next call on."""
        self._unread += octets
        while self._unread:
            size = self._preface_bytes or 9 + int.from_bytes(self._unread[:3], "big")
            if len(self._unread) < size:
                return
            self._preface_bytes = 0
            self._receive(bytes(self._unread[:size]))
            del self._unread[:size]

    def _receive(self, octets: bytes) -> None:
        for event in self.http2.receive_data(octets):
            self.events.append(event)
            if isinstance(event, h2.events.DataReceived):
                self.received.setdefault(event.stream_id, bytearray()).extend(event.data)
                if self.gives_credit:
                    self.http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def pump(one: End, other: End, cuts: Iterable[int] = repeat(1 << 30)) -> None:
    """Carry bytes both ways, in pieces of the given sizes, until neither end has any."""
    sizes: Iterator[int] = iter(cuts)
    for _ in range(MANY_TURNS):
        quiet = True
        for sender, receiver in ((one, other), (other, one)):
            octets = sender.take(next(sizes, 1 << 30))
            if octets:
                receiver.give(octets)
                quiet = False
        if quiet:
            return
    raise AssertionError("the two ends never stop sending")


def our_pair(
    client_limits: ConnectionLimits | None = None, server_limits: ConnectionLimits | None = None
) -> tuple[Ours, Ours]:
    """Our client and our server, past the greeting."""
    client, server = Ours(True, client_limits), Ours(False, server_limits)
    pump(client, server)
    return client, server


def open_stream(client: Ours, server: Ours) -> tuple[Stream, Stream]:
    """One stream, seen from both ends, its request headers delivered."""
    stream = client.connection.sender.open_stream(REQUEST)
    pump(client, server)
    return stream, server.stream(stream.stream_id)


def one_stream(
    client_limits: ConnectionLimits | None = None, server_limits: ConnectionLimits | None = None
) -> tuple[Ours, Ours, Stream, Stream]:
    """Our client and our server, and one stream seen from both ends."""
    client, server = our_pair(client_limits, server_limits)
    return client, server, *open_stream(client, server)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream_id) + payload


def greeting(settings: Iterable[tuple[int, int]] = ()) -> bytes:
    """What a client sends first."""
    return frames.PREFACE + settings_frame(settings)


def settings_frame(settings: Iterable[tuple[int, int]] = ()) -> bytes:
    return frame(frames.SETTINGS, 0, 0, b"".join(struct.pack(">HI", number, value) for number, value in settings))


@dataclass(frozen=True)
class Frame:
    """One frame as it went over the wire."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes


def split(octets: bytes) -> list[Frame]:
    """Cut bytes into frames; they must end at a frame's end."""
    found = []
    octets = octets.removeprefix(frames.PREFACE)
    position = 0
    while position < len(octets):
        end = position + 9 + int.from_bytes(octets[position : position + 3], "big")
        assert end <= len(octets), "a frame is cut short"
        stream_id = int.from_bytes(octets[position + 5 : position + 9], "big")
        found.append(Frame(octets[position + 3], octets[position + 4], stream_id, octets[position + 9 : end]))
        position = end
    return found


def goaway_code(octets: bytes) -> int:
    """The code of the one GOAWAY among these frames."""
    (found,) = [one for one in split(octets) if one.kind == frames.GOAWAY]
    return int.from_bytes(found.payload[4:8], "big")


BLOCK: Final = encode_headers(REQUEST)
HEADERS: Final = frame(frames.HEADERS, frames.END_HEADERS, 1, BLOCK)
"""The first call of a client."""


def greeted_server(*more: bytes, limits: ConnectionLimits | None = None) -> Ours:
    """A server after the greeting of a client; what it sent so far is discarded."""
    server = Ours(False, limits)
    server.give(greeting() + b"".join(more))
    server.take()
    return server


def greeted_client() -> Ours:
    client = Ours(True)
    client.give(settings_frame())
    client.take()
    return client


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(frames.WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))
