"""Connected sockets on loopback. Whatever is made here is closed after the test, whoever forgot it."""

import socket
from typing import Final

PATIENCE_SECONDS: Final = 60.0
_made: Final[list[socket.socket]] = []


def close_all() -> None:
    while _made:
        _made.pop().close()


def kept(sock: socket.socket) -> socket.socket:
    """Close this one too when the test is over."""
    _made.append(sock)
    return sock


def tcp_pair(family: socket.AddressFamily = socket.AF_INET) -> tuple[socket.socket, socket.socket]:
    """Two ends of one TCP connection on loopback: ours, which does not block, and a peer with a time limit."""
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with socket.create_server((host, 0), family=family) as listener:
        peer = kept(socket.create_connection(listener.getsockname()[:2], timeout=PATIENCE_SECONDS))
        ours = kept(listener.accept()[0])
    ours.setblocking(False)
    return ours, peer


def unix_pair() -> tuple[socket.socket, socket.socket]:
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    peer.settimeout(PATIENCE_SECONDS)
    return kept(ours), kept(peer)


def reset(sock: socket.socket) -> None:
    """Close with a reset instead of an end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    sock.close()


def read_to_end(sock: socket.socket) -> bytes:
    received = bytearray()
    while piece := sock.recv(65_536):
        received += piece
    return bytes(received)
