"""DATA frames of a stream: the same packets however they are cut, and payload arrives as it was sent.

Input: how (bit 0: payload that we send ourselves, bit 1: on a plain stream), the largest piece, then bytes.
"""

from typing import Final

from tests.fuzz.choices import Choices, pieces
from tests.wire.http2.ends import RecordedEvent, one_stream, pump

from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2.buffers import Block
from umbilical.wire.http2.events import DataReceived
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import DataPrefix, PlainPrefix, read_packets
from umbilical.wire.packets import Data, Packet

SENT: Final = 1
PLAIN: Final = 2
CONNECTION_ID: Final = 300
"""Its varint has two bytes, as most have."""
Item = tuple[int, bytes]


class RecordingSink:
    """Keeps the connection and payload of DATA packets, and the type of all others."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.refusal = ""

    def accepts_packets(self) -> bool:
        return True

    def on_payload(self, connection_id: int, view: memoryview) -> None:
        self.items.append((connection_id, bytes(view)))

    def on_packet(self, packet: Packet) -> None:
        if isinstance(packet, Data):
            self.items.append((packet.connection_id, packet.payload))
        else:
            self.items.append((-packet.kind, b""))

    def read(self, event: DataReceived) -> bool:
        """False after a refusal."""
        try:
            read_packets(event, self)
        except ProtocolViolation as violation:
            self.refusal = violation.message
        return not self.refusal


def target(data: bytes) -> None:
    choices = Choices(data)
    how, largest = choices.number(), choices.number()
    octets = choices.rest()
    if how & SENT:
        _send(octets, largest, is_plain=bool(how & PLAIN))
    else:
        assert _read(octets, len(octets)) == _read(octets, largest), "cut differently, other packets"


def _read(octets: bytes, largest: int) -> tuple[list[Item], str]:
    sink, stream = RecordingSink(), Stream(1, 0, 0)
    for piece in pieces(octets, largest):
        if not sink.read(_event(stream, piece)):
            break
    return sink.items, sink.refusal


def _event(stream: Stream, payload: bytes) -> DataReceived:
    block = Block(len(payload))
    block.data[:] = payload
    event = DataReceived(block)
    event.stream, event.end = stream, len(payload)
    return event


def _send(octets: bytes, largest: int, *, is_plain: bool) -> None:
    client, server, stream, _ = one_stream()
    prefix = PlainPrefix(stream.stream_id) if is_plain else DataPrefix(stream.stream_id, CONNECTION_ID)
    for piece in pieces(octets, largest):
        assert client.write(stream, prefix, piece) == len(piece)
        pump(client, server)
    assert _received(server.events, is_plain=is_plain) == list(pieces(octets, largest))


def _received(events: list[RecordedEvent], *, is_plain: bool) -> list[bytes]:
    payloads = [event.payload for event in events if event.name == "data"]
    if is_plain:
        return payloads
    sink, stream = RecordingSink(), Stream(1, 0, 0)
    for payload in payloads:
        assert sink.read(_event(stream, payload)), sink.refusal
    assert {connection_id for connection_id, _ in sink.items} <= {CONNECTION_ID}
    return [payload for _, payload in sink.items]
