"""Packets that no sane peer sends: the stream they came on ends, the process and everybody else go on."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.interop.conftest import FAULTY, StartPair
from tests.interop.endpoints import Recorder, echo, endpoint
from tests.interop.fake_peers import FakeAgent, FakeServer, packets_until
from tests.support import packet_messages
from tests.support.grpc_channel import ChannelClosed, GrpcStream
from tests.support.packet_messages import Packet, PacketType
from tests.support.tunnel_client import PROXY_PATH, receive_exactly
from tests.support.tunnel_pair import Shape, TunnelPair, wait_until
from tests.support.tunnel_pki import TunnelPki

pytestmark = pytest.mark.real

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


@pytest.mark.parametrize("octets", _wrong_messages(), ids=bytes.hex)
def test_p4_a_wrong_message_on_proxy_ends_that_stream_alone(pair: TunnelPair, octets: bytes) -> None:
    with endpoint(echo) as address:
        bystander = pair.frontend().open(address)
        channel = pair.frontend().channel()
        stream = channel.open(PROXY_PATH)
        stream.send_raw(octets)
        _expect_end(stream)
        channel.close()
        bystander.send(b"alive")
        assert receive_exactly(bystander, 5) == b"alive"
        bystander.close()
    assert pair.server.is_running()


@pytest.mark.parametrize("octets", _wrong_messages(), ids=bytes.hex)
def test_p4_a_wrong_message_on_connect_ends_that_stream_alone(pair: TunnelPair, octets: bytes) -> None:
    with endpoint(echo) as address, FakeAgent(pair, "wrong", "host=nobody") as agent:
        bystander = pair.frontend().dial(address)
        agent.stream.send_raw(octets)
        _expect_end(agent.stream)
        # The dial may have been given to the wrong agent; what counts is that the server lives and serves.
        bystander.abandon()
        tunnel = pair.frontend().open(address)
        tunnel.send(b"alive")
        assert receive_exactly(tunnel, 5) == b"alive"
        tunnel.close()
    assert pair.server.is_running()


@pytest.mark.parametrize("octets", _wrong_messages(), ids=bytes.hex)
def test_p4_an_agent_survives_a_wrong_message_and_comes_back(
    fake_server: FakeServer, start_pair: StartPair, octets: bytes
) -> None:
    pair = _agent_of(fake_server, start_pair)
    first = fake_server.accept()
    first.send_raw(octets)
    _expect_end(first)
    again = fake_server.accept()
    again.send(packet_messages.close_request(5))
    answer = packets_until(again, PacketType.CLOSE_RSP)[-1]
    assert answer.closeResponse.error == "Unknown connectID"
    assert pair.agent.is_running()


@pytest.mark.parametrize("protocol", ["unix", "udp", "unixgram", "ip", ""])
def test_p5_an_agent_dials_tcp_and_nothing_else(
    fake_server: FakeServer, start_pair: StartPair, tmp_path: Path, protocol: str
) -> None:
    _agent_of(fake_server, start_pair)
    stream = fake_server.accept()
    path = tmp_path / "private.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        stream.send(packet_messages.dial_request(str(path), 11, protocol))
        answer = packets_until(stream, PacketType.DIAL_RSP)[-1].dialResponse
        assert (answer.random, answer.connectID) == (11, 0)
        assert answer.error
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize("protocol", ["tcp", "tcp4"])
def test_an_agent_dials_what_tcp_names(fake_server: FakeServer, start_pair: StartPair, protocol: str) -> None:
    _agent_of(fake_server, start_pair)
    stream = fake_server.accept()
    with endpoint(echo) as address:
        stream.send(packet_messages.dial_request(address, 12, protocol))
        answer = packets_until(stream, PacketType.DIAL_RSP)[-1].dialResponse
        assert (answer.random, answer.error) == (12, "")
        assert answer.connectID >= 1
        stream.send(packet_messages.data(answer.connectID, b"ping"))
        assert packets_until(stream, PacketType.DATA)[-1].data.data == b"ping"


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("127.0.0.1:99999", "dial tcp: address 99999: invalid port"),
        ("foo", "dial tcp: address foo: missing port in address"),
        ("nowhere.invalid:443", "dial tcp: lookup nowhere.invalid on 127.0.0.1:53: no such host"),
    ],
)
def test_an_agent_words_its_refusals_as_go_does(
    fake_server: FakeServer, start_pair: StartPair, address: str, error: str
) -> None:
    _agent_of(fake_server, start_pair)
    stream = fake_server.accept()
    stream.send(packet_messages.dial_request(address, 13))
    assert packets_until(stream, PacketType.DIAL_RSP)[-1].dialResponse.error == error


def test_an_agent_answers_for_connections_that_it_does_not_know(fake_server: FakeServer, start_pair: StartPair) -> None:
    _agent_of(fake_server, start_pair)
    stream = fake_server.accept()
    stream.send(packet_messages.data(77, b"nobody"))
    answer = stream.receive().closeResponse
    assert (answer.connectID, answer.error) == (77, "unrecognized connectID")
    stream.send(packet_messages.close_request(78))
    answer = stream.receive().closeResponse
    assert (answer.connectID, answer.error) == (78, "Unknown connectID")


def test_an_agent_flushes_what_it_was_given_before_it_closes(fake_server: FakeServer, start_pair: StartPair) -> None:
    _agent_of(fake_server, start_pair)
    stream = fake_server.accept()
    recorder = Recorder()
    with endpoint(recorder) as address:
        stream.send(packet_messages.dial_request(address, 14))
        connection_id = packets_until(stream, PacketType.DIAL_RSP)[-1].dialResponse.connectID
        for _ in range(32):
            stream.send(packet_messages.data(connection_id, bytes(32768)))
        stream.send(packet_messages.close_request(connection_id))
        answer = packets_until(stream, PacketType.CLOSE_RSP)[-1].closeResponse
        assert (answer.connectID, answer.error) == (connection_id, "")
        assert recorder.ends.get(timeout=40) == 32 * 32768


def test_o10_an_agent_without_a_server_is_healthy_and_not_ready(start_pair: StartPair, pki: TunnelPki) -> None:
    pair = start_pair(Shape(FAULTY, FAULTY), agents=False, agent_flags=["--proxy-server-port=1"])
    pair.agent.start()
    wait_until(lambda: pair.agent_health("/healthz") == (200, "ok"), "the agent is healthy")
    assert pair.agent_health("/readyz") == (
        503,
        "[+]ping ok\n[-]server-connected failed: no servers connected\n",
    )
