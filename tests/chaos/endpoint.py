"""An endpoint for the storm: `python -m tests.chaos.endpoint NAME ADDRESS PORT LEDGER`.

It greets with its name and with the address that it was dialled from, hears what the tunnel is for, and checks every
byte. A row of the ledger is written when the tunnel is over, however it ends.
"""

import json
import socket
import socketserver
import sys
from pathlib import Path
from typing import Any, BinaryIO, Final

from tests.chaos.ledger import ACKNOWLEDGE_BYTES, THANKS, Ledger, Shape, Visit
from tests.chaos.pattern import Check, Direction, Violation, stretch

# Longer than any fault lasts: whoever is silent for so long is not coming back.
IDLE_SECONDS: Final = 60.0
PIECE_BYTES: Final = 32768


class Endpoint(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, name: str, address: str, port: int, ledger: Ledger) -> None:
        super().__init__((address, port), _Visitor)
        self.name, self.ledger = name, ledger

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: the visitor has written down how its tunnel ended, and an unopened one is the client's story."""


class _Visitor(socketserver.BaseRequestHandler):
    server: Endpoint

    def handle(self) -> None:
        sock: socket.socket = self.request
        sock.settimeout(IDLE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = {"endpoint": self.server.name, "caller": self.client_address[0]}
        sock.sendall(json.dumps(greeting).encode() + b"\n")
        with sock.makefile("rb") as stream:
            order = stream.readline()
            if order.endswith(b"\n"):
                self._obey(sock, stream, json.loads(order))

    def _obey(self, sock: socket.socket, stream: BinaryIO, order: dict[str, Any]) -> None:
        visit = Visit(order["tunnel"], self.server.name, Shape(order["shape"]), order["size"])
        try:
            _CONDUCT[visit.shape](sock, stream, visit)
            # The client closes first; what it sends instead was never promised.
            if stream.read(1):
                raise Violation(f"tunnel {visit.tunnel:x}: bytes behind the last one")
            visit.how = "closed"
        except OSError as error:
            visit.how = str(error) or type(error).__name__
        except EOFError:
            visit.how = "ended early"
        except Violation as violation:
            visit.violation = str(violation)
        finally:
            self.server.ledger.write(visit)


def _take_up(sock: socket.socket, stream: Any, visit: Visit) -> None:
    check = Check(visit.tunnel, Direction.UP, visit.size)
    told = 0
    while not check.is_whole:
        octets = stream.read1(PIECE_BYTES)
        if not octets:
            raise EOFError
        check.take(octets)
        visit.received = check.offset
        if check.offset - told >= ACKNOWLEDGE_BYTES or check.is_whole:
            told = check.offset
            sock.sendall(told.to_bytes(8, "big"))
            visit.sent += 8


def _return(sock: socket.socket, stream: Any, visit: Visit) -> None:
    check = Check(visit.tunnel, Direction.UP, visit.size)
    while not check.is_whole:
        octets = stream.read1(PIECE_BYTES)
        if not octets:
            raise EOFError
        check.take(octets)
        visit.received = check.offset
        # Before, not after: a client that has a byte must find it in the account, also when sending fails half-way.
        visit.sent += len(octets)
        sock.sendall(octets)


def _send_down(sock: socket.socket, stream: Any, visit: Visit) -> None:
    while visit.sent < visit.size:
        piece = stretch(visit.tunnel, Direction.DOWN, visit.sent, min(PIECE_BYTES, visit.size - visit.sent))
        visit.sent += len(piece)
        sock.sendall(piece)
    while visit.acknowledged < visit.size:
        word = stream.read(8)
        if len(word) < 8:
            raise EOFError
        told = int.from_bytes(word, "big")
        if not visit.acknowledged < told <= visit.size:
            raise Violation(f"tunnel {visit.tunnel:x}: {told} acknowledged after {visit.acknowledged}")
        visit.received += 8
        visit.acknowledged = told
    visit.sent += len(THANKS)
    sock.sendall(THANKS)


_CONDUCT: Final = {Shape.ECHO: _return, Shape.UP: _take_up, Shape.DOWN: _send_down}


def main() -> None:
    name, address, port, ledger = sys.argv[1:]
    with Endpoint(name, address, int(port), Ledger(Path(ledger))) as endpoint:
        endpoint.serve_forever()


if __name__ == "__main__":
    main()
