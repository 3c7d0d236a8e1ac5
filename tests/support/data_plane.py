"""The data plane under test: the real loop driven turn by turn, real sockets on loopback, owners that record.

These owners inherit from the data plane's classes, which interpreted code cannot do with compiled ones, so the
compiled build compiles this module too (`TEST_SUPPORT` in `tools/compiled.py`). A test that needs an owner with ways
of its own gives it a function; it cannot make a subclass.
"""

import os
import socket
import ssl
import time
from array import array
from collections.abc import Callable
from time import monotonic as real_seconds
from typing import Final

import pytest
from tests.support.socket_pairs import PATIENCE_SECONDS, tcp_pair

from umbilical.tunnel.channel import AGAIN, END, LOST, Channel, ChannelOwner
from umbilical.tunnel.loop import Handler, Loop
from umbilical.tunnel.tls_channel import TlsChannel
from umbilical.tunnel.transport import RoomWaiter

KIB: Final = 1024


def turn_until(plane: Loop, condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Turn the loop until the condition holds; what takes longer than this has gone wrong."""
    end = real_seconds() + seconds
    while not condition():
        assert real_seconds() < end, "the data plane did not get there in time"
        plane.turn(0.05)


def settle(plane: Loop, turns: int = 5) -> None:
    """A few turns that do not wait: whatever is ready is served."""
    for _ in range(turns):
        plane.turn(0.0)


def receive_all(plane: Loop, peer: socket.socket, size: int) -> bytes:
    """Read so many bytes at the peer while the loop turns."""
    peer.setblocking(False)
    received = bytearray()

    def enough() -> bool:
        try:
            received.extend(peer.recv(256 * KIB))
        except BlockingIOError:
            pass
        return len(received) >= size

    turn_until(plane, enough)
    return bytes(received)


class HandClock:
    """Time that stands still for the loop unless the test lets it pass: no stall of the machine is a silence then."""

    def __init__(self, plane: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
        self._plane: Final = plane
        self._now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: self._now)

    def advance(self, seconds: float) -> None:
        """So much time passes at once; then whatever is due or ready is served."""
        self._now += seconds
        settle(self._plane)


def open_files() -> set[tuple[str, str]]:
    """Every open descriptor with what it leads to."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
        except OSError:
            continue  # the descriptor of this listing itself
    return found


def patterned(size: int) -> bytes:
    """Bytes of which no two neighbouring stretches are alike, so that loss and exchange both show."""
    return array("I", range(size // 4 + 1)).tobytes()[:size]


class Diary(Handler):
    """A handler that writes down what the loop calls, in a list that several may share."""

    def __init__(self, name: str = "", lines: list[str] | None = None) -> None:
        self.name = name
        self.lines: list[str] = [] if lines is None else lines
        self.masks: list[int] = []
        self.crashes: list[Exception] = []
        self.fails_in = ""
        self.fails_at_its_end = False
        self.then: Callable[[], object] = _nothing

    def _note(self, what: str) -> None:
        self.lines.append(f"{self.name} {what}".strip())
        if self.fails_in == what:
            raise RuntimeError(f"{self.name} broke in {what}")
        self.then()

    def on_events(self, mask: int) -> None:
        self.masks.append(mask)
        self._note("events")

    def on_again(self) -> None:
        self._note("again")

    def on_flush(self) -> None:
        self._note("flush")

    def on_timer(self) -> None:
        self._note("timer")

    def on_crash(self, error: Exception) -> None:
        self.crashes.append(error)
        if self.fails_at_its_end:
            raise RuntimeError("broke at its end")


def _nothing() -> None:
    """What a test that gave no function gets."""


class Reader(ChannelOwner):
    """Owns a channel, reads everything from it, and sends what it was given as far as there is room."""

    def __init__(self, view_bytes: int = 64 * KIB) -> None:
        self.channel: Channel
        self.received = bytearray()
        self.outgoing = memoryview(b"")
        self.opened = 0
        self.writable = 0
        self.ended = False
        self.lost: list[str] = []
        self.then_open: Callable[[], object] = _nothing
        self.in_place_of_reading: Callable[[], object] | None = None
        self._view = memoryview(bytearray(view_bytes))

    def own(self, channel: Channel) -> Channel:
        self.channel = channel
        channel.start(self)
        return channel

    def is_over(self) -> bool:
        return self.ended or bool(self.lost)

    def on_open(self) -> None:
        self.opened += 1
        self.then_open()

    def on_readable(self) -> None:
        if self.in_place_of_reading is not None:
            self.in_place_of_reading()
        else:
            self._read()

    def _read(self) -> None:
        count = self.channel.receive_into(self._view)
        if count > 0:
            self.received += self._view[:count]
            if self.channel.readable:
                self.channel.loop.again(self)
        elif count == END:
            self.ended = True
        elif count == LOST:
            self.lost.append(self.channel.error)
        else:
            assert count == AGAIN
            assert not self.channel.readable

    def on_again(self) -> None:
        if self.channel.readable and not self.channel.closed:
            self.on_readable()

    def on_writable(self) -> None:
        self.writable += 1
        self.write_on()

    def on_lost(self, reason: str) -> None:
        self.lost.append(reason)

    def write(self, octets: bytes) -> None:
        self.outgoing = memoryview(octets)
        self.write_on()

    def write_on(self) -> None:
        while self.outgoing:
            sent = self.channel.send(self.outgoing)
            assert sent != LOST, self.channel.error
            if sent == 0:
                break
            self.outgoing = self.outgoing[sent:]
        if self.outgoing or not self.channel.push() or self.channel.has_unsent():
            self.channel.ask_room()

    def has_sent_all(self) -> bool:
        return not self.outgoing and not self.channel.has_unsent()


class Sleeper(RoomWaiter):
    """Waits for room, and calls a function of the test when it is woken."""

    def __init__(self, woken: Callable[["Sleeper"], object]) -> None:
        self._woken = woken
        self.crashes: list[Exception] = []

    def on_room(self) -> None:
        self._woken(self)

    def on_crash(self, error: Exception) -> None:
        self.crashes.append(error)


def tls_pair(
    plane: Loop, listener: ssl.SSLContext, dialler: ssl.SSLContext, name: str = "localhost"
) -> tuple[Reader, Reader]:
    """Two channels of ours on one loop, the server's first, their handshake just begun."""
    ours, theirs = tcp_pair()
    theirs.setblocking(False)
    server, client = Reader(), Reader()
    server.own(TlsChannel(plane, ours, listener, None))
    client.own(TlsChannel(plane, theirs, dialler, name))
    return server, client
