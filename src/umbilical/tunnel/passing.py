"""How the supervisor passes the connections that it accepts to workers, and which worker gets one.

A connection that no worker takes now is held, one for each listener; others wait in the backlog meanwhile.
"""

import random
import socket
from collections import deque
from typing import Final

from umbilical.tunnel.descriptors import FileWatch
from umbilical.tunnel.listening import PAUSE_SECONDS, AcceptRule, pass_on
from umbilical.tunnel.loop import Loop

MOST_HOSTS: Final = 4_096
"""Hosts whose next worker is remembered, the oldest is forgotten first: anybody may reach the port for agents."""


class Passing(AcceptRule):
    """For clients: any worker may take one, so each gets its turn."""

    def __init__(self, loop: Loop, workers: int) -> None:
        self.over: Final[list[socket.socket | None]] = [None] * workers
        """Where each worker takes connections; None while it has no process."""
        self.passed: Final = [0] * workers
        self._loop: Final = loop
        self._files: Final = FileWatch(loop)
        self._held: Final[deque[socket.socket]] = deque()
        self._armed = False
        self._next = 0

    def accepted(self, sock: socket.socket) -> None:
        if not self._held and self._pass(sock):
            sock.close()
            return
        self._held.append(sock)
        self.flush()

    def has_space(self, listener: int) -> bool:
        return not self._held and self.over.count(None) < len(self.over)

    def failed(self, reason: str) -> None:
        self._files.refused(f"new connections wait: {reason}")

    def flush(self) -> bool:
        """Pass what is held; False if something is left, which is tried again soon."""
        while self._held and self._pass(self._held[0]):
            self._held.popleft().close()
        if self._held and not self._armed:
            self._armed = True
            self._loop.after(PAUSE_SECONDS, self)
        return not self._held

    def on_timer(self) -> None:
        self._armed = False
        self.flush()

    def close(self) -> None:
        while self._held:
            self._held.popleft().close()

    def _pass(self, sock: socket.socket) -> bool:
        first = self._first(sock)
        for step in range(len(self.over)):
            index = (first + step) % len(self.over)
            over = self.over[index]
            if over is None:
                continue
            try:
                pass_on(over, sock)
            except OSError:  # it is full, or its process has just ended
                continue
            self.passed[index] += 1
            return True
        return False

    def _first(self, sock: socket.socket) -> int:
        """The worker that should get it; if it takes none now, the one after it does."""
        first = self._next
        self._next = (first + 1) % len(self.over)
        return first


class AgentPassing(Passing):
    """For agents: each needs every worker, and finds them by dialling again.

    The dials of one host go through all workers in a random order, then in another one: a single agent reaches a new
    worker with every dial, and agents behind one address, which share the order, do not keep meeting the same.
    """

    def __init__(self, loop: Loop, workers: int) -> None:
        super().__init__(loop, workers)
        self._rounds: Final[dict[str, list[int]]] = {}

    def _first(self, sock: socket.socket) -> int:
        host = _host(sock)
        left = self._rounds.pop(host, [])
        if not left:
            left = list(range(len(self.over)))
            random.shuffle(left)
        if len(self._rounds) >= MOST_HOSTS:
            del self._rounds[next(iter(self._rounds))]
        first = left.pop()
        self._rounds[host] = left
        return first


def _host(sock: socket.socket) -> str:
    try:
        return str(sock.getpeername()[0])
    except OSError:
        return ""  # it is gone already
