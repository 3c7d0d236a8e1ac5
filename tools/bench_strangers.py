"""Measures an echo beside a hostile peer at the agents' port, ours and upstream's, as ratio to the p99 without it.

The peer has an agent's certificate, sends one kind of flood, and connects again as soon as it is cut. It runs at the
lowest priority, as if on another machine: what an echo loses is the server's work, not the core that the peer uses.
"""

import argparse
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import peers
from bench_compiled import compiled_source
from bench_load import Generator
from bench_rows import OURS, UPSTREAM, BenchRow
from bench_tunnel import Pki, RunningTunnel, TunnelPrograms
from umbilical.wire.http2 import frames

PROGRAMS: Final = Path(sys.executable).parent
ECHO: Final = BenchRow("rate", "http-connect", "echo", 1)
START_SECONDS: Final = 20.0
PATIENCE_SECONDS: Final = 10.0
_STREAMS: Final = range(1, 20_001, 2)
# Static entries for POST and https, then `:authority: x` without an entry.
_CALL: Final = b"\x83\x87\x01\x01x"
_PATH_BYTES: Final = 3_000
# `:path` with a new entry of 3 KB: the length is 127 and the rest in groups of seven bits.
_LONG_PATH: Final = (
    b"\x44\x7f" + bytes([(_PATH_BYTES - 127) & 127 | 128, (_PATH_BYTES - 127) >> 7]) + b"x" * _PATH_BYTES
)
_NEWEST_ENTRY: Final = b"\xbe"


def header_bomb() -> bytes:
    """Calls that refer to one entry of 3 KB by a byte each."""
    blocks = [_CALL + (_LONG_PATH if number == 1 else _NEWEST_ENTRY) for number in _STREAMS]
    return b"".join([_headers(number, block) for number, block in zip(_STREAMS, blocks, strict=True)])


def rapid_reset() -> bytes:
    call = _CALL + b"\x04\x01/"
    return b"".join([_headers(number, call) + frames.reset_frame(number, frames.CANCEL) for number in _STREAMS])


def small_frames() -> bytes:
    return frames.window_update_frame(0, 1) * 20_000


def _headers(stream_id: int, block: bytes) -> bytes:
    return frames.headers_frames(stream_id, block, frames.DEFAULT_FRAME_BYTES, end_stream=False)


FLOODS: Final = {"header bomb": header_bomb, "rapid reset": rapid_reset, "small frames": small_frames}
KINDS: Final = (*FLOODS, "handshakes")
Reading = tuple[float, float, int]
"""p99 in us when it is quiet and beside the peer, and how often the peer connected."""


def attack(kind: str, port: int, pki: Sequence[str], seconds: float) -> int:
    """Flood the port for so long; return how often the peer connected."""
    _give_way()
    greeting = frames.PREFACE + frames.settings_frame([])
    octets = greeting + FLOODS[kind]() if kind in FLOODS else b""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(pki[0])
    context.load_cert_chain(pki[1], pki[2])
    context.set_alpn_protocols(["h2"])
    print("ready", flush=True)
    end, count = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        count += 1
        with suppress(OSError), _connected(port, context, min(left, PATIENCE_SECONDS)) as peer:
            if octets:
                peer.sendall(octets)
                while peer.recv(65536):
                    pass
    return count


def _give_way() -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):  # where the kernel groups processes by session, the session's priority counts
        Path("/proc/self/autogroup").write_text("19")


@contextmanager
def _connected(port: int, context: ssl.SSLContext, seconds: float) -> Iterator[ssl.SSLSocket]:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=seconds) as tcp,
        context.wrap_socket(tcp, server_hostname="127.0.0.1") as peer,
    ):
        yield peer


@contextmanager
def attacker(kind: str, tunnel: RunningTunnel, pki: Pki, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Runs `attack` in a process of its own."""
    files = [str(pki.authority), *map(str, pki.agent)]
    command = [sys.executable, __file__, "--attack", kind, str(tunnel.agent_port), *files, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def measure(kind: str, tunnel: RunningTunnel, pki: Pki, generator: Generator, seconds: float) -> Reading:
    quiet = generator.measure(ECHO, tunnel.entrance, seconds)["p99_us"]
    with attacker(kind, tunnel, pki, seconds + 0.5) as process:
        beside = generator.measure(ECHO, tunnel.entrance, seconds)["p99_us"]
        output, _ = process.communicate(timeout=seconds + START_SECONDS)
    return quiet, beside, int(output)


def line(kind: str, name: str, readings: Sequence[Reading]) -> str:
    quiet, beside = (statistics.median(reading[place] for reading in readings) for place in (0, 1))
    ratio = statistics.median(reading[1] / reading[0] for reading in readings)
    connections = statistics.median(reading[2] for reading in readings)
    return f"{kind:<14}{name:<10}{quiet:>8,.0f} us{beside:>8,.0f} us{ratio:>8.2f}{connections:>10,.0f}"


def run(pairs: dict[str, TunnelPrograms], generator: Generator, folder: Path, rounds: int, seconds: float) -> None:
    pki = Pki(folder / "pki")
    found: dict[tuple[str, str], list[Reading]] = {(kind, name): [] for kind in KINDS for name in pairs}
    for number in range(rounds):
        for name in pairs:
            pair = OURS if name == "ours" else UPSTREAM
            with RunningTunnel(pair, "http-connect", pairs, pki, folder / f"{name}-{number}") as tunnel:
                for kind in KINDS:
                    found[kind, name].append(measure(kind, tunnel, pki, generator, seconds))
    for (kind, name), readings in found.items():
        print(line(kind, name, readings), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure an echo beside a hostile peer, ours and upstream's.")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds; medians are reported (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement in seconds (2)")
    parser.add_argument("--smoke", action="store_true", help="only check that every row runs")
    parser.add_argument("--pure", action="store_true", help="run our programs as pure Python")
    parser.add_argument("--attack", nargs=6, help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args(arguments)
    if options.attack:
        kind, port, *pki, seconds = options.attack
        print(attack(kind, int(port), pki, float(seconds)))
        return 0
    programs = [peers.binary(name) for name in ("umbilical-load", "proxy-server", "proxy-agent")]
    load, server, agent = programs
    if load is None or server is None or agent is None:
        print("a program is missing: run `make peers GROUP=bench` and `make peers GROUP=konnectivity`", file=sys.stderr)
        return 1
    environment = {} if options.smoke or options.pure else {"PYTHONPATH": str(compiled_source())}
    ours = TunnelPrograms(PROGRAMS / "proxy-server", PROGRAMS / "proxy-agent", True, environment)
    rounds, seconds = (1, 0.3) if options.smoke else (options.rounds, options.seconds)
    print(f"\necho beside a hostile peer: p99 when quiet, beside it, ratio, its connections; {rounds} rounds")
    with tempfile.TemporaryDirectory(prefix="umbilical-bench-") as name:
        pairs = {"ours": ours, "upstream": TunnelPrograms(server, agent, logs_to_file=False)}
        run(pairs, Generator(load), Path(name), rounds, seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
