"""A peer of one connection at a time that answers what it was told to: for clients that are held against the book."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS = 60.0


@contextmanager
def scripted(script: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """Play a script with every client, one after the other; give the address to connect to."""
    failures: list[BaseException] = []
    over = threading.Event()

    def play(listener: socket.socket) -> None:
        try:
            while True:
                stream, _ = listener.accept()
                with stream:
                    stream.settimeout(SECONDS)
                    script(stream)
        except BaseException as failure:
            if not over.is_set():
                failures.append(failure)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SECONDS)
        thread = threading.Thread(target=play, args=(listener,), daemon=True)
        thread.start()
        host, port = listener.getsockname()
        try:
            yield host, port
        finally:
            over.set()
            # Wakes whoever waits for another client.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(SECONDS)
    assert not failures, failures


def exactly(stream: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (chunk := stream.recv(count - len(found))):
        found += chunk
    return found


def head(stream: socket.socket) -> bytes:
    """Read a request up to its empty line."""
    found = b""
    while not found.endswith(b"\r\n\r\n") and (chunk := stream.recv(1)):
        found += chunk
    return found
