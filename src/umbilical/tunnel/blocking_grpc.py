"""One tunnel through a server in mode grpc, blocking: one connection with one Proxy stream, as kube-apiserver's are."""

import secrets
import socket
from typing import Final
from urllib.parse import quote

from umbilical.tunnel.blocking_dial import Deadline, DialRefused, open_socket, unix_dial_text
from umbilical.wire import grpc, packets
from umbilical.wire.buffer import Block, BlockPool
from umbilical.wire.errors import ProtocolViolation
from umbilical.wire.http2 import connection as http2
from umbilical.wire.http2.streams import Stream
from umbilical.wire.packet_decoding import decode_packet

PROXY_PATH: Final = b"/ProxyService/Proxy"
USER_AGENT: Final = b"umbilical-blocking-dial"
CHUNK_BYTES: Final = 16 * 1024
"""Of one DATA packet: with its prefixes within half of the smallest window that a server starts with."""
BLOCK_BYTES: Final = 64 * 1024
FAREWELL_SECONDS: Final = 1.0
"""For the answer to CLOSE_REQ; konnectivity-client waits 20 s, but nothing is lost with an answer that is late."""
_DIAL_ID_BITS: Final = 62


def dial_grpc(socket_path: str, address: str, deadline: Deadline) -> "GrpcStream":
    try:
        sock = open_socket(socket_path, deadline)
    except OSError as error:
        why = f'connection error: desc = "transport: Error while dialing: {unix_dial_text(socket_path, error)}"'
        raise DialRefused(_rpc_error("Unavailable", why)) from None
    stream = GrpcStream(sock, socket_path, deadline)
    try:
        stream.dial(address)
    except TimeoutError:
        sock.close()
        raise DialRefused("context deadline exceeded") from None
    except BaseException:
        sock.close()
        raise
    return stream


class GrpcStream:
    """Fulfils `blocking_dial.Stream`."""

    def __init__(self, sock: socket.socket, socket_path: str, deadline: Deadline) -> None:
        self._socket: Final = sock
        self._deadline = deadline
        pool, block = BlockPool(BLOCK_BYTES, 1), Block(BLOCK_BYTES)
        self._connection: Final = http2.Connection(True, http2.Profile(), pool, block, shared_block=False)
        authority = quote(socket_path, safe="").encode()
        headers = grpc.request_headers(PROXY_PATH, authority, b"http", USER_AGENT)
        self._stream: Final[Stream] = self._connection.open_stream(headers)
        self._connection_id = 0
        self._received = bytearray()
        self._packets: list[packets.Packet] = []
        self._end: str | None = None
        """Why nothing more will come; empty after an orderly close."""
        self._is_deaf = False
        """The server takes nothing more from us."""

    def dial(self, address: str) -> None:
        dial_id = secrets.randbits(_DIAL_ID_BITS)
        self._send(packets.encode_dial_request("tcp", address, dial_id))
        answer = self._answer(dial_id)
        if answer.error:
            raise DialRefused(answer.error)
        self._connection_id = answer.connection_id

    def send(self, payload: bytes) -> None:
        for start in range(0, len(payload), CHUNK_BYTES):
            self._send(packets.encode_data(self._connection_id, payload[start : start + CHUNK_BYTES]))

    def receive(self) -> bytes:
        while not self._received and self._end is None:
            self._read()
        if not self._received and self._end:
            raise ConnectionError(self._end)
        taken = bytes(self._received)
        self._received.clear()
        return taken

    def close(self) -> None:
        try:
            self._say_goodbye()
        except OSError:
            pass  # the server is gone, or slow: the end of the socket tells it the same
        finally:
            self._socket.close()

    def _say_goodbye(self) -> None:
        if self._end is not None:
            return
        self._deadline = Deadline(FAREWELL_SECONDS)
        self._send(packets.encode_close_request(self._connection_id))
        while self._end is None:
            self._read()

    def _answer(self, dial_id: int) -> packets.DialResponse:
        while True:
            for packet in self._packets:
                if isinstance(packet, packets.DialResponse) and packet.dial_id == dial_id:
                    return packet
            if self._end is not None:
                raise DialRefused(self._end or "EOF")
            self._read()

    def _send(self, message: bytes) -> None:
        self._connection.send_message(self._stream, message)
        self._flush()
        while self._stream.backlog and self._end is None:
            self._read()

    def _flush(self) -> None:
        while self._connection.has_pending() and not self._is_deaf:
            while (view := self._connection.pending()) is not None:
                self._socket.settimeout(self._deadline.remaining())
                try:
                    self._connection.sent(self._socket.send(view))
                except ConnectionError:
                    # It may have said why before it went: what was received is read to its end.
                    self._is_deaf = True
                    return
            self._connection.after_flush()

    def _read(self) -> None:
        """Wait for bytes and apply what they say."""
        self._socket.settimeout(self._deadline.remaining())
        try:
            count = self._socket.recv_into(self._connection.receive_room())
        except ConnectionError:
            count = 0
        if count == 0:
            self._end = self._end or _rpc_error("Unavailable", "error reading from server: EOF")
            return
        self._connection.received(count, 0.0)
        while (event := self._connection.next_event()) != http2.NEED_DATA:
            self._apply(event)
        self._connection.settle()
        self._flush()

    def _apply(self, event: int) -> None:
        connection = self._connection
        if event == http2.DATA:
            self._take_messages()
        elif event == http2.RESET:
            self._end = _rpc_error("Internal", f"stream terminated by RST_STREAM: {connection.text}")
        elif event in (http2.FAILED, http2.GOAWAY):
            self._end = _rpc_error("Unavailable", f"connection ended: {connection.text or 'GOAWAY'}")
        elif event == http2.HEADERS and connection.end_stream:
            status, text = grpc.status_of(connection.headers)
            self._end = self._end or (_rpc_error(_code_name(status), text) if status else "")

    def _take_messages(self) -> None:
        connection, reader = self._connection, self._stream.reader
        reader.feed(connection.data, connection.view, connection.start, connection.end)
        try:
            while reader.next_message():
                self._take(decode_packet(reader.source, reader.start, reader.end))
        except ProtocolViolation as violation:
            self._end = _rpc_error("Internal", violation.message)
        connection.credit(self._stream, connection.end - connection.start)

    def _take(self, packet: packets.Packet) -> None:
        if isinstance(packet, packets.Data):
            self._received += packet.payload
        elif isinstance(packet, packets.CloseResponse):
            self._end = packet.error
        elif isinstance(packet, packets.DialResponse):
            self._packets.append(packet)


def _code_name(status: int) -> str:
    return grpc.CODE_NAMES[status] if status < len(grpc.CODE_NAMES) else f"Code({status})"


def _rpc_error(code: str, text: str) -> str:
    """grpc-go's form."""
    return f"rpc error: code = {code} desc = {text}"
