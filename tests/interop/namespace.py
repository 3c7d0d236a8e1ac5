"""A network and mount namespace of the test process's own: no packet and no query leaves the machine.

Loopback is up; 198.18.0.254 and whatever has no nearer route swallow packets without an answer; every name
is NXDOMAIN. Threads and programs that are started inside inherit all of it.
"""

import ctypes
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.support import kernel_routes, nxdomain

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWNET: Final = 0x40000000
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 0x40000
BLACKHOLE: Final = "198.18.0.254"

_libc: Final = ctypes.CDLL(None, use_errno=True)


@contextmanager
def own_namespace(folder: Path) -> Iterator[None]:
    """Put this thread, and all that it starts, into a fresh namespace; come back at the end."""
    home = os.getcwd()
    with ExitStack() as stack:
        net = stack.enter_context(open("/proc/thread-self/ns/net"))
        mounts = stack.enter_context(open("/proc/thread-self/ns/mnt"))
        _call("unshare", CLONE_NEWNS | CLONE_NEWNET)
        try:
            _call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
            build_network()
            bind_resolver(folder)
            with stub_resolver():
                yield
        finally:
            _call("setns", net.fileno(), CLONE_NEWNET)
            _return_to(mounts.fileno())
            os.chdir(home)


def _return_to(mounts: int) -> None:
    """Wait until threads that began inside and were joined are gone from the kernel too: until then it refuses."""
    deadline = time.monotonic() + 5
    while _libc.setns(mounts, CLONE_NEWNS) != 0:
        if time.monotonic() > deadline:
            _call("setns", mounts, CLONE_NEWNS)
        time.sleep(0.01)


def build_network() -> None:
    """Bring loopback up and make a default route whose packets vanish."""
    kernel_routes.swallow(BLACKHOLE, "198.18.0.1/24")
    # Upstream's suite takes ephemeral ports for its listeners and refuses those above 49151.
    Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("32768 49151")


def bind_resolver(folder: Path) -> None:
    """Show every program that looks now our stub as the only resolver."""
    resolv = folder / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.1\n")
    _call("mount", bytes(resolv), os.path.realpath("/etc/resolv.conf").encode(), None, MS_BIND, None)


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


def _call(name: str, *arguments: object) -> None:
    """Call the C library: Python 3.11 has neither unshare nor setns nor mount."""
    if getattr(_libc, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
