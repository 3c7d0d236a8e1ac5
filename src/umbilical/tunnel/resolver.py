"""Names to addresses for the agent's dials, in threads: getaddrinfo blocks, and honours the machine's own rules."""

import asyncio
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from umbilical.konnectivity import dial_failure
from umbilical.tunnel.dialing import Address, Dial

THREADS: Final = 32
"""A resolver that does not answer holds a thread for up to half a minute; dials to addresses never come here."""


class ThreadedResolver:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._threads: ThreadPoolExecutor | None = None

    def resolve(self, dial: Dial, host: str, port: int) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="resolver")
        future = self._threads.submit(_look_up, host, port)
        future.add_done_callback(lambda done: self._hand_over(dial, host, done))

    def _hand_over(self, dial: Dial, host: str, done: "Future[list[Address]]") -> None:
        if done.cancelled():
            return
        try:
            self._loop.call_soon_threadsafe(self._answer, dial, host, done)
        except RuntimeError:
            pass  # the loop has closed: the agent is leaving

    def _answer(self, dial: Dial, host: str, done: "Future[list[Address]]") -> None:
        error = done.exception()
        if error is None:
            dial.resolved(done.result())
        elif isinstance(error, socket.gaierror) and error.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
            dial.unresolved(dial_failure.lookup_error_text(dial.network, host, _name_server()))
        else:
            dial.unresolved(dial_failure.lookup_error_text(dial.network, host, _name_server(), "server misbehaving"))

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [
        (family, str(address[0]), int(address[1]))
        for family, _, _, _, address in found
        if family in (socket.AF_INET, socket.AF_INET6)
    ]


def _name_server() -> str:
    """The first name server, as Go names it in its error texts; empty when there is none to name."""
    try:
        with open("/etc/resolv.conf", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                words = line.split()
                if len(words) >= 2 and words[0] == "nameserver":
                    return dial_failure.join_host_port(words[1], 53)
    except OSError:
        pass
    return ""
