"""A DNS server that knows no name: NXDOMAIN to every question, over UDP and TCP.

Run as `python -m tests.support.nxdomain [PORT]` inside a network namespace, so that a program under test gets a
quick "no such host" and no query ever leaves the machine.
"""

import socketserver
import sys
import threading
from typing import Final

ADDRESS: Final = "127.0.0.1"
PORT: Final = 53
HEADER_BYTES: Final = 12
# QR and RA set, opcode and RD copied from the question, RCODE 3: RFC 1035 §4.1.1.
RESPONSE: Final = 0x80
RECURSION_AND_NXDOMAIN: Final = 0x83


def answer(question: bytes) -> bytes | None:
    """Answer one message; None for what is no question at all."""
    if len(question) < HEADER_BYTES or question[2] & RESPONSE:
        return None
    end = _end_of_question(question)
    if end is None:
        return None
    flags = bytes((question[2] | RESPONSE, RECURSION_AND_NXDOMAIN))
    counts = b"\x00\x01" + b"\x00" * 6
    return question[:2] + flags + counts + question[HEADER_BYTES:end]


def _end_of_question(message: bytes) -> int | None:
    position = HEADER_BYTES
    while position < len(message) and message[position]:
        position += message[position] + 1
    # The root label, then type and class.
    end = position + 5
    return end if end <= len(message) else None


class _Datagram(socketserver.DatagramRequestHandler):
    def handle(self) -> None:
        self.wfile.write(answer(self.rfile.read()) or b"")


class _Stream(socketserver.StreamRequestHandler):
    timeout = 10

    def handle(self) -> None:
        while size := int.from_bytes(self.rfile.read(2)):
            reply = answer(self.rfile.read(size))
            if reply is None:
                return
            self.wfile.write(len(reply).to_bytes(2) + reply)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def serve(port: int) -> None:
    with (
        socketserver.ThreadingUDPServer((ADDRESS, port), _Datagram) as datagrams,
        _Server((ADDRESS, port), _Stream) as streams,
    ):
        threading.Thread(target=datagrams.serve_forever, daemon=True).start()
        print("ready", flush=True)
        streams.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]) if len(sys.argv) > 1 else PORT)
