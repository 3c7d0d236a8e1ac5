"""`python -m umbilical.lab.faults.endless_source ADDRESS PORT`: sends zeros to whoever connects, for ever."""

import socket
import socketserver
import sys
from typing import Final

READY: Final = "listening"
CHUNK: Final = bytes(64 * 1024)


class Endless(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        try:
            while True:
                self.request.sendall(CHUNK)
        except OSError:
            return  # whoever read has gone


class Source(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), Endless)


def main(arguments: list[str]) -> None:
    with Source(arguments[0], int(arguments[1])) as source:
        print(READY, flush=True)
        source.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
