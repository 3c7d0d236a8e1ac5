"""Clients for the storm, beside one server: `python -m tests.chaos.traffic ORDERS`, a JSON text of `Orders`.

Each worker opens one tunnel after the other until it is told to stop, by a file: echoes at several paces, bulk up,
bulk down. Every tunnel becomes a row of the ledger, with how it ended.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import h2.exceptions
from tests.chaos.ledger import ACKNOWLEDGE_BYTES, THANKS, Ledger, Outcome, Passage, Shape
from tests.chaos.pattern import Check, Direction, Violation, stretch
from tests.support.grpc_channel import ChannelClosed
from tests.support.tunnel_client import DialRefused, Frontend, Tunnel

KIB: Final = 1024
PIECE_BYTES: Final = 32 * KIB
# Between tunnels, and longer after one that failed: the machine has other things to do, and so have servers.
REST_SECONDS: Final = 0.05
REST_AFTER_FAILURE_SECONDS: Final = 0.2
ECHO_PACES: Final = (0.0, 0.0, 0.03)
STEADY_PACE: Final = 0.1
STEADY_BYTES: Final = 4 * KIB
LONGEST_ECHO_SECONDS: Final = 4.0


@dataclass(frozen=True)
class Orders:
    server: str
    endpoints: dict[str, str]
    """Name -> `host:port`."""
    ledger: str
    stop_file: str
    seed: int
    first_tunnel: int
    """Numbers from here on are this program's own, a million for each worker."""
    workers: int
    steady_workers: int
    """So many of them hold tunnels that are slow and long: some are in flight at whatever moment a fault comes."""
    largest_bytes: int
    most_tunnels: int = 1_000_000
    """Of each worker."""
    mode: str = ""
    socket_path: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


OpenTunnel = Callable[[Passage, str], Tunnel]
"""Given the plan and the endpoint's address; may correct the plan's server."""


class Worker:
    """One tunnel at a time."""

    def __init__(self, orders: Orders, number: int, ledger: Ledger, open_tunnel: OpenTunnel) -> None:
        self._orders, self._ledger, self._open = orders, ledger, open_tunnel
        self._draw = random.Random(f"{orders.seed} {orders.server} {orders.first_tunnel} {number}")
        self._next = orders.first_tunnel + number * 1_000_000
        self._left = orders.most_tunnels
        self._is_steady = number < orders.steady_workers

    def run(self) -> None:
        while self._left and not Path(self._orders.stop_file).exists():
            self._left -= 1
            passage = self._plan()
            self._pass(passage)
            passage.ended = time.monotonic()
            self._ledger.write(passage)
            time.sleep(REST_SECONDS if passage.outcome is Outcome.WHOLE else REST_AFTER_FAILURE_SECONDS)

    def _plan(self) -> Passage:
        draw, orders = self._draw, self._orders
        self._next += 1
        shape = Shape.ECHO if self._is_steady else draw.choice(list(Shape))
        most = 256 * KIB if shape is Shape.ECHO else orders.largest_bytes
        # Small ones and large ones alike often, in place of mostly large ones.
        size = STEADY_BYTES if self._is_steady else draw.randint(1, draw.choice((100, 20 * KIB, most)))
        return Passage(self._next, orders.server, draw.choice(list(orders.endpoints)), shape, size, time.monotonic())

    def _pass(self, passage: Passage) -> None:
        tunnel = None
        try:
            tunnel = self._open(passage, self._orders.endpoints[passage.endpoint])
            _greet(tunnel, passage)
            if self._is_steady:
                _echo(tunnel, passage, self._draw, STEADY_PACE)
            else:
                _CONDUCT[passage.shape](tunnel, passage, self._draw)
            passage.outcome = Outcome.WHOLE
        except TimeoutError:
            passage.outcome, passage.how = Outcome.STALLED, "neither bytes nor an end"
        except (OSError, DialRefused, ChannelClosed, h2.exceptions.ProtocolError, EOFError) as error:
            passage.outcome = Outcome.REFUSED if tunnel is None else Outcome.BROKEN
            passage.how = str(error) or type(error).__name__
        except Violation as violation:
            passage.violation = str(violation)
        finally:
            if tunnel is not None:
                tunnel.close()


def _greet(tunnel: Tunnel, passage: Passage) -> None:
    greeting = b""
    while not greeting.endswith(b"\n"):
        greeting += _some(tunnel, 4096)
    said = json.loads(greeting)
    passage.caller = said["caller"]
    if said["endpoint"] != passage.endpoint:
        raise Violation(f"tunnel {passage.tunnel:x} to {passage.endpoint} led to {said['endpoint']}")
    order = {"tunnel": passage.tunnel, "shape": passage.shape, "size": passage.size}
    tunnel.send(json.dumps(order).encode() + b"\n")


def _some(tunnel: Tunnel, size: int) -> bytes:
    octets = tunnel.receive(size)
    if not octets:
        raise EOFError("ended early")
    return octets


def _echo(tunnel: Tunnel, passage: Passage, draw: random.Random, pace: float | None = None) -> None:
    """Question and answer, at one pace."""
    pace = draw.choice(ECHO_PACES) if pace is None else pace
    limit = time.monotonic() + LONGEST_ECHO_SECONDS
    check = Check(passage.tunnel, Direction.UP, passage.size)
    while not check.is_whole:
        left = passage.size - check.offset
        # Past its time the rest goes at once: what was ordered is always sent.
        part = min(left, draw.randint(1, max(1, passage.size // 20))) if time.monotonic() < limit else left
        question = stretch(passage.tunnel, Direction.UP, check.offset, min(part, PIECE_BYTES))
        passage.sent += len(question)
        tunnel.send(question)
        while check.offset < passage.sent:
            check.take(_some(tunnel, passage.sent - check.offset))
            passage.received = passage.acknowledged = check.offset
        time.sleep(pace if check.offset < passage.size else 0)


def _up(tunnel: Tunnel, passage: Passage, draw: random.Random) -> None:
    while passage.sent < passage.size:
        part = min(draw.randint(1, 2 * PIECE_BYTES), passage.size - passage.sent)
        piece = stretch(passage.tunnel, Direction.UP, passage.sent, part)
        passage.sent += len(piece)
        tunnel.send(piece)
    words = b""
    while passage.acknowledged < passage.size:
        words += _some(tunnel, 4096)
        while len(words) >= 8:
            told, words = int.from_bytes(words[:8], "big"), words[8:]
            passage.received += 8
            if not passage.acknowledged < told <= passage.sent:
                raise Violation(f"tunnel {passage.tunnel:x}: {told} acknowledged after {passage.acknowledged}")
            passage.acknowledged = told
    if words:
        raise Violation(f"tunnel {passage.tunnel:x}: bytes behind the last acknowledgement")


def _down(tunnel: Tunnel, passage: Passage, draw: random.Random) -> None:
    check = Check(passage.tunnel, Direction.DOWN, passage.size)
    told = 0
    while not check.is_whole:
        check.take(_some(tunnel, min(passage.size - check.offset, PIECE_BYTES)))
        passage.received = check.offset
        if check.offset - told >= ACKNOWLEDGE_BYTES or check.is_whole:
            told = check.offset
            passage.sent += 8
            tunnel.send(told.to_bytes(8, "big"))
        if draw.random() < 0.01:
            # A reader that looks away for a moment: what comes meanwhile has to wait somewhere.
            time.sleep(0.02)
    # The endpoint's thanks for the last acknowledgement: only then is the tunnel whole for both.
    if (last := _some(tunnel, 2)) != THANKS:
        raise Violation(f"tunnel {passage.tunnel:x}: {last!r} behind the last byte")
    passage.acknowledged = passage.sent


_CONDUCT: Final[dict[Shape, Callable[[Tunnel, Passage, random.Random], None]]] = {
    Shape.ECHO: _echo,
    Shape.UP: _up,
    Shape.DOWN: _down,
}


def start_workers(orders: Orders, open_tunnel: OpenTunnel) -> list[threading.Thread]:
    ledger = Ledger(Path(orders.ledger))
    workers = [Worker(orders, number, ledger, open_tunnel) for number in range(orders.workers)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    return threads


def main() -> None:
    orders = Orders(**json.loads(sys.argv[1]))
    frontend = Frontend(orders.mode, unix_path=Path(orders.socket_path))
    for thread in start_workers(orders, lambda _, address: frontend.open(address)):
        thread.join()


if __name__ == "__main__":
    main()
