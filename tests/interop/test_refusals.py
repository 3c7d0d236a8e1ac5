"""What server and agent refuse, and in which words: the same cases for upstream and for ours, byte for byte."""

import signal
import socket
import ssl
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.interop.conftest import StartPair
from tests.interop.endpoints import echo, endpoint
from tests.interop.fake_peers import CONNECT_PATH, FakeAgent, open_agent_channel
from tests.support import packet_messages
from tests.support.grpc_channel import GrpcStream
from tests.support.packet_messages import PacketType
from tests.support.tunnel_client import PROXY_PATH, DialRefused, GrpcTunnel, SocketTunnel, receive_to_end
from tests.support.tunnel_pair import Shape, TunnelPair, wait_until
from tests.support.tunnel_pki import FolderAuthority, TunnelPki

pytestmark = pytest.mark.real("proxy-server", "proxy-agent")


@pytest.fixture(scope="module", params=["ours", "upstream"])
def servers(
    request: pytest.FixtureRequest, pki: TunnelPki, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, TunnelPair]]:
    """One for each mode, for the whole module: no test leaves anything in it but an agent that goes."""
    with ExitStack() as stack:
        running = {}
        for mode in ("grpc", "http-connect"):
            shape = Shape(request.param, request.param, mode, "uds")
            running[mode] = TunnelPair(shape, pki, tmp_path_factory.mktemp("pair"))
            stack.callback(running[mode].stop)
            running[mode].start_server()
        yield running


def _without_agents(pair: TunnelPair) -> TunnelPair:
    wait_until(lambda: pair.server_health("/readyz")[0] == 500, "the agent of the test before is gone")
    return pair


@pytest.fixture
def grpc_server(servers: dict[str, TunnelPair]) -> TunnelPair:
    return _without_agents(servers["grpc"])


@pytest.fixture
def connect_server(servers: dict[str, TunnelPair]) -> TunnelPair:
    return _without_agents(servers["http-connect"])


def _proxy_stream(pair: TunnelPair) -> GrpcStream:
    return pair.frontend().channel().open(PROXY_PATH)


def _ask(pair: TunnelPair, request: bytes) -> bytes:
    tunnel = SocketTunnel(pair.frontend().connect())
    tunnel.send(request)
    answer = receive_to_end(tunnel)
    tunnel.close()
    return answer


def test_dial_without_an_agent_is_refused_over_grpc(grpc_server: TunnelPair) -> None:
    with pytest.raises(DialRefused) as refusal:
        grpc_server.frontend().open("127.0.0.1:1")
    assert refusal.value.text == "No agent available"


def test_dial_without_an_agent_is_refused_over_http_connect(connect_server: TunnelPair) -> None:
    answer = _ask(connect_server, b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert answer == (
        b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\n"
        b"currently no tunnels available: No agent available"
    )


def test_only_connect_is_allowed(connect_server: TunnelPair) -> None:
    answer = _ask(connect_server, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"\r\nContent-Type: text/plain; charset=utf-8\r\n" in head
    assert b"\r\nX-Content-Type-Options: nosniff\r\n" in head
    assert body == b"this proxy only supports CONNECT passthrough\n"


def test_garbage_is_answered_with_bad_request(connect_server: TunnelPair) -> None:
    answer = _ask(connect_server, b"\x16\x03\x01 nonsense\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"\r\nConnection: close\r\n" in answer
    assert answer.endswith(b"\r\n\r\n400 Bad Request")


def test_connect_needs_no_host_and_may_be_followed_by_bytes_at_once(connect_server: TunnelPair) -> None:
    connect_server.start_agent()
    with endpoint(echo) as address:
        tunnel = SocketTunnel(connect_server.frontend().connect())
        tunnel.send(f"CONNECT {address} HTTP/1.0\r\n\r\nearly".encode())
        received = b""
        while not received.endswith(b"early"):
            received += tunnel.receive(100)
        tunnel.close()
    connect_server.agent.kill()
    assert received == b"HTTP/1.1 200 Connection Established\r\n\r\nearly"


def test_a_dial_error_is_told_with_its_headers(connect_server: TunnelPair) -> None:
    with FakeAgent(connect_server) as agent:
        tunnel = SocketTunnel(connect_server.frontend().connect())
        tunnel.send(b"CONNECT 10.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n")
        request = agent.receive(PacketType.DIAL_REQ).dialRequest
        assert (request.protocol, request.address) == ("tcp", "10.0.0.1:1")
        agent.send(packet_messages.dial_response(request.random, error="dial tcp 10.0.0.1:1: i/o timeout"))
        answer = receive_to_end(tunnel)
        tunnel.close()
    assert answer == (
        b"HTTP/1.1 504 Gateway Timeout\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
        b"dial tcp 10.0.0.1:1: i/o timeout"
    )


def test_data_before_a_dial_ends_the_stream(grpc_server: TunnelPair) -> None:
    stream = _proxy_stream(grpc_server)
    stream.send(packet_messages.data(5, b"too early"))
    answer = stream.receive()
    assert answer.type == PacketType.CLOSE_RSP
    assert answer.closeResponse.error == "backend not initialized"
    stream.channel.close()


def test_close_before_a_dial_is_answered(grpc_server: TunnelPair) -> None:
    stream = _proxy_stream(grpc_server)
    stream.send(packet_messages.close_request(5))
    answer = stream.receive()
    assert answer.type == PacketType.CLOSE_RSP
    assert answer.closeResponse.error == "backend uninitialized"
    stream.channel.close()


def test_data_with_another_connection_id_closes_both(grpc_server: TunnelPair) -> None:
    with FakeAgent(grpc_server) as agent:
        dial = grpc_server.frontend().dial("10.0.0.1:1")
        agent.accept_dial(7)
        tunnel = dial.finish()
        assert isinstance(tunnel, GrpcTunnel)
        tunnel.send(b"first")
        assert agent.receive(PacketType.DATA).data.data == b"first"
        tunnel.stream.send(packet_messages.data(8, b"second"))
        answers = [tunnel.stream.receive(), tunnel.stream.receive()]
        # A worker that relays has an ID of its own for the connection.
        own = 7 if not grpc_server.shape.has_workers else tunnel.connection_id
        assert {answer.closeResponse.connectID for answer in answers} == {own, 8}
        assert {answer.closeResponse.error for answer in answers} == {"mismatched connection IDs"}
        assert agent.receive(PacketType.CLOSE_REQ).closeRequest.connectID in (7, 8)
        tunnel.abort()


def test_an_unknown_dial_answer_is_closed(grpc_server: TunnelPair) -> None:
    with FakeAgent(grpc_server) as agent:
        agent.send(packet_messages.dial_response(424242, connection_id=9))
        assert agent.receive(PacketType.CLOSE_REQ).closeRequest.connectID == 9


def test_many_proxy_streams_share_one_connection(grpc_server: TunnelPair) -> None:
    with FakeAgent(grpc_server) as agent:
        channel = grpc_server.frontend().channel()
        streams = [channel.open(PROXY_PATH) for _ in range(20)]
        for number, stream in enumerate(streams):
            stream.send(packet_messages.dial_request("10.0.0.1:1", 1000 + number))
            assert agent.accept_dial(1 + number) == 1000 + number
        for number, stream in enumerate(streams):
            agent.send(packet_messages.data(1 + number, b"%d" % number))
            assert stream.receive().dialResponse.connectID == 1 + number
            assert stream.receive().data.data == b"%d" % number
        channel.close()


def test_connect_answers_with_server_id_and_count(grpc_server: TunnelPair) -> None:
    with FakeAgent(grpc_server) as agent:
        shape = grpc_server.shape
        ids = [f"s1-{index}" for index in range(shape.workers)] if shape.has_workers else ["s1"]
        assert agent.headers["serverid"] in ids
        assert agent.headers["servercount"] == str(len(ids))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ([], "expected one agent ID in the context, got []"),
        ([("agentid", "a"), ("agentid", "b")], "expected one agent ID in the context, got [a b]"),
        (
            [("agentid", "a"), ("agentidentifiers", "host=a"), ("agentidentifiers", "host=b")],
            "expected at most one set of agent identifiers in the context, got [host=a host=b]",
        ),
    ],
    ids=["no id", "two ids", "two sets of identifiers"],
)
def test_connect_with_wrong_metadata_is_refused(
    grpc_server: TunnelPair, metadata: list[tuple[str, str]], message: str
) -> None:
    channel = open_agent_channel(grpc_server)
    stream = channel.open(CONNECT_PATH, metadata)
    stream.wait_for_end()
    assert stream.trailers is not None
    assert stream.trailers["grpc-status"] == "2"
    assert stream.trailers["grpc-message"] == message
    channel.close()


def test_an_unknown_method_is_unimplemented(grpc_server: TunnelPair) -> None:
    channel = grpc_server.frontend().channel()
    stream = channel.open("/ProxyService/Nothing")
    stream.wait_for_end()
    assert stream.trailers is not None
    assert stream.trailers["grpc-status"] == "12"
    channel.close()


def test_an_agent_of_another_authority_is_turned_away(grpc_server: TunnelPair, tmp_path: Path) -> None:
    folder = tmp_path / "foreign"
    folder.mkdir()
    foreign = FolderAuthority(folder, "foreign-ca")
    context = grpc_server.pki.authority.client_context(foreign.client("foreign-agent"), ["h2"])
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _handshake_and_read(grpc_server, context)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _handshake_and_read(grpc_server, grpc_server.pki.authority.client_context(None, ["h2"]))


def _handshake_and_read(pair: TunnelPair, context: ssl.SSLContext) -> None:
    """Raise what the rejection looks like: with TLS 1.3 a client learns of it at a read."""
    with (
        socket.create_connection(("127.0.0.1", pair.ports.agent), timeout=60) as tcp,
        context.wrap_socket(tcp, server_hostname="127.0.0.1") as tls,
    ):
        # The server's SETTINGS may come before its alert.
        while tls.recv(4096):
            pass
        raise ConnectionError("closed")


@pytest.mark.parametrize("implementation", ["ours", "upstream"])
def test_a_unix_socket_is_for_owner_and_group_replaces_a_stale_one_and_goes_with_the_server(
    start_pair: StartPair, implementation: str
) -> None:
    pair = start_pair(Shape(implementation, implementation, "grpc", "uds"), agents=False)
    pair.server.kill()
    assert pair.socket_path.exists()
    pair.start_server()
    assert oct(stat.S_IMODE(pair.socket_path.stat().st_mode)) == "0o770"
    pair.server.signal(signal.SIGTERM)
    assert pair.server.wait() == 0
    assert not pair.socket_path.exists()
