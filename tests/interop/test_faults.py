"""Faults seen in upstream that must not exist here, each shown on the wire: closing, ordering, cancelling, gauges.

Set UMBILICAL_FAULTS_OF=upstream to see the same tests fail on the programs that have the faults.
"""

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from tests.interop.conftest import FAULTY, FAULTY_REAL, StartPair
from tests.interop.endpoints import Recorder, echo, endpoint
from tests.interop.fake_peers import FakeAgent, count_of, packets_until
from tests.interop.namespace import BLACKHOLE
from tests.support import packet_messages
from tests.support.grpc_channel import PATIENCE_SECONDS, ChannelClosed
from tests.support.packet_messages import PacketType
from tests.support.tunnel_client import (
    Dial,
    DialRefused,
    GrpcDial,
    GrpcTunnel,
    SocketTunnel,
    Tunnel,
    receive_exactly,
    receive_to_end,
)
from tests.support.tunnel_pair import Shape, TunnelPair, wait_until

pytestmark = [FAULTY_REAL, pytest.mark.timeout(400)]

MODES: Final = ["grpc", "http-connect"]
WRITE_BYTES: Final = 100_000
SYN_SENT: Final = "02"
BANNER: Final = b"BANNER\r\n"
OK_HEAD: Final = b"HTTP/1.1 200 Connection Established\r\n\r\n"


@pytest.fixture
def pair(start_pair: StartPair, request: pytest.FixtureRequest) -> TunnelPair:
    mode = getattr(request, "param", "grpc")
    return start_pair(Shape(FAULTY, FAULTY, mode, "uds"))


@pytest.fixture
def server_alone(start_pair: StartPair, request: pytest.FixtureRequest) -> TunnelPair:
    mode = getattr(request, "param", "grpc")
    return start_pair(Shape(FAULTY, FAULTY, mode, "uds"), agents=False)


@pytest.mark.parametrize("pair", MODES, indirect=True)
def test_no_byte_is_missing_after_many_writes_and_closes(pair: TunnelPair) -> None:
    recorder = Recorder()
    payload = bytes(WRITE_BYTES)
    with endpoint(recorder) as address:
        for _ in range(300):
            tunnel = pair.frontend().open(address)
            tunnel.send(payload)
            tunnel.close()
        received = [recorder.ends.get(timeout=40) for _ in range(300)]
    assert [count for count in received if count != WRITE_BYTES] == []


def _banner_first(sock: socket.socket) -> None:
    sock.sendall(BANNER)
    echo(sock)


@pytest.mark.parametrize("pair", ["http-connect"], indirect=True)
def test_the_200_line_comes_before_the_banner_of_an_endpoint_that_speaks_first(pair: TunnelPair) -> None:
    with endpoint(_banner_first) as address:
        for _ in range(100):
            raw = SocketTunnel(pair.frontend().connect())
            raw.send(f"CONNECT {address} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert receive_exactly(raw, len(OK_HEAD + BANNER)) == OK_HEAD + BANNER
            raw.close()


def test_the_dial_response_comes_before_the_banner_of_an_endpoint_that_speaks_first(pair: TunnelPair) -> None:
    with endpoint(_banner_first) as address:
        for _ in range(100):
            tunnel = pair.frontend().open(address)
            assert receive_exactly(tunnel, len(BANNER)) == BANNER
            tunnel.close()


@pytest.mark.parametrize("mode", MODES)
def test_overlapping_streams_of_one_agent_id_do_not_cross(start_pair: StartPair, mode: str) -> None:
    shape = Shape(FAULTY, FAULTY, mode, "uds", workers=1)  # both streams must meet the same one
    pair = start_pair(shape, agents=False, server_flags=["--proxy-strategies=destHost"])
    with FakeAgent(pair, "same", "ipv4=10.0.0.1") as old, FakeAgent(pair, "same", "ipv4=10.0.0.1") as new:
        first = _open_through(pair, old, 1)
        # A draining stream is passed over, so the second dial goes to the other stream of the same agent id.
        old.send(packet_messages.Packet(type=PacketType.DRAIN, drain={}))
        wait_until(lambda: _server_of(pair, old, new) is new, "dials go to the stream that is not draining")
        second = _open_through(pair, new, 1)
        old.send(packet_messages.data(1, b"old"))
        new.send(packet_messages.data(1, b"new"))
        assert (receive_exactly(first, 3), receive_exactly(second, 3)) == (b"old", b"new")
        first.abort()
        second.abort()


def _server_of(pair: TunnelPair, *agents: FakeAgent) -> FakeAgent:
    """Dial once and refuse; say which agent was asked."""
    dial = pair.frontend().dial("10.0.0.1:80")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for agent in agents:
            try:
                request = agent.receive(PacketType.DIAL_REQ, timeout=0.05)
            except TimeoutError:
                continue
            agent.send(packet_messages.dial_response(request.dialRequest.random, error="not now"))
            with pytest.raises(DialRefused):
                dial.finish()
            return agent
    raise AssertionError("nobody was asked")


def _open_through(pair: TunnelPair, agent: FakeAgent, connection_id: int) -> Tunnel:
    dial = pair.frontend().dial("10.0.0.1:80")
    agent.accept_dial(connection_id)
    return dial.finish()


def _syn_sent_to(host: str, port: int) -> bool:
    """Say whether a connect to the address is under way in this namespace."""
    octets = socket.inet_aton(host)[::-1].hex().upper()
    with open("/proc/thread-self/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return any(row[2] == f"{octets}:{port:04X}" and row[3] == SYN_SENT for row in rows)


def _begin_endless_dial(pair: TunnelPair) -> Dial:
    dial = pair.frontend().dial(f"{BLACKHOLE}:4321")
    wait_until(lambda: _syn_sent_to(BLACKHOLE, 4321), "the agent has begun to connect")
    return dial


def _expect_cancelled(pair: TunnelPair) -> None:
    wait_until(lambda: not _syn_sent_to(BLACKHOLE, 4321), "the agent has given up the connect")
    # Upstream's also ends, but only by its own time limit of 5 s.
    assert pair.agent_metric("endpoint_dial_failure_total") == 0
    wait_until(lambda: pair.server_metric("pending_backend_dials") == 0, "no dial is pending")


def test_a_cancelled_dial_ends_in_the_agent(pair: TunnelPair) -> None:
    dial = _begin_endless_dial(pair)
    assert isinstance(dial, GrpcDial)
    dial.cancel()
    _expect_cancelled(pair)
    dial.abandon()


@pytest.mark.parametrize("pair", MODES, indirect=True)
def test_a_client_that_goes_during_the_dial_ends_it_in_the_agent(pair: TunnelPair) -> None:
    _begin_endless_dial(pair).abandon()
    _expect_cancelled(pair)


@pytest.mark.parametrize("pair", MODES, indirect=True)
def test_a_client_that_went_before_its_request_was_read_leaves_no_dial(pair: TunnelPair) -> None:
    pair.server.signal(signal.SIGSTOP)
    try:
        pair.frontend().dial(f"{BLACKHOLE}:4321").abandon()
    finally:
        pair.server.signal(signal.SIGCONT)
    # Clients are taken in order: once this one has been served, the one before has been seen.
    with endpoint(echo) as address:
        tunnel = pair.frontend().open(address)
        tunnel.send(b"after")
        assert receive_exactly(tunnel, 5) == b"after"
        tunnel.close()
    _expect_cancelled(pair)


def test_a_cancel_that_crosses_the_success_closes_the_connection(pair: TunnelPair) -> None:
    recorder = Recorder()
    with endpoint(recorder) as address:
        dial = pair.frontend().dial(address)
        assert isinstance(dial, GrpcDial)
        tunnel = dial.finish()
        dial.cancel()
        assert recorder.ends.get(timeout=40) == 0
        tunnel.abort()


@pytest.mark.parametrize("pair", MODES, indirect=True)
def test_pending_dials_fail_at_once_when_their_agent_is_killed(pair: TunnelPair) -> None:
    dials = [_begin_endless_dial(pair) for _ in range(3)]
    pair.agent.kill()
    for dial in dials:
        with pytest.raises(DialRefused):
            dial.finish(timeout=25)
    wait_until(lambda: pair.server_metric("pending_backend_dials") == 0, "no dial is pending")


@pytest.mark.parametrize("server_alone", ["http-connect"], indirect=True)
def test_a_client_that_went_before_the_200_line_leaves_no_connection(server_alone: TunnelPair) -> None:
    with FakeAgent(server_alone) as agent:
        dial = server_alone.frontend().dial("10.0.0.1:80")
        dial_id = agent.receive(PacketType.DIAL_REQ).dialRequest.random
        dial.abandon()
        agent.send(packet_messages.dial_response(dial_id, 7))
        seen = packets_until(agent.stream, PacketType.CLOSE_REQ)
        assert seen[-1].closeRequest.connectID == 7


GAUGES: Final = ("established_connections", "pending_backend_dials")


@pytest.mark.parametrize("pair", MODES, indirect=True)
def test_gauges_read_nought_after_every_kind_of_end(pair: TunnelPair) -> None:
    with endpoint(echo) as address, endpoint(_banner_first) as talker:
        closed, aborted, *lost = [pair.frontend().open(target) for target in (address, talker, address, talker)]
        assert pair.server_metric("established_connections") == 4
        assert pair.agent_metric("open_endpoint_connections") == 4
        closed.close()
        aborted.abort()
        wait_until(lambda: pair.server_metric("established_connections") == 2, "two tunnels are left")
        pair.agent.kill()
        for tunnel in lost:
            receive_to_end(tunnel)
            tunnel.close()
    for gauge in GAUGES:
        wait_until(lambda name=gauge: pair.server_metric(name) == 0, f"{gauge} is 0")  # type: ignore[misc]
    wait_until(lambda: pair.server_metric("http_connections") == 0, "no CONNECT client is counted")
    pair.start_agent()
    assert pair.agent_metric("open_endpoint_connections") == 0


def test_a_client_cannot_write_into_anothers_connection(pair: TunnelPair) -> None:
    recorder = Recorder()
    with endpoint(recorder) as address, endpoint(echo) as other:
        victim = pair.frontend().open(address)
        assert isinstance(victim, GrpcTunnel)
        intruder = pair.frontend().open(other)
        assert isinstance(intruder, GrpcTunnel)
        intruder.stream.send(packet_messages.data(victim.connection_id, b"evil"))
        # The server has read the packet once it answers or ends the stream for it.
        intruder.stream.receive()
        intruder.abort()
        victim.send(b"good")
        victim.close()
        assert recorder.ends.get(timeout=40) == len(b"good")


def test_orphan_data_is_answered_with_one_close_request(server_alone: TunnelPair) -> None:
    with FakeAgent(server_alone) as agent:
        for _ in range(50):
            agent.send(packet_messages.data(99, b"nobody asked"))
        # Packets are taken in order: once this dial has come through, all of the above are done with.
        agent.send(packet_messages.dial_response(1, 100))
        seen: list[Any] = []
        while not seen or seen[-1].closeRequest.connectID != 100:
            seen.append(agent.receive(PacketType.CLOSE_REQ))
        assert [packet.closeRequest.connectID for packet in seen] == [99, 100]
        assert count_of(seen, PacketType.CLOSE_REQ) == 2


def test_a_reset_by_the_endpoint_ends_the_tunnel_and_nothing_else(pair: TunnelPair) -> None:
    def reset(sock: socket.socket) -> None:
        # Not before the tunnel is known to be open: a reset that meets the connect is a failed dial.
        sock.recv(1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with endpoint(reset) as address, endpoint(echo) as other:
        bystander = pair.frontend().open(other)
        for _ in range(20):
            tunnel = pair.frontend().open(address)
            tunnel.send(b"x")
            assert receive_to_end(tunnel) == b""
            tunnel.close()
        bystander.send(b"still here")
        assert receive_exactly(bystander, 10) == b"still here"
        bystander.close()
    assert pair.agent.is_running()


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


OURS: Final = pytest.param(FAULTY, id="ours")
THEIRS: Final = pytest.param("upstream", marks=pytest.mark.real("proxy-server", "proxy-agent"), id="upstream")


@pytest.mark.parametrize("mode", ["grpc", "http-connect"])
@pytest.mark.parametrize("agent", [OURS, THEIRS])
def test_a_client_that_does_not_read_holds_up_nobody(start_pair: StartPair, agent: str, mode: str) -> None:
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
def test_an_endpoint_that_does_not_read_holds_up_nobody(start_pair: StartPair, server: str, mode: str) -> None:
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
