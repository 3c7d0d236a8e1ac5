"""The two programs of the breakage slow-reader; each runs until it is killed.

`python -m umbilical.lab.breakages.slow_reader source ADDRESS PORT` sends zeros to every client.
`python -m umbilical.lab.breakages.slow_reader grpc|http-connect SOCKET ADDRESS` opens a tunnel and never reads from it.
"""

import socket
import socketserver
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from umbilical.dialer.blocking import BlockingDialer
from umbilical.dialer.failure import DialFailed
from umbilical.dialer.settings import DialerSettings, Protocol, UnixServer
from umbilical.konnectivity.dial_failure import split_host_port

READY: Final = "listening"
CHUNK: Final = bytes(64 * 1024)
DIAL_SECONDS: Final = 30.0


class EndlessHandler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        try:
            while True:
                self.request.sendall(CHUNK)
        except OSError:
            return  # the client closed the connection


class EndlessSource(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), EndlessHandler)


def send_without_end(address: str, port: int) -> None:
    with EndlessSource(address, port) as source:
        print(READY, flush=True)
        source.serve_forever()


def read_nothing(mode: str, socket_path: str, address: str, hold: threading.Event | None = None) -> int:
    """Keep a tunnel open until the process is killed or `hold` is set."""
    settings = DialerSettings((UnixServer(Path(socket_path)),), protocol=Protocol(mode))
    with BlockingDialer(settings) as dialer:
        try:
            stream = dialer.open(*split_host_port(address), DIAL_SECONDS)
        except (DialFailed, TimeoutError) as failure:
            print(f"no tunnel to {address}: {failure}", file=sys.stderr)
            return 1
        with stream:
            print(f"tunnel to {address} open, not reading", flush=True)
            (hold or threading.Event()).wait()
    return 0


def main(arguments: Sequence[str]) -> int:
    what, first, second = arguments
    if what != "source":
        return read_nothing(what, first, second)
    send_without_end(first, int(second))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
