"""Servers with a thread for every connection, of which none is left when they close."""

import http.server
import socket
import socketserver
from contextlib import suppress
from typing import Any


class JoinedThreads(socketserver.ThreadingMixIn):
    """`server_close` cuts the connections that are open and joins their threads."""

    daemon_threads = False

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._requests: set[Any] = set()
        super().__init__(*arguments, **settings)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._requests.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._requests.discard(request)
        super().shutdown_request(request)  # type: ignore[misc]

    def server_close(self) -> None:
        for request in list(self._requests):
            with suppress(OSError):
                socket.socket.shutdown(request, socket.SHUT_RDWR)
        super().server_close()


class HttpServer(JoinedThreads, http.server.ThreadingHTTPServer):
    """As the standard library's, but for its end."""
