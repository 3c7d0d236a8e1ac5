"""A client's one tunnel through a server in mode grpc, without I/O: one connection with one Proxy stream.

The owner of the socket moves bytes: out from `connection.outbox`, in through `receive_room` and `received`.
"""

import os
import time
from collections.abc import Callable
from typing import Final

from umbilical.wire import grpc, packets
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2 import frames
from umbilical.wire.http2.buffers import Block, BlockPool
from umbilical.wire.http2.connection import Connection
from umbilical.wire.http2.events import (
    ConnectionEvent,
    ConnectionFailed,
    DataReceived,
    GoawayReceived,
    HeadersReceived,
    StreamReset,
)
from umbilical.wire.http2.frames import ConnectionLimits
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_data import read_packets

PROXY_PATH: Final = b"/ProxyService/Proxy"
CHUNK_BYTES: Final = 16 * 1024
"""Payload of one DATA packet: with its prefixes at most half of the smallest first window of a server."""
BLOCK_BYTES: Final = 64 * 1024
WINDOW_BYTES: Final = 1024 * 1024
"""What the server may send while the reader's credit is withheld."""


class ProxyCall:
    def __init__(
        self,
        authority: bytes,
        scheme: bytes,
        user_agent: bytes,
        deliver: Callable[[memoryview], object],
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        """`deliver` gets the endpoint's bytes; the view is valid during the call."""
        pool, block = BlockPool(BLOCK_BYTES, 1), Block(BLOCK_BYTES)
        limits = ConnectionLimits(stream_window_bytes=window_bytes)
        self.connection: Final = Connection(True, limits, pool, block, shared_block=False)
        headers = grpc.request_headers(PROXY_PATH, authority, scheme, user_agent)
        self.stream: Final[Stream] = self.connection.sender.open_stream(headers)
        self.answer: packets.DialResponse | None = None
        self.end: str | None = None
        """Why nothing more will come; empty after an orderly close."""
        self._deliver: Final = deliver
        self._dial_id: Final = int.from_bytes(os.urandom(8)) >> 2  # positive for Go, too
        self._credit_held = False
        self._credit_owed = 0

    def dial(self, address: str) -> None:
        self._send(packets.encode_dial_request("tcp", address, self._dial_id))

    def send(self, chunk: bytes) -> None:
        """Send at most CHUNK_BYTES, and only while `has_room`, which bounds what waits for the server's window."""
        assert self.answer is not None
        self._send(packets.encode_data(self.answer.connection_id, chunk))

    def has_room(self) -> bool:
        return not self.stream.backlog

    def say_goodbye(self) -> None:
        if self.answer is not None and self.end is None:
            self._send(packets.encode_close_request(self.answer.connection_id))

    def _send(self, message: bytes) -> None:
        self.connection.sender.send_message(self.stream, message)

    def received(self, count: int) -> None:
        """So many bytes were received into `connection.receive_room()`."""
        connection = self.connection
        connection.received(count, time.monotonic())
        while (event := connection.next_event()) is not None:
            self._apply(event)
        connection.settle()

    def lost(self) -> None:
        """The socket has ended."""
        self._over(rpc_error("Unavailable", "error reading from server: EOF"))

    def hold_credit(self) -> None:
        """The reader is slow: grant the server no more credit."""
        self._credit_held = True

    def release_credit(self) -> None:
        self._credit_held = False
        owed, self._credit_owed = self._credit_owed, 0
        self.connection.credit(self.stream, owed)

    def _apply(self, event: ConnectionEvent) -> None:
        if isinstance(event, DataReceived):
            self._take_messages(event)
        elif isinstance(event, StreamReset):
            # A server that leaves refuses streams: another one may be tried (RFC 9113 section 8.7).
            code = "Unavailable" if event.code == frames.REFUSED_STREAM else "Internal"
            self._over(rpc_error(code, f"stream terminated by RST_STREAM: {event.text}"))
        elif isinstance(event, ConnectionFailed) or (isinstance(event, GoawayReceived) and self._is_expelled(event)):
            self._over(rpc_error("Unavailable", f"connection ended: {event.text or 'GOAWAY'}"))
        elif isinstance(event, HeadersReceived) and event.end_stream:
            status, text = grpc.status_of(event.headers)
            self._over(rpc_error(_code_name(status), text) if status else "")

    def _is_expelled(self, goaway: GoawayReceived) -> bool:
        """Whether the server ends our stream: when it drains, it sends GOAWAY early and lets known streams end."""
        return goaway.code != frames.NO_ERROR or self.stream.stream_id > goaway.last_stream_id

    def _over(self, text: str) -> None:
        """Only the first end counts."""
        if self.end is None:
            self.end = text

    def _take_messages(self, event: DataReceived) -> None:
        size = event.end - event.start
        try:
            read_packets(event, self)
        except ProtocolViolation as violation:
            self._over(rpc_error("Internal", violation.message))
        if self._credit_held:
            self._credit_owed += size
        else:
            self.connection.credit(self.stream, size)

    def accepts_packets(self) -> bool:
        return True

    def on_payload(self, connection_id: int, view: memoryview) -> None:
        self._deliver(view)

    def on_packet(self, packet: packets.Packet) -> None:
        match packet:
            case packets.Data():
                self._deliver(memoryview(packet.payload))
            case packets.CloseResponse():
                self._over(packet.error)
            case packets.DialResponse() if packet.dial_id == self._dial_id and self.answer is None:
                self.answer = packet
            case _:
                pass


def rpc_error(code: str, text: str) -> str:
    """grpc-go's form."""
    return f"rpc error: code = {code} desc = {text}"


def _code_name(status: int) -> str:
    return grpc.CODE_NAMES[status] if status < len(grpc.CODE_NAMES) else f"Code({status})"
