"""Both ends of a WebSocket, by the library's own code, over a connection that a test has made."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.tunnel_pair import free_port
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.sync.server import ServerConnection, serve
from websockets.uri import parse_uri


def _echo(connection: ServerConnection) -> None:
    for message in connection:
        connection.send(message)


@contextmanager
def websocket_server() -> Iterator[int]:
    with serve(_echo, "127.0.0.1", free_port()) as server:
        thread = threading.Thread(target=server.serve_forever, name="websockets")
        thread.start()
        try:
            yield server.socket.getsockname()[1]
        finally:
            server.shutdown()
            thread.join(10)


class WebSocket:
    """The library's own client, over a connection of ours: by itself it would not send a plain request to a proxy."""

    def __init__(self, sock: socket.socket, url: str, target: str) -> None:
        self._sock = sock
        self._protocol = ClientProtocol(parse_uri(url))
        request = self._protocol.connect()
        request.path = target
        self._protocol.send_request(request)
        self._flush()
        self._events: list[Any] = []
        assert self._next().status_code == 101
        assert self._protocol.handshake_exc is None

    def say(self, text: str) -> str:
        self._protocol.send_text(text.encode())
        self._flush()
        frame = self._next()
        assert isinstance(frame, Frame)
        return bytes(frame.data).decode()

    def close(self) -> None:
        self._protocol.send_close()
        self._flush()
        assert self._next().opcode is Opcode.CLOSE

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            self._sock.sendall(data)

    def _next(self) -> Any:
        while not self._events:
            self._protocol.receive_data(self._sock.recv(65536))
            self._events = list(self._protocol.events_received())
        return self._events.pop(0)
