"""Slow readers: one tunnel whose end does not read must not hold up another one (faults H1 and H2).

Between our own peers the slow tunnel is paused and loses nothing; with an upstream peer, which cannot be asked to
pause, it is closed once its buffer is full.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from tests.interop.conftest import FAULTY, StartPair
from tests.interop.endpoints import echo, endpoint
from tests.support.grpc_channel import ChannelClosed
from tests.support.tunnel_client import Tunnel, receive_exactly, receive_to_end
from tests.support.tunnel_pair import Shape, TunnelPair, wait_until

MIB: Final = 1024 * 1024
FLOOD_BYTES: Final = 64 * MIB
ROUND_TRIPS: Final = 50
_BLOCK: Final = bytes(64 * 1024)


class Flood:
    """Sends FLOOD_BYTES to whoever connects; `sent` tells how far it came."""

    def __init__(self) -> None:
        self.sent = 0

    def __call__(self, sock: socket.socket) -> None:
        while self.sent < FLOOD_BYTES:
            sock.sendall(_BLOCK)
            self.sent += len(_BLOCK)
        # The client closes first: see `transfer`.
        while sock.recv(1):
            pass


class Deaf:
    """Reads nothing until it is told to; then everything, and `received` tells how much."""

    def __init__(self) -> None:
        self.hears = threading.Event()
        self.done = threading.Event()
        self.received = 0

    def __call__(self, sock: socket.socket) -> None:
        self.hears.wait(100)
        try:
            while octets := sock.recv(1 << 18):
                self.received += len(octets)
        except ConnectionError:
            pass
        self.done.set()


class Sender(threading.Thread):
    """Sends FLOOD_BYTES into a tunnel that may stop taking them."""

    def __init__(self, tunnel: Tunnel) -> None:
        super().__init__(name="sender", daemon=True)
        self.tunnel = tunnel
        self.sent = 0
        self.failed = False

    def run(self) -> None:
        try:
            while self.sent < FLOOD_BYTES:
                self.tunnel.send(_BLOCK)
                self.sent += len(_BLOCK)
        except (OSError, ChannelClosed):
            self.failed = True


class Standstill:
    """Holds once a counter has not moved for some looks in a row."""

    def __init__(self) -> None:
        self._last = -1
        self._still = 0

    def __call__(self, count: int) -> bool:
        self._still = self._still + 1 if count == self._last else 0
        self._last = count
        return self._still > 75


@contextmanager
def _echoing(pair: TunnelPair) -> Iterator[Tunnel]:
    with endpoint(echo) as address:
        tunnel = pair.frontend().open(address)
        yield tunnel
        tunnel.close()


def _round_trips(tunnel: Tunnel) -> None:
    for number in range(ROUND_TRIPS):
        message = b"round %06d" % number
        tunnel.send(message)
        assert receive_exactly(tunnel, len(message), timeout=20) == message


OURS: Final = pytest.param(FAULTY, marks=pytest.mark.real, id="ours")
THEIRS: Final = pytest.param("upstream", marks=pytest.mark.real("proxy-server", "proxy-agent"), id="upstream")


@pytest.mark.parametrize("mode", ["grpc", "http-connect"])
@pytest.mark.parametrize("agent", [OURS, THEIRS])
def test_h1_a_client_that_does_not_read_holds_up_nobody(start_pair: StartPair, agent: str, mode: str) -> None:
    pair = start_pair(Shape(FAULTY, agent, mode, "uds"))
    flood, stands_still = Flood(), Standstill()
    with endpoint(flood) as address, _echoing(pair) as bystander:
        slow = pair.frontend().open(address)
        wait_until(lambda: flood.sent > 0 and stands_still(flood.sent), "the flood has filled every buffer")
        _round_trips(bystander)
        if agent == "ours":
            assert len(receive_exactly(slow, FLOOD_BYTES)) == FLOOD_BYTES
        else:
            assert len(receive_to_end(slow)) < FLOOD_BYTES
        _round_trips(bystander)
        slow.close()


@pytest.mark.parametrize("mode", ["grpc", "http-connect"])
@pytest.mark.parametrize("server", [OURS, THEIRS])
def test_h2_an_endpoint_that_does_not_read_holds_up_nobody(start_pair: StartPair, server: str, mode: str) -> None:
    pair = start_pair(Shape(server, FAULTY, mode, "uds"))
    deaf, stands_still = Deaf(), Standstill()
    with endpoint(deaf) as address, _echoing(pair) as bystander:
        sender = Sender(pair.frontend().open(address))
        sender.start()
        wait_until(lambda: sender.sent > 0 and stands_still(sender.sent), "the sender has filled every buffer")
        _round_trips(bystander)
        deaf.hears.set()
        if server == "ours":
            sender.join(60)
            assert sender.sent == FLOOD_BYTES
            sender.tunnel.close()
            assert deaf.done.wait(30)
            assert deaf.received == FLOOD_BYTES
        else:
            assert deaf.done.wait(30)
            sender.tunnel.abort()
            sender.join(30)
        _round_trips(bystander)
