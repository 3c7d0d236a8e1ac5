"""Starting, draining, stopping: the operational faults of docs/upstream-faults.md, shown on the running programs."""

import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.interop.conftest import FAULTY, FAULTY_REAL, StartPair
from tests.interop.endpoints import Recorder, echo, endpoint
from tests.interop.fake_peers import FakeAgent, FakeServer, packets_until
from tests.support import packet_messages
from tests.support.grpc_channel import ChannelClosed, GrpcStream
from tests.support.packet_messages import Packet, PacketType
from tests.support.tunnel_client import PROXY_PATH, DialRefused, Tunnel, receive_exactly, receive_to_end
from tests.support.tunnel_pair import Daemon, Shape, TunnelPair, wait_until
from tests.support.tunnel_pki import TunnelPki

pytestmark = FAULTY_REAL
MODES: Final = ["grpc", "http-connect"]
# Our own flag; upstream's agent never leaves by itself (endless-drain) and has no such thing.
LINGER: Final = ["--drain-linger=3s"] if FAULTY == "ours" else []


def _say(tunnel: Tunnel, message: bytes) -> None:
    tunnel.send(message)
    assert receive_exactly(tunnel, len(message)) == message


def test_any_configured_strategy_with_an_agent_makes_the_server_ready(start_pair: StartPair) -> None:
    pair = start_pair(
        Shape(FAULTY, FAULTY),
        server_flags=["--proxy-strategies=destHost,defaultRoute"],
        agent_flags=["--agent-identifiers=default-route=true"],
    )
    assert pair.server_health("/readyz") == (200, "ok")
    with endpoint(echo) as address:
        tunnel = pair.frontend().open(address)
        _say(tunnel, b"by the default route")
        tunnel.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_stopping_server_lets_an_active_tunnel_end(start_pair: StartPair, mode: str) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY, mode, "uds"), server_flags=["--graceful-shutdown-timeout=60s"])
    with endpoint(echo) as address:
        tunnel = pair.frontend().open(address)
        _say(tunnel, b"before")
        pair.server.signal(signal.SIGTERM)
        wait_until(lambda: pair.server_health("/readyz")[0] != 200, "the server is unready")
        # Longer than the agent's probe interval, by which upstream's agent leaves a server that says GOAWAY.
        until = time.monotonic() + 2
        while time.monotonic() < until:
            _say(tunnel, b"still here")
            time.sleep(0.1)
        with pytest.raises((OSError, DialRefused)):
            pair.frontend().open(address)
        tunnel.close()
    assert pair.server.wait() == 0
    assert not pair.socket_path.exists()


def test_a_stopping_server_closes_what_has_not_ended_by_the_deadline(start_pair: StartPair) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY, "http-connect", "uds"), server_flags=["--graceful-shutdown-timeout=1s"])
    with endpoint(echo) as address:
        tunnel = pair.frontend().open(address)
        _say(tunnel, b"before")
        pair.server.signal(signal.SIGTERM)
        assert receive_to_end(tunnel) == b""
        tunnel.close()
    assert pair.server.wait() == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_server_without_grace_stops_at_once(start_pair: StartPair, mode: str) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY, mode, "uds"))
    recorder = Recorder()
    with endpoint(recorder) as address:
        tunnel = pair.frontend().open(address)
        pair.server.signal(signal.SIGTERM)
        assert receive_to_end(tunnel) == b""
        tunnel.close()
        assert pair.server.wait() == 0
        assert recorder.ends.get(timeout=40) == 0


def test_a_drained_agent_serves_new_dials_and_leaves_after_its_linger(start_pair: StartPair) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY, "grpc", "uds"), agent_flags=LINGER)
    with endpoint(echo) as address:
        pair.agent.signal(signal.SIGTERM)
        tunnel = pair.frontend().open(address)
        _say(tunnel, b"dialled after the drain")
        # Longer than the linger with a tunnel open: it must stay.
        time.sleep(4)
        _say(tunnel, b"still here")
        tunnel.close()
    assert pair.agent.wait() == 0


def test_a_drained_agent_is_passed_over_when_there_is_another(start_pair: StartPair) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY, "grpc", "uds"), agent_flags=["--drain-linger=60s"])
    second = Daemon(
        [*_without_ports(pair.agent.command), "--agent-id=a2", *_fresh_ports(pair)], pair.folder / "second-agent.log"
    )
    second.start()
    try:
        wait_until(lambda: pair.server_metric("ready_backend_connections") == 2, "two agents are connected")
        pair.agent.signal(signal.SIGTERM)
        wait_until(lambda: _agents_of_dials(pair) == {"a2"}, "every dial goes to the agent that stays")
    finally:
        second.kill()


def _agents_of_dials(pair: TunnelPair) -> set[str]:
    """Dial a few times and read from the server's log (one line per tunnel) who served."""
    start = pair.server.log.stat().st_size
    with endpoint(echo) as address:
        for _ in range(8):
            pair.frontend().open(address).close()
    wait_until(lambda: len(_tunnel_agents(pair, start)) == 8, "eight tunnels are in the log")
    return set(_tunnel_agents(pair, start))


def _tunnel_agents(pair: TunnelPair, start: int) -> list[str]:
    text = pair.server.log.read_bytes()[start:].decode()
    return re.findall(r"tunnel dial=\d+ .*agent=(\S+)", text)


def _without_ports(command: list[str]) -> list[str]:
    dropped = ("--agent-id", "--health-server-port", "--admin-server-port")
    return [part for part in command if not part.startswith(dropped)]


def _fresh_ports(pair: TunnelPair) -> list[str]:
    # Neither is asked in this test; any free port will do.
    ports = type(pair.ports)()
    return [f"--health-server-port={ports.agent_health}", f"--admin-server-port={ports.agent_admin}"]


def _run_server(pair: TunnelPair, *flags: str) -> tuple[int, str]:
    """Start the pair's server with other flags and return how it ended."""
    daemon = Daemon([*pair.server.command, *flags], pair.folder / "refusing-server.log")
    daemon.start()
    try:
        return daemon.wait(), daemon.log.read_text()
    finally:
        daemon.kill()


@pytest.fixture
def stopped_pair(start_pair: StartPair) -> TunnelPair:
    pair = start_pair(Shape(FAULTY, FAULTY), agents=False)
    pair.server.kill()
    return pair


def test_a_socket_path_that_cannot_be_bound_is_a_clean_refusal(stopped_pair: TunnelPair, tmp_path: Path) -> None:
    code, text = _run_server(stopped_pair, f"--uds-name={tmp_path}/missing/frontend.sock")
    assert code == 1
    assert "missing/frontend.sock" in text
    assert "Traceback" not in text
    assert "panic" not in text


def test_a_port_that_is_taken_is_a_clean_refusal(stopped_pair: TunnelPair) -> None:
    for flag in ("--health-port", "--admin-port", "--agent-port"):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            code, text = _run_server(stopped_pair, f"{flag}={taken.getsockname()[1]}")
        assert code == 1
        assert "address already in use" in text.lower()
        assert "Traceback" not in text


def test_a_bad_lease_label_is_refused_before_any_listener_opens(stopped_pair: TunnelPair) -> None:
    stopped_pair.socket_path.unlink()
    code, text = _run_server(stopped_pair, "--enable-lease-controller", "--lease-label=nonsense")
    assert code == 1
    assert "nonsense" in text
    assert not stopped_pair.socket_path.exists()


EMPTY_MESSAGE: Final = b"\0\0\0\0\0"
# Drain is left out: it has no field, so a missing one cannot be told from an empty one by its reader.
BODILESS: Final = [kind for kind in PacketType if kind not in (PacketType.DIAL_REQ, PacketType.DRAIN)]
# A payload of the wrong wire type, a length past the end, an endless varint.
MALFORMED: Final = [b"\x10\x01", b"\x12\x7f\x00", b"\x08" + b"\xff" * 11]


def _message(body: bytes) -> bytes:
    return b"\0" + len(body).to_bytes(4, "big") + body


def _wrong_messages() -> list[bytes]:
    bodiless = [_message(Packet(type=kind).SerializeToString()) for kind in BODILESS]
    return [EMPTY_MESSAGE, *bodiless, *(_message(body) for body in MALFORMED)]


@pytest.fixture
def pair(start_pair: StartPair) -> TunnelPair:
    return start_pair(Shape(FAULTY, FAULTY, "grpc", "uds"))


@pytest.fixture
def fake_server(pki: TunnelPki) -> Iterator[FakeServer]:
    with FakeServer(pki) as server:
        yield server


def _agent_of(fake_server: FakeServer, start_pair: StartPair) -> TunnelPair:
    """Return a pair whose agent (and that alone) runs, sent to the fake server."""
    pair = start_pair(Shape(FAULTY, FAULTY), agents=False, agent_flags=[f"--proxy-server-port={fake_server.port}"])
    pair.agent.start()
    return pair


def _expect_end(stream: GrpcStream) -> None:
    """Wait for the end, which must not be a success."""
    try:
        stream.wait_for_end()
    except ChannelClosed:
        return
    assert stream.trailers is None or stream.trailers["grpc-status"] != "0"


def test_a_wrong_message_on_proxy_ends_that_stream_alone(pair: TunnelPair) -> None:
    with endpoint(echo) as address:
        bystander = pair.frontend().open(address)
        for octets in _wrong_messages():
            channel = pair.frontend().channel()
            stream = channel.open(PROXY_PATH)
            stream.send_raw(octets)
            _expect_end(stream)
            channel.close()
            _say(bystander, b"alive")
        bystander.close()
    assert pair.server.is_running()


def test_a_wrong_message_on_connect_ends_that_stream_alone(pair: TunnelPair) -> None:
    for octets in _wrong_messages():
        with endpoint(echo) as address, FakeAgent(pair, "wrong", "host=nobody") as agent:
            bystander = pair.frontend().dial(address)
            agent.stream.send_raw(octets)
            _expect_end(agent.stream)
            # The dial may have been given to the wrong agent; what counts is that the server lives and serves.
            bystander.abandon()
            tunnel = pair.frontend().open(address)
            _say(tunnel, b"alive")
            tunnel.close()
    assert pair.server.is_running()


def test_an_agent_survives_a_wrong_message_and_comes_back(fake_server: FakeServer, start_pair: StartPair) -> None:
    pair = _agent_of(fake_server, start_pair)
    stream = fake_server.accept()
    for octets in _wrong_messages():
        stream.send_raw(octets)
        _expect_end(stream)
        stream = fake_server.accept()
        stream.send(packet_messages.close_request(5))
        answer = packets_until(stream, PacketType.CLOSE_RSP)[-1]
        assert answer.closeResponse.error == "Unknown connectID"
    assert pair.agent.is_running()


def test_an_agent_dials_tcp_and_nothing_else(fake_server: FakeServer, start_pair: StartPair, tmp_path: Path) -> None:
    _agent_of(fake_server, start_pair)
    stream = fake_server.accept()
    path = tmp_path / "private.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        for protocol in ("unix", "udp", "unixgram", "ip", ""):
            stream.send(packet_messages.dial_request(str(path), 11, protocol))
            answer = packets_until(stream, PacketType.DIAL_RSP)[-1].dialResponse
            assert (answer.random, answer.connectID, bool(answer.error)) == (11, 0, True), protocol
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_an_agent_dials_what_tcp_names(fake_server: FakeServer, start_pair: StartPair) -> None:
    _agent_of(fake_server, start_pair)
    stream = fake_server.accept()
    with endpoint(echo) as address:
        for protocol in ("tcp", "tcp4"):
            stream.send(packet_messages.dial_request(address, 12, protocol))
            answer = packets_until(stream, PacketType.DIAL_RSP)[-1].dialResponse
            assert (answer.random, answer.error) == (12, "")
            stream.send(packet_messages.data(answer.connectID, b"ping"))
            assert packets_until(stream, PacketType.DATA)[-1].data.data == b"ping"


def test_an_agent_words_its_refusals_as_go_does(fake_server: FakeServer, start_pair: StartPair) -> None:
    _agent_of(fake_server, start_pair)
    stream = fake_server.accept()
    for address, error in (
        ("127.0.0.1:99999", "dial tcp: address 99999: invalid port"),
        ("foo", "dial tcp: address foo: missing port in address"),
        ("nowhere.invalid:443", "dial tcp: lookup nowhere.invalid on 127.0.0.1:53: no such host"),
    ):
        stream.send(packet_messages.dial_request(address, 13))
        assert packets_until(stream, PacketType.DIAL_RSP)[-1].dialResponse.error == error
