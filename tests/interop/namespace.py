"""A network and mount namespace of the test process's own: no packet and no query leaves the machine.

Loopback is up; 198.18.0.254 and whatever has no nearer route swallow packets without an answer; every name
is NXDOMAIN. Threads and programs that are started inside inherit all of it.
"""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support import kernel_routes, nxdomain
from tests.support.apart import apart

from umbilical.host import namespaces

BLACKHOLE: Final = "198.18.0.254"


@contextmanager
def own_namespace(folder: Path) -> Iterator[None]:
    """Put this thread, and all that it starts, into a fresh namespace; come back at the end."""
    with apart():
        build_network()
        bind_resolver(folder)
        with stub_resolver():
            yield


def build_network() -> None:
    """Bring loopback up and make a default route whose packets vanish."""
    kernel_routes.swallow(BLACKHOLE, "198.18.0.1/24")
    # Upstream's suite takes ephemeral ports for its listeners and refuses those above 49151.
    Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("32768 49151")


def bind_resolver(folder: Path) -> None:
    """Show every program that looks now our stub as the only resolver."""
    resolv = folder / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.1\n")
    namespaces.bind(resolv, os.path.realpath("/etc/resolv.conf"))


@contextmanager
def stub_resolver() -> Iterator[None]:
    """Answer NXDOMAIN on 127.0.0.1:53, as long as the block lasts."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 53))
        sock.settimeout(0.2)
        stop = threading.Event()
        thread = threading.Thread(target=_answer_until, args=(sock, stop), name="stub-resolver")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(5)


def _answer_until(sock: socket.socket, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            question, client = sock.recvfrom(4096)
        except TimeoutError:
            continue
        reply = nxdomain.answer(question)
        if reply is not None:
            sock.sendto(reply, client)
