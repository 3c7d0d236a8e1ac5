"""Names to addresses for the agent's dials, in threads: getaddrinfo blocks, and honours the machine's own rules.

The threads are daemons, unlike a ThreadPoolExecutor's: a lookup that hangs must not keep the agent from leaving.
"""

import asyncio
import queue
import socket
import threading
from typing import Final

from umbilical.konnectivity import dial_failure
from umbilical.tunnel.dialing import Address, Dial

THREADS: Final = 32
"""A resolver that does not answer holds a thread for up to half a minute; dials to addresses never come here."""


class ThreadedResolver:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._questions: Final[queue.SimpleQueue[tuple[Dial, str, int] | None]] = queue.SimpleQueue()
        self._under_way = 0
        self._threads = 0

    def resolve(self, dial: Dial, host: str, port: int) -> None:
        self._under_way += 1
        if self._threads < min(self._under_way, THREADS):
            self._threads += 1
            threading.Thread(target=self._work, name=f"resolver-{self._threads}", daemon=True).start()
        self._questions.put((dial, host, port))

    def _work(self) -> None:
        while (question := self._questions.get()) is not None:
            dial, host, port = question
            answer: list[Address] | Exception = []
            if not dial.is_over():  # its time may have run out in line
                try:
                    answer = _look_up(host, port)
                except Exception as error:
                    answer = error
            try:
                self._loop.call_soon_threadsafe(self._answer, dial, host, answer)
            except RuntimeError:
                return  # the loop has closed: the agent is leaving

    def _answer(self, dial: Dial, host: str, answer: list[Address] | Exception) -> None:
        self._under_way -= 1
        if not isinstance(answer, Exception):
            dial.resolved(answer)
        elif isinstance(answer, socket.gaierror) and answer.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
            dial.unresolved(dial_failure.lookup_error_text(dial.network, host, _name_server()))
        else:
            dial.unresolved(dial_failure.lookup_error_text(dial.network, host, _name_server(), "server misbehaving"))

    def close(self) -> None:
        """Lookups that are under way end by themselves; nobody waits for them."""
        for _ in range(self._threads):
            self._questions.put(None)
        self._threads = 0


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
