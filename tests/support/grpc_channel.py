"""A blocking gRPC channel on `h2`, client or server side, that can also misbehave: raw bytes, resets, silence.

It reads only when asked to (`pump`), so a test that does not read is a peer that does not read.
"""

import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from tests.support.packet_messages import Packet

WINDOW_BYTES: Final = 1024 * 1024
PATIENCE_SECONDS: Final = 60.0
Headers = Iterable[tuple[str, str]]


class ChannelClosed(Exception):
    """The peer ended the connection."""


class GrpcStream:
    """One RPC; messages that arrived wait in `messages` until they are received."""

    def __init__(self, channel: "GrpcChannel", stream_id: int, request_headers: Headers = ()) -> None:
        self.channel = channel
        self.stream_id = stream_id
        self.request_headers = dict(request_headers)
        self.response_headers: dict[str, str] | None = None
        self.trailers: dict[str, str] | None = None
        self.messages: deque[bytes] = deque()
        self.reset_code: int | None = None
        self.ended = False
        self._partial = bytearray()

    def send(self, packet: Any) -> None:
        message = packet.SerializeToString()
        self.send_raw(b"\0" + len(message).to_bytes(4, "big") + message)

    def send_raw(self, octets: bytes, timeout: float = PATIENCE_SECONDS) -> None:
        """Send bytes of the message stream as they are, within the peer's windows."""
        deadline = time.monotonic() + timeout
        rest = memoryview(octets)
        while rest:
            room = self.channel.room(self.stream_id)
            if not room:
                self.channel.pump(deadline)
                continue
            self.channel.http2.send_data(self.stream_id, bytes(rest[:room]))
            self.channel.flush()
            rest = rest[room:]

    def receive(self, timeout: float = PATIENCE_SECONDS) -> Any:
        """Return the next packet, or None when the stream has ended."""
        deadline = time.monotonic() + timeout
        while not self.messages:
            if self.ended:
                return None
            self.channel.pump(deadline)
        return Packet.FromString(self.messages.popleft())

    def wait_for_headers(self, timeout: float = PATIENCE_SECONDS) -> dict[str, str]:
        deadline = time.monotonic() + timeout
        while self.response_headers is None:
            self.channel.pump(deadline)
        return self.response_headers

    def wait_for_end(self, timeout: float = PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + timeout
        while not self.ended:
            self.channel.pump(deadline)

    def ended_with(self) -> dict[str, str]:
        """Wait for the end; its trailers."""
        self.wait_for_end()
        assert self.trailers is not None
        return self.trailers

    def finish(self) -> None:
        """Half-close, as gRPC's CloseSend does."""
        self.channel.http2.end_stream(self.stream_id)
        self.channel.flush()

    def cancel(self) -> None:
        self.channel.http2.reset_stream(self.stream_id, h2.errors.ErrorCodes.CANCEL)
        self.ended = True
        self.channel.flush()

    def _data_arrived(self, octets: bytes) -> None:
        self._partial += octets
        while len(self._partial) >= 5:
            end = 5 + int.from_bytes(self._partial[1:5], "big")
            if len(self._partial) < end:
                return
            self.messages.append(bytes(self._partial[5:end]))
            del self._partial[:end]

    def _headers_arrived(self, headers: dict[str, str]) -> None:
        if self.response_headers is None:
            self.response_headers = headers
        if "grpc-status" in headers:
            self.trailers = headers


class GrpcChannel:
    """An HTTP/2 connection over any connected socket (plain or TLS)."""

    def __init__(self, sock: socket.socket, authority: str = "localhost", *, client_side: bool = True) -> None:
        self.socket = sock
        self.authority = authority
        self.streams: dict[int, GrpcStream] = {}
        self.accepted: deque[GrpcStream] = deque()
        self.goaway = False
        self.ended = False
        self.http2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=client_side, header_encoding="utf-8")
        )
        _go_on_after_goaway(self.http2)
        self.http2.initiate_connection()
        self.http2.increment_flow_control_window(16 * WINDOW_BYTES)
        self.flush()

    def open(self, path: str, metadata: Headers = ()) -> GrpcStream:
        stream = GrpcStream(self, self.http2.get_next_available_stream_id())
        self.streams[stream.stream_id] = stream
        scheme = "https" if isinstance(self.socket, ssl.SSLSocket) else "http"
        pseudo = [(":method", "POST"), (":scheme", scheme), (":path", path), (":authority", self.authority)]
        plain = [("content-type", "application/grpc"), ("user-agent", "grpc-go/1.83.0"), ("te", "trailers")]
        self.http2.send_headers(stream.stream_id, [*pseudo, *plain, *metadata])
        self.http2.increment_flow_control_window(WINDOW_BYTES, stream.stream_id)
        self.flush()
        return stream

    def accept(self, timeout: float = PATIENCE_SECONDS) -> GrpcStream:
        """Return the next stream that the peer opened (server side)."""
        deadline = time.monotonic() + timeout
        while not self.accepted:
            self.pump(deadline)
        return self.accepted.popleft()

    def respond(self, stream: GrpcStream, metadata: Headers) -> None:
        headers = [(":status", "200"), ("content-type", "application/grpc"), *metadata]
        self.http2.send_headers(stream.stream_id, headers)
        self.flush()

    def room(self, stream_id: int) -> int:
        """Say how many bytes may be sent at once now."""
        self._read_what_waits()
        stream = self.streams[stream_id]
        if stream.ended:
            raise ChannelClosed(f"stream {stream_id} ended: {stream.trailers} reset={stream.reset_code}")
        return min(self.http2.local_flow_control_window(stream_id), self.http2.max_outbound_frame_size)

    def pump(self, deadline: float) -> None:
        """Wait for bytes from the peer and apply them. Raises TimeoutError after the deadline."""
        if self.ended:
            raise ChannelClosed("the connection has ended")
        if not self._readable(max(0.0, deadline - time.monotonic())):
            raise TimeoutError("nothing came from the peer in time")
        self._read_once()

    def flush(self) -> None:
        octets = self.http2.data_to_send()
        if octets:
            self.socket.sendall(octets)

    def close(self) -> None:
        self.ended = True
        self.socket.close()

    def _read_what_waits(self) -> None:
        while not self.ended and self._readable(0.0):
            self._read_once()

    def _readable(self, wait_seconds: float) -> bool:
        if isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            return True
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        return bool(poller.poll(wait_seconds * 1000))

    def _read_once(self) -> None:
        try:
            octets = self.socket.recv(256 * 1024)
        except OSError:
            octets = b""
        if not octets:
            self._end()
            return
        for event in self.http2.receive_data(octets):
            self._apply(event)
        self.flush()

    def _end(self) -> None:
        self.ended = True
        for stream in self.streams.values():
            stream.ended = True

    def _apply(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived):
            self.http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self.streams[event.stream_id]._data_arrived(event.data)
        elif isinstance(event, h2.events.RequestReceived):
            self._accept(event.stream_id, event.headers)
        elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            self.streams[event.stream_id]._headers_arrived(_strings(event.headers))
        elif isinstance(event, h2.events.StreamEnded):
            self.streams[event.stream_id].ended = True
        elif isinstance(event, h2.events.StreamReset):
            self.streams[event.stream_id].ended = True
            self.streams[event.stream_id].reset_code = int(event.error_code)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.goaway = True

    def _accept(self, stream_id: int, headers: Any) -> None:
        stream = GrpcStream(self, stream_id, _strings(headers).items())
        self.streams[stream_id] = stream
        self.accepted.append(stream)


def _go_on_after_goaway(http2: h2.connection.H2Connection) -> None:
    """As grpc-go: open streams continue after GOAWAY (RFC 9113 section 6.8). `h2` closes the connection."""
    state, goaway = h2.connection.ConnectionState.CLIENT_OPEN, h2.connection.ConnectionInputs.RECV_GOAWAY
    machine = http2.state_machine
    # On this instance only: the table belongs to the class.
    machine._transitions = {**machine._transitions, (state, goaway): (None, state)}


def _strings(headers: Any) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in headers}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
