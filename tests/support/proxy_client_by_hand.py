"""A gRPC client of the frontend whose every byte a test moves, on our own HTTP/2 connection."""

import socket
from typing import Any

from tests.support.in_process import PATIENCE_SECONDS
from tests.support.packet_messages import Packet, PacketType
from tests.support.scripted_peers import framed
from tests.wire.http2.ends import REQUEST, Ours

from umbilical.wire.http2.streams import Stream


class ProxyClient:
    """A gRPC client that goes on after a GOAWAY, which `h2` does not; bytes move only when the test asks for it."""

    def __init__(self, sock: socket.socket) -> None:
        self.end = Ours(True)
        self._sock = sock
        sock.settimeout(PATIENCE_SECONDS)

    def call(self) -> Stream:
        stream = self.end.connection.sender.open_stream(REQUEST)
        self.flush()
        return stream

    def send(self, stream: Stream, packet: object) -> None:
        self.end.connection.sender.send_message(stream, framed(packet)[5:])
        self.flush()

    def flush(self) -> None:
        self._sock.sendall(self.end.take())

    def read_until(self, name: str, count: int) -> None:
        """Until so many events of this name have come. What they make us answer, such as a PING, is sent."""
        while self.end.names().count(name) < count:
            octets = self._sock.recv(1 << 16)
            assert octets, f"the server closed: {self.end.names()}"
            self.end.give(octets)
            self.flush()

    def goaways(self) -> list[tuple[int, int]]:
        return [(event.stream_id, event.code) for event in self.end.events if event.name == "goaway"]

    def packets(self, stream: Stream) -> list[Any]:
        octets, found = bytes(self.end.received[stream.stream_id]), []
        while octets:
            size = 5 + int.from_bytes(octets[1:5])
            found.append(Packet.FromString(octets[5:size]))
            octets = octets[size:]
        return found

    def payload(self, stream: Stream) -> list[bytes]:
        return [packet.data.data for packet in self.packets(stream) if packet.type == PacketType.DATA]
