"""The relay of the far rows, as a process between two sockets: delay, rate, queue, stall and ends."""

import contextlib
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Final

import pytest

import peers
from bench_load import LoadFailed
from bench_relay import Network, NetworkRelay, slow_link
from bench_tunnel import free_port

pytestmark = pytest.mark.real("umbilical-relay")

SECONDS: Final = 20.0
DELAY: Final = Network(round_trip_ms=200)
# Small enough that what the kernel of the test holds does not hide what the relay holds.
LIMITED: Final = Network(round_trip_ms=20, bytes_per_second=1_000_000, queue_bytes=200_000)
SEND_BUFFER_BYTES: Final = 8192
RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)


def _relay(network: Network, target: int) -> NetworkRelay:
    program = peers.binary("umbilical-relay")
    assert program is not None
    return NetworkRelay(program, network, free_port(), target)


@contextlib.contextmanager
def _joined(network: Network) -> Iterator[tuple[NetworkRelay, socket.socket, socket.socket]]:
    """A relay, and both ends of one connection through it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, _relay(network, listener.getsockname()[1]) as relay:
        listener.settimeout(SECONDS)
        with socket.socket() as near:
            if network.bytes_per_second:
                near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            near.settimeout(SECONDS)
            near.connect(("127.0.0.1", relay.port))
            far, _ = listener.accept()
            with far:
                far.settimeout(SECONDS)
                yield relay, near, far


def _read(end: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count and (more := end.recv(min(65536, count - len(got)))):
        got += more
    return got


def _push(near: socket.socket, most: int) -> int:
    """Send until nothing is taken for a while; return how many bytes were."""
    near.setblocking(False)
    taken = 0
    while taken < most and select.select([], [near], [], 0.5)[1]:
        taken += near.send(bytes(16384))
    near.settimeout(SECONDS)
    return taken


def test_each_direction_takes_half_a_round_trip() -> None:
    with _joined(DELAY) as (_, near, far):
        for one, other in ((near, far), (far, near)):
            began = time.monotonic()
            one.sendall(b"over")
            assert _read(other, 4) == b"over"
            assert time.monotonic() - began >= 0.1


def test_the_delay_does_not_hold_back_the_reading() -> None:
    with _joined(Network(round_trip_ms=9000)) as (_, near, far):
        assert _push(near, 10_000_000) >= 10_000_000
        assert not select.select([far], [], [], 0)[0], "nothing has arrived yet"


def test_a_receiver_that_does_not_read_holds_back_the_sender() -> None:
    with _joined(Network(round_trip_ms=0)) as (_, near, _far):
        assert _push(near, 100_000_000) < 50_000_000


def test_bytes_arrive_whole_in_order_and_not_faster_than_the_rate() -> None:
    sent = b"".join(number.to_bytes(4) for number in range(100_000))
    with _joined(LIMITED) as (_, near, far):
        began = time.monotonic()
        sender = threading.Thread(target=near.sendall, args=(sent,))
        sender.start()
        assert _read(far, len(sent)) == sent
        assert time.monotonic() - began >= len(sent) / LIMITED.bytes_per_second
        sender.join(SECONDS)


def test_connections_share_the_rate_of_the_link() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, _relay(LIMITED, listener.getsockname()[1]) as relay:
        ends = []
        for _ in range(4):
            near = socket.create_connection(("127.0.0.1", relay.port), timeout=SECONDS)
            ends.append((near, listener.accept()[0]))
        began = time.monotonic()
        for near, _ in ends:
            near.sendall(bytes(50_000))
        for _, far in ends:
            far.settimeout(SECONDS)
            assert len(_read(far, 50_000)) == 50_000
        assert time.monotonic() - began >= 4 * 50_000 / LIMITED.bytes_per_second
        for near, far in ends:
            near.close()
            far.close()


def test_the_queue_of_a_limited_link_is_bounded_and_the_kernel_adds_little() -> None:
    with _joined(LIMITED) as (relay, near, _):
        relay.stall(SECONDS)
        taken = _push(near, 10_000_000)
        assert LIMITED.queue_bytes <= taken <= LIMITED.queue_bytes + 100_000


def test_a_stall_delays_and_loses_nothing() -> None:
    with _joined(Network(round_trip_ms=20)) as (relay, near, far):
        began = time.monotonic()
        relay.stall(0.5)
        near.sendall(b"late")
        far.sendall(b"too")
        assert _read(far, 4) == b"late"
        assert _read(near, 3) == b"too"
        assert time.monotonic() - began >= 0.51


def test_a_half_close_is_passed_on_and_the_other_direction_goes_on() -> None:
    with _joined(Network(round_trip_ms=20)) as (_, near, far):
        near.sendall(b"all")
        near.shutdown(socket.SHUT_WR)
        assert _read(far, 100) == b"all"
        far.sendall(b"answer")
        far.close()
        assert _read(near, 100) == b"answer"


def test_a_reset_is_passed_on_as_a_reset() -> None:
    for side in (0, 1):
        with _joined(Network(round_trip_ms=20)) as (_, near, far):
            one, other = (near, far) if side == 0 else (far, near)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
            one.close()
            with pytest.raises(ConnectionResetError):
                other.recv(1)


def test_a_target_that_does_not_listen_resets_the_connection() -> None:
    # The reset may come before `connect` has returned.
    with (
        _relay(DELAY, free_port()) as relay,
        pytest.raises(ConnectionResetError),
        socket.create_connection(("127.0.0.1", relay.port), SECONDS) as near,
    ):
        near.recv(1)


def test_it_ends_with_its_stdin_and_at_sigterm_and_survives_an_unknown_line() -> None:
    command = [str(peers.binary("umbilical-relay")), "--target=127.0.0.1:1"]
    pipe = subprocess.PIPE
    for number in (None, signal.SIGTERM):
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith('{"listening":"127.0.0.1:')
            if number is not None:
                process.send_signal(number)
                process.wait(SECONDS)
            output, complaint = process.communicate("stall forever\nstall 1ms\n" if number is None else None, SECONDS)
            assert process.returncode == 0
        if number is None:
            assert output == '{"stalled_seconds":0.001}\n'
            assert 'unknown line "stall forever"' in complaint


@pytest.mark.parametrize(
    "flags",
    [
        ["--target=192.0.2.1:80"],
        ["--target=127.0.0.1:1", "--listen=0.0.0.0:0"],
        ["--target=127.0.0.1:1", "--rate=1000"],
        ["--target=127.0.0.1:1", "--queue-bytes=100000"],
        ["--target=127.0.0.1:1", "--round-trip=11s"],
        ["--target=127.0.0.1:1", "more"],
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(flags: list[str]) -> None:
    command = [str(peers.binary("umbilical-relay")), *flags]
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("umbilical-relay: ")


def test_a_relay_that_cannot_listen_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        program = peers.binary("umbilical-relay")
        assert program is not None
        with (
            pytest.raises(LoadFailed, match="address already in use"),
            NetworkRelay(program, DELAY, taken.getsockname()[1], 1),
        ):
            pass


def test_the_queue_of_the_slow_link_is_one_bandwidth_delay_product_and_64_kib() -> None:
    assert slow_link(50) == Network(50, 2_000_000, 100_000 + 65_536)
    assert slow_link(50).flags() == ["--round-trip=50ms", "--rate=2000000", "--queue-bytes=165536"]
