"""Peers that are neither agents nor clients: one asks for unknown methods and compares the answers, others flood."""

from collections.abc import Callable
from random import Random
from typing import Final
from urllib.parse import unquote

from tests.simulation.http2_peer import (
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Fields,
    Http2Peer,
    frame,
)
from tests.simulation.network import Network
from tests.simulation.sockets import SimListener
from tests.simulation.wire import Wire

from umbilical.wire import packets

CALLS: Final = 10
CALL_SECONDS: Final = 0.08
LARGE_BYTES: Final = 2_500
"""Two such fields do not fit into the dynamic table together."""


class FieldProbe:
    """Calls unknown methods with paths from the dynamic table; each answer must quote the path that was sent."""

    def __init__(self, network: Network, listener: SimListener, tls: bool) -> None:
        self._network: Final = network
        self._random: Final = Random(network.seed * 31 + tls)
        self._asked: Final[dict[int, bytes]] = {}
        self._path = b""
        self._calls = 0
        self.faults: Final[list[str]] = []
        self.answers = 0
        self.peer: Final = Http2Peer(self)
        self.wire: Final = Wire(network.connect(listener), self.peer, tls=tls)
        self.peer.greet(self.wire)
        network.after(CALL_SECONDS, self._call)

    def _call(self) -> None:
        if self.peer.is_over:
            return
        if self._calls == CALLS:
            self.wire.close()
            return
        self._calls += 1
        authority, indexed = b"server", frozenset({b":path"})
        if not self._path or self._random.random() < 0.4:
            self._path = b"/probe.%d/" % self._random.randrange(1_000) + b"p" * LARGE_BYTES
            if self._random.random() < 0.7:
                authority = b"a%d." % self._random.randrange(1_000) + b"a" * LARGE_BYTES
                indexed = frozenset({b":path", b":authority"})
            elif self._random.random() < 0.5:
                self.peer.empty_table()
        fields: Fields = [
            (b":method", b"POST"), (b":scheme", b"https"), (b":authority", authority), (b":path", self._path),
            (b"content-type", b"application/grpc"), (b"te", b"trailers"),
        ]  # fmt: skip
        self._asked[self.peer.open(fields, indexed)] = self._path
        self._network.after(CALL_SECONDS, self._call)

    def on_fields(self, stream_id: int, fields: Fields, ended: bool) -> None:
        path = self._asked.pop(stream_id, None)
        if path is None:
            return
        self.answers += 1
        text = unquote(dict(fields).get(b"grpc-message", b"").decode())
        wanted = "unknown method " + path[:12].decode()
        if not text.startswith(wanted):
            self.faults.append(f"HPACK: sent {path[:12]!r}, the server read {text[:30]!r}")

    def on_message(self, stream_id: int, message: bytes) -> None:
        pass

    def on_stream_over(self, stream_id: int, reason: str) -> None:
        pass

    def on_connection_over(self, reason: str) -> None:
        if self._asked:
            self.faults.append(f"an honest peer was cut off: {reason}")


class Flood:
    """Sends frames as fast as the server takes them, as an admitted agent or as anybody, until it is cut off."""

    CAPACITY_BYTES: Final = 2 * 1024 * 1024
    """A fast network in front of the server."""

    def __init__(self, network: Network, listener: SimListener, kind: str) -> None:
        self._network: Final = network
        self._random: Final = Random(network.seed)
        self.peer: Final = Http2Peer(self)
        sock = network.connect(listener)
        assert sock.peer is not None
        sock.peer.capacity = self.CAPACITY_BYTES
        self.wire: Final = Wire(sock, self.peer, tls=True)
        self.peer.greet(self.wire)
        self.kind: Final = kind
        self._stream = 1
        self._left = LEFT_BYTES[kind]
        if kind == "packets":
            self._admit()
        network.after(0.05, self._more)

    def _admit(self) -> None:
        fields: Fields = [
            (b":method", b"POST"), (b":scheme", b"https"), (b":path", b"/AgentService/Connect"),
            (b":authority", b"server:8091"), (b"content-type", b"application/grpc"), (b"te", b"trailers"),
            (b"agentid", b"flooder"),
        ]  # fmt: skip
        self.peer.open(fields, frozenset())
        self.peer.send_message(1, packets.encode_drain())

    def _more(self) -> None:
        if self.wire.closed or self.peer.is_over or self._left <= 0:
            self._network.after(0.5, self.wire.close)
            return
        if self.wire.unsent() < BURST_BYTES and self.peer.unsent(1) < BURST_BYTES:
            self._left -= BURST_BYTES
            FLOODS[self.kind](self)
        self._network.after(0.0002, self._more)

    def packets(self) -> None:
        message = packets.encode_data(77, bytes(1_000))
        for _ in range(BURST_BYTES // 1_000):
            self.peer.send_message(1, message)

    def pings(self) -> None:
        self.wire.write(frame(PING, 0, 0, bytes(8)) * 3_000)

    def settings(self) -> None:
        self.wire.write(frame(SETTINGS, 0, 0) * 500)

    def windows(self) -> None:
        self.wire.write(frame(WINDOW_UPDATE, 0, 0, (1).to_bytes(4, "big")) * 3_000)

    def resets(self) -> None:
        block = b"\x83\x87\x84\x11\x01x"
        for _ in range(600):
            self.wire.write(frame(HEADERS, 4, self._stream, block))
            self.wire.write(frame(RST_STREAM, 0, self._stream, (8).to_bytes(4, "big")))
            self._stream += 2

    def calls(self) -> None:
        path = b"\x44\x7f\xa1\x1e" + b"/" * 4_000
        for number in range(200):
            block = b"\x83\x87\x11\x01x" + (path if self._stream == 1 and not number else b"\xbe")
            self.wire.write(frame(HEADERS, 4, self._stream, block))
            self._stream += 2

    def garbage(self) -> None:
        self.wire.write(self._random.randbytes(20_000))

    def on_fields(self, stream_id: int, fields: Fields, ended: bool) -> None:
        pass

    def on_message(self, stream_id: int, message: bytes) -> None:
        pass

    def on_stream_over(self, stream_id: int, reason: str) -> None:
        pass

    def on_connection_over(self, reason: str) -> None:
        self.wire.close()


BURST_BYTES: Final = 600_000
FLOODS: Final[dict[str, Callable[[Flood], None]]] = {
    "packets": Flood.packets,
    "pings": Flood.pings,
    "settings": Flood.settings,
    "windows": Flood.windows,
    "resets": Flood.resets,
    "calls": Flood.calls,
    "garbage": Flood.garbage,
}
LEFT_BYTES: Final = {
    "packets": 16 * BURST_BYTES, "pings": 2 * BURST_BYTES, "settings": BURST_BYTES, "windows": 2 * BURST_BYTES,
    "resets": BURST_BYTES, "calls": BURST_BYTES, "garbage": BURST_BYTES,
}  # fmt: skip
