"""Clients of one server for chaos runs: `python -m tests.chaos.traffic OPTIONS`, `TrafficOptions` as JSON.

Each worker opens one tunnel after another until a file is created: echoes at several paces, uploads, downloads. It
writes a record of every tunnel.
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
from tests.chaos.pattern import Check, Direction, Violation, stretch
from tests.chaos.tunnel_records import (
    ACKNOWLEDGE_BYTES,
    FINAL_ACKNOWLEDGEMENT,
    ClientRecord,
    Outcome,
    RecordFile,
    TrafficKind,
)
from tests.support.grpc_channel import ChannelClosed
from tests.support.tunnel_client import DialRefused, Frontend, Tunnel

KIB: Final = 1024
PIECE_BYTES: Final = 32 * KIB
# Pause between tunnels; longer after a failed one, to limit the load.
REST_SECONDS: Final = 0.05
REST_AFTER_FAILURE_SECONDS: Final = 0.2
ECHO_PACES: Final = (0.0, 0.0, 0.03)
STEADY_PACE: Final = 0.1
STEADY_BYTES: Final = 4 * KIB
LONGEST_ECHO_SECONDS: Final = 4.0


@dataclass(frozen=True)
class TrafficOptions:
    server: str
    endpoints: dict[str, str]
    """Name -> `host:port`."""
    records: str
    stop_file: str
    seed: int
    first_tunnel: int
    """First tunnel number of this program; each worker has a million."""
    workers: int
    steady_workers: int
    """How many of the workers use slow, long tunnels, so that each fault meets open tunnels."""
    largest_bytes: int
    most_tunnels: int = 1_000_000
    """Of each worker."""
    mode: str = ""
    socket_path: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


OpenTunnel = Callable[[ClientRecord, str], Tunnel]
"""Called with the record and the endpoint's address; may change the server of the record."""


class Worker:
    """One tunnel at a time."""

    def __init__(self, options: TrafficOptions, number: int, records: RecordFile, open_tunnel: OpenTunnel) -> None:
        self._options, self._records, self._open = options, records, open_tunnel
        self._draw = random.Random(f"{options.seed} {options.server} {options.first_tunnel} {number}")
        self._next = options.first_tunnel + number * 1_000_000
        self._left = options.most_tunnels
        self._is_steady = number < options.steady_workers

    def run(self) -> None:
        while self._left and not Path(self._options.stop_file).exists():
            self._left -= 1
            client = self._plan()
            self._pass(client)
            client.ended = time.monotonic()
            self._records.write(client)
            time.sleep(REST_SECONDS if client.outcome is Outcome.WHOLE else REST_AFTER_FAILURE_SECONDS)

    def _plan(self) -> ClientRecord:
        draw, options = self._draw, self._options
        self._next += 1
        kind = TrafficKind.ECHO if self._is_steady else draw.choice(list(TrafficKind))
        most = 256 * KIB if kind is TrafficKind.ECHO else options.largest_bytes
        # Small, medium and large sizes equally often.
        size = STEADY_BYTES if self._is_steady else draw.randint(1, draw.choice((100, 20 * KIB, most)))
        return ClientRecord(
            self._next, options.server, draw.choice(list(options.endpoints)), kind, size, time.monotonic()
        )

    def _pass(self, client: ClientRecord) -> None:
        tunnel = None
        try:
            tunnel = self._open(client, self._options.endpoints[client.endpoint])
            _greet(tunnel, client)
            if self._is_steady:
                _echo(tunnel, client, self._draw, STEADY_PACE)
            else:
                _RUN_BY_KIND[client.kind](tunnel, client, self._draw)
            client.outcome = Outcome.WHOLE
        except TimeoutError:
            client.outcome, client.how = Outcome.STALLED, "neither bytes nor an end arrived"
        except (OSError, DialRefused, ChannelClosed, h2.exceptions.ProtocolError, EOFError) as error:
            client.outcome = Outcome.REFUSED if tunnel is None else Outcome.BROKEN
            client.how = str(error) or type(error).__name__
        except Violation as violation:
            client.violation = str(violation)
        finally:
            if tunnel is not None:
                tunnel.close()


def _greet(tunnel: Tunnel, client: ClientRecord) -> None:
    greeting = b""
    while not greeting.endswith(b"\n"):
        greeting += _some(tunnel, 4096)
    greeting_values = json.loads(greeting)
    client.caller = greeting_values["caller"]
    if greeting_values["endpoint"] != client.endpoint:
        raise Violation(f"tunnel {client.tunnel:x} to {client.endpoint} led to {greeting_values['endpoint']}")
    request = {"tunnel": client.tunnel, "kind": client.kind, "size": client.size}
    tunnel.send(json.dumps(request).encode() + b"\n")


def _some(tunnel: Tunnel, size: int) -> bytes:
    octets = tunnel.receive(size)
    if not octets:
        raise EOFError("ended early")
    return octets


def _echo(tunnel: Tunnel, client: ClientRecord, draw: random.Random, pace: float | None = None) -> None:
    """Send pieces and wait for the echo of each, at one pace."""
    pace = draw.choice(ECHO_PACES) if pace is None else pace
    limit = time.monotonic() + LONGEST_ECHO_SECONDS
    check = Check(client.tunnel, Direction.UP, client.size)
    while not check.is_whole:
        left = client.size - check.offset
        # After the time limit send the rest at once, so that the requested size is always sent.
        part = min(left, draw.randint(1, max(1, client.size // 20))) if time.monotonic() < limit else left
        question = stretch(client.tunnel, Direction.UP, check.offset, min(part, PIECE_BYTES))
        client.sent += len(question)
        tunnel.send(question)
        while check.offset < client.sent:
            check.take(_some(tunnel, client.sent - check.offset))
            client.received = client.acknowledged = check.offset
        time.sleep(pace if check.offset < client.size else 0)


def _up(tunnel: Tunnel, client: ClientRecord, draw: random.Random) -> None:
    while client.sent < client.size:
        part = min(draw.randint(1, 2 * PIECE_BYTES), client.size - client.sent)
        piece = stretch(client.tunnel, Direction.UP, client.sent, part)
        client.sent += len(piece)
        tunnel.send(piece)
    words = b""
    while client.acknowledged < client.size:
        words += _some(tunnel, 4096)
        while len(words) >= 8:
            acknowledged, words = int.from_bytes(words[:8], "big"), words[8:]
            client.received += 8
            if not client.acknowledged < acknowledged <= client.sent:
                raise Violation(f"tunnel {client.tunnel:x}: {acknowledged} acknowledged after {client.acknowledged}")
            client.acknowledged = acknowledged
    if words:
        raise Violation(f"tunnel {client.tunnel:x}: bytes behind the last acknowledgement")


def _down(tunnel: Tunnel, client: ClientRecord, draw: random.Random) -> None:
    check = Check(client.tunnel, Direction.DOWN, client.size)
    acknowledged = 0
    while not check.is_whole:
        check.take(_some(tunnel, min(client.size - check.offset, PIECE_BYTES)))
        client.received = check.offset
        if check.offset - acknowledged >= ACKNOWLEDGE_BYTES or check.is_whole:
            acknowledged = check.offset
            client.sent += 8
            tunnel.send(acknowledged.to_bytes(8, "big"))
        if draw.random() < 0.01:
            # A reader that pauses: bytes have to wait in buffers.
            time.sleep(0.02)
    # The endpoint confirms the last acknowledgement: only then is the tunnel complete for both ends.
    if (last := _some(tunnel, 2)) != FINAL_ACKNOWLEDGEMENT:
        raise Violation(f"tunnel {client.tunnel:x}: {last!r} behind the last byte")
    client.acknowledged = client.sent


_RUN_BY_KIND: Final[dict[TrafficKind, Callable[[Tunnel, ClientRecord, random.Random], None]]] = {
    TrafficKind.ECHO: _echo,
    TrafficKind.UP: _up,
    TrafficKind.DOWN: _down,
}


def start_workers(options: TrafficOptions, open_tunnel: OpenTunnel) -> list[threading.Thread]:
    records = RecordFile(Path(options.records))
    workers = [Worker(options, number, records, open_tunnel) for number in range(options.workers)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    return threads


def main() -> None:
    options = TrafficOptions(**json.loads(sys.argv[1]))
    frontend = Frontend(options.mode, unix_path=Path(options.socket_path))
    for thread in start_workers(options, lambda _, address: frontend.open(address)):
        thread.join()


if __name__ == "__main__":
    main()
