"""One tunnel through a server in mode grpc, blocking: one connection with one Proxy stream, as kube-apiserver's are."""

import socket
from typing import Final
from urllib.parse import quote

from umbilical.tunnel.blocking_dial import Deadline, DialRefused, open_socket, unix_dial_text
from umbilical.tunnel.proxy_call import CHUNK_BYTES, ProxyCall, rpc_error
from umbilical.wire.packets import DialResponse

USER_AGENT: Final = b"umbilical-blocking-dial"
FAREWELL_SECONDS: Final = 1.0
"""For the answer to CLOSE_REQ; konnectivity-client waits 20 s, but nothing is lost with an answer that is late."""


def dial_grpc(socket_path: str, address: str, deadline: Deadline) -> "GrpcStream":
    try:
        sock = open_socket(socket_path, deadline)
    except OSError as error:
        why = f'connection error: desc = "transport: Error while dialing: {unix_dial_text(socket_path, error)}"'
        raise DialRefused(rpc_error("Unavailable", why)) from None
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
        self._received = bytearray()
        authority = quote(socket_path, safe="").encode()
        self._call: Final = ProxyCall(authority, b"http", USER_AGENT, self._received.extend)
        self._connection: Final = self._call.connection
        self._is_deaf = False
        """The server takes nothing more from us."""

    def dial(self, address: str) -> None:
        self._call.dial(address)
        self._flush()
        answer = self._answer()
        if answer.error:
            raise DialRefused(answer.error)

    def send(self, payload: bytes) -> None:
        for start in range(0, len(payload), CHUNK_BYTES):
            self._call.send(payload[start : start + CHUNK_BYTES])
            self._finish_sending()

    def receive(self) -> bytes:
        while not self._received and self._call.end is None:
            self._read()
        if not self._received and self._call.end:
            raise ConnectionError(self._call.end)
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
        if self._call.end is not None:
            return
        self._deadline = Deadline(FAREWELL_SECONDS)
        self._call.say_goodbye()
        self._finish_sending()
        while self._call.end is None:
            self._read()

    def _answer(self) -> DialResponse:
        while True:
            if self._call.answer is not None:
                return self._call.answer
            if self._call.end is not None:
                raise DialRefused(self._call.end or "EOF")
            self._read()

    def _finish_sending(self) -> None:
        self._flush()
        while not self._call.has_room() and self._call.end is None:
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
            self._call.lost()
            return
        self._call.received(count)
        self._flush()
