"""An endpoint for chaos runs: `python -m tests.chaos.endpoint NAME ADDRESS PORT RECORDS`.

It sends its name and the address that it was dialled from, reads a request, and checks every byte. When the tunnel
ends, for whatever reason, it writes a record.
"""

import json
import socket
import socketserver
import sys
from pathlib import Path
from typing import Any, BinaryIO, Final

from tests.chaos.pattern import Check, Direction, Violation, stretch
from tests.chaos.tunnel_records import ACKNOWLEDGE_BYTES, FINAL_ACKNOWLEDGEMENT, EndpointRecord, RecordFile, TrafficKind

# Longer than any fault: a client that sends nothing for so long is gone.
IDLE_SECONDS: Final = 60.0
PIECE_BYTES: Final = 32768


class Endpoint(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, name: str, address: str, port: int, records: RecordFile) -> None:
        super().__init__((address, port), _TunnelHandler)
        self.name, self.records = name, records

    def handle_error(self, request: object, client_address: object) -> None:
        """Do nothing: the handler has recorded how its tunnel ended, or the client that it did not open."""


class _TunnelHandler(socketserver.BaseRequestHandler):
    server: Endpoint

    def handle(self) -> None:
        sock: socket.socket = self.request
        sock.settimeout(IDLE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = {"endpoint": self.server.name, "caller": self.client_address[0]}
        sock.sendall(json.dumps(greeting).encode() + b"\n")
        with sock.makefile("rb") as stream:
            request = stream.readline()
            if request.endswith(b"\n"):
                self._serve(sock, stream, json.loads(request))

    def _serve(self, sock: socket.socket, stream: BinaryIO, request: dict[str, Any]) -> None:
        record = EndpointRecord(request["tunnel"], self.server.name, TrafficKind(request["kind"]), request["size"])
        try:
            _SERVE_BY_KIND[record.kind](sock, stream, record)
            # The client must close first, without sending more.
            if stream.read(1):
                raise Violation(f"tunnel {record.tunnel:x}: bytes behind the last one")
            record.how = "closed"
        except OSError as error:
            record.how = str(error) or type(error).__name__
        except EOFError:
            record.how = "ended early"
        except Violation as violation:
            record.violation = str(violation)
        finally:
            self.server.records.write(record)


def _take_up(sock: socket.socket, stream: Any, record: EndpointRecord) -> None:
    check = Check(record.tunnel, Direction.UP, record.size)
    acknowledged = 0
    while not check.is_whole:
        octets = stream.read1(PIECE_BYTES)
        if not octets:
            raise EOFError
        check.take(octets)
        record.received = check.offset
        if check.offset - acknowledged >= ACKNOWLEDGE_BYTES or check.is_whole:
            acknowledged = check.offset
            sock.sendall(acknowledged.to_bytes(8, "big"))
            record.sent += 8


def _return(sock: socket.socket, stream: Any, record: EndpointRecord) -> None:
    check = Check(record.tunnel, Direction.UP, record.size)
    while not check.is_whole:
        octets = stream.read1(PIECE_BYTES)
        if not octets:
            raise EOFError
        check.take(octets)
        record.received = check.offset
        # Count before sending: a byte that reached the client must be in the record even if sending fails half-way.
        record.sent += len(octets)
        sock.sendall(octets)


def _send_down(sock: socket.socket, stream: Any, record: EndpointRecord) -> None:
    while record.sent < record.size:
        piece = stretch(record.tunnel, Direction.DOWN, record.sent, min(PIECE_BYTES, record.size - record.sent))
        record.sent += len(piece)
        sock.sendall(piece)
    while record.acknowledged < record.size:
        word = stream.read(8)
        if len(word) < 8:
            raise EOFError
        acknowledged = int.from_bytes(word, "big")
        if not record.acknowledged < acknowledged <= record.size:
            raise Violation(f"tunnel {record.tunnel:x}: {acknowledged} acknowledged after {record.acknowledged}")
        record.received += 8
        record.acknowledged = acknowledged
    record.sent += len(FINAL_ACKNOWLEDGEMENT)
    sock.sendall(FINAL_ACKNOWLEDGEMENT)


_SERVE_BY_KIND: Final = {TrafficKind.ECHO: _return, TrafficKind.UP: _take_up, TrafficKind.DOWN: _send_down}


def main() -> None:
    name, address, port, records = sys.argv[1:]
    with Endpoint(name, address, int(port), RecordFile(Path(records))) as endpoint:
        endpoint.serve_forever()


if __name__ == "__main__":
    main()
