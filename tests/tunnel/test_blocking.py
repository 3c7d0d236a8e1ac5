"""A blocking dial ends in a stream or in the words that kube-apiserver would print; it never waits past its end."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support import packet_messages
from tests.support.grpc_channel import GrpcChannel, GrpcStream
from tests.support.tunnel_pair import Shape, TunnelPair, free_port
from tests.support.tunnel_pki import make_tunnel_pki

from umbilical.tunnel.blocking_dial import Deadline, DialRefused, dial_connect, dial_direct
from umbilical.tunnel.blocking_grpc import dial_grpc

SOON = 2.0
PATIENT = 60.0


@contextmanager
def scripted(path: Path, reply: bytes, heard: list[bytes], *, hangs: bool = False) -> Iterator[str]:
    """A server on a Unix socket that reads one head, says one thing and ends, or hangs."""
    done = threading.Event()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(PATIENT)

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.settimeout(PATIENT)
                heard.append(client.recv(4096))
                client.sendall(reply)
                done.wait(PATIENT if hangs else 0)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield str(path)
        finally:
            done.set()
            thread.join(PATIENT)


def test_connect_asks_as_kube_apiserver_does_and_hands_early_bytes_on(tmp_path: Path) -> None:
    heard: list[bytes] = []
    with scripted(tmp_path / "s", b"HTTP/1.1 200 OK\r\n\r\nearly", heard) as path:
        stream = dial_connect(path, "10.92.1.2:8443", Deadline(PATIENT))
        received = stream.receive()
        stream.close()

    assert heard == [b"CONNECT 10.92.1.2:8443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]
    assert received == b"early"


def test_a_refused_connect_is_told_with_proxy_address_and_status(tmp_path: Path) -> None:
    with (
        scripted(tmp_path / "s", b"HTTP/1.1 500 Internal Server Error\r\n\r\nNo agent available", []) as path,
        pytest.raises(DialRefused) as caught,
    ):
        dial_connect(path, "10.92.1.2:8443", Deadline(PATIENT))
    assert str(caught.value) == (
        f"proxy error from {path} while dialing 10.92.1.2:8443, code 500: 500 Internal Server Error"
    )


@pytest.mark.parametrize(
    ("reply", "words"), [(b"", "failed: EOF"), (b"220 mail ready\r\n\r\n", "malformed status line")]
)
def test_a_server_that_speaks_something_else_is_refused(tmp_path: Path, reply: bytes, words: str) -> None:
    with scripted(tmp_path / "s", reply, []) as path, pytest.raises(DialRefused) as caught:
        dial_connect(path, "10.92.1.2:8443", Deadline(PATIENT))
    assert str(caught.value).startswith("reading HTTP response from CONNECT to 10.92.1.2:8443 via proxy")
    assert words in str(caught.value)


def test_a_server_that_says_nothing_ends_with_the_deadline(tmp_path: Path) -> None:
    with scripted(tmp_path / "s", b"", [], hangs=True) as path, pytest.raises(DialRefused, match="i/o timeout"):
        dial_connect(path, "10.92.1.2:8443", Deadline(SOON))


def test_a_missing_socket_is_told_in_go_s_words(tmp_path: Path) -> None:
    with pytest.raises(DialRefused) as caught:
        dial_connect(str(tmp_path / "none"), "10.92.1.2:8443", Deadline(PATIENT))
    assert str(caught.value) == f"dial unix {tmp_path / 'none'}: connect: no such file or directory"


def test_a_stale_socket_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
    with pytest.raises(DialRefused, match="connect: connection refused"):
        dial_connect(str(tmp_path / "s"), "10.92.1.2:8443", Deadline(PATIENT))


def test_a_direct_dial_to_a_closed_port_is_refused_in_go_s_words() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(DialRefused) as caught:
        dial_direct(address, Deadline(PATIENT))
    assert str(caught.value) == f"dial tcp {address}: connect: connection refused"


def test_a_direct_dial_without_a_port_is_refused() -> None:
    with pytest.raises(DialRefused, match="missing port in address"):
        dial_direct("10.92.1.2", Deadline(PATIENT))


def test_a_name_that_no_resolver_can_know_is_no_such_host() -> None:
    with pytest.raises(DialRefused, match="no such host"):
        dial_direct(f"{'x' * 70}.invalid:443", Deadline(PATIENT))


def test_a_direct_dial_carries_bytes_both_ways() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stream = dial_direct(f"127.0.0.1:{server.getsockname()[1]}", Deadline(PATIENT))
        peer, _ = server.accept()
        with peer:
            stream.send(b"hello")
            assert peer.recv(100) == b"hello"
            peer.sendall(b"world")
            assert stream.receive() == b"world"
        assert stream.receive() == b""
        stream.close()


def test_waiting_for_bytes_ends_with_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stream = dial_direct(f"127.0.0.1:{server.getsockname()[1]}", Deadline(SOON))
        with pytest.raises(TimeoutError):
            stream.receive()
        with pytest.raises(TimeoutError, match="context deadline exceeded"):
            stream.send(b"late")
        stream.close()


Deed = Callable[[GrpcChannel, GrpcStream], None]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TunnelPair]:
    folder = tmp_path_factory.mktemp("pair")
    pair = TunnelPair(Shape(mode="grpc"), make_tunnel_pki(folder), folder)
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()


def echo(server: socket.socket) -> None:
    peer, _ = server.accept()
    with peer:
        while chunk := peer.recv(65536):
            peer.sendall(chunk)


def test_bytes_larger_than_any_window_come_back_whole(pair: TunnelPair) -> None:
    payload = bytes(range(251)) * 4000
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=echo, args=(server,))
        thread.start()
        stream = dial_grpc(str(pair.socket_path), f"127.0.0.1:{server.getsockname()[1]}", Deadline(PATIENT))
        received = bytearray()
        stream.send(payload)
        while len(received) < len(payload):
            received += stream.receive()
        stream.close()
        thread.join(PATIENT)

    assert received == payload


def test_the_endpoint_s_end_is_an_empty_read(pair: TunnelPair) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stream = dial_grpc(str(pair.socket_path), f"127.0.0.1:{server.getsockname()[1]}", Deadline(PATIENT))
        peer, _ = server.accept()
        peer.close()
        assert stream.receive() == b""
        stream.close()


def test_a_dial_that_the_agent_cannot_make_is_told_in_the_agent_s_words(pair: TunnelPair) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(DialRefused) as caught:
        dial_grpc(str(pair.socket_path), address, Deadline(PATIENT))
    assert str(caught.value) == f"dial tcp {address}: connect: connection refused"


def test_a_server_without_agents_says_so(tmp_path: Path) -> None:
    lonely = TunnelPair(Shape(mode="grpc"), make_tunnel_pki(tmp_path), tmp_path)
    try:
        lonely.start_server()
        with pytest.raises(DialRefused, match=r"^No agent available$"):
            dial_grpc(str(lonely.socket_path), "10.92.1.2:8443", Deadline(PATIENT))
    finally:
        lonely.stop()


def test_a_missing_socket_is_told_as_grpc_tells_it(tmp_path: Path) -> None:
    with pytest.raises(DialRefused) as caught:
        dial_grpc(str(tmp_path / "none"), "10.92.1.2:8443", Deadline(PATIENT))
    assert str(caught.value).startswith("rpc error: code = Unavailable")
    assert f"dial unix {tmp_path / 'none'}: connect: no such file or directory" in str(caught.value)


@pytest.mark.real("proxy-server", "proxy-agent")
def test_upstream_s_server_and_agent_carry_it_too(tmp_path: Path) -> None:
    pair = TunnelPair(Shape("upstream", "upstream", "grpc"), make_tunnel_pki(tmp_path), tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=echo, args=(server,))
        thread.start()
        try:
            pair.start()
            stream = dial_grpc(str(pair.socket_path), f"127.0.0.1:{server.getsockname()[1]}", Deadline(PATIENT))
            stream.send(b"hello")
            assert stream.receive() == b"hello"
            stream.close()
        finally:
            pair.stop()
            thread.join(PATIENT)


@contextmanager
def scripted_grpc(path: Path, deed: Deed) -> Iterator[str]:
    """A gRPC server for one client: takes its first stream and does one thing to it."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(PATIENT)

        def serve() -> None:
            client, _ = server.accept()
            client.settimeout(PATIENT)
            with client:
                channel = GrpcChannel(client, client_side=False)
                deed(channel, channel.accept(PATIENT))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield str(path)
        finally:
            thread.join(PATIENT)


def answer(channel: GrpcChannel, stream: GrpcStream) -> None:
    request = stream.receive(PATIENT)
    channel.respond(stream, ())
    stream.send(packet_messages.dial_response(request.dialRequest.random, 7))


def opens_then_vanishes(channel: GrpcChannel, stream: GrpcStream) -> None:
    answer(channel, stream)


def opens_then_resets(channel: GrpcChannel, stream: GrpcStream) -> None:
    answer(channel, stream)
    stream.cancel()


def opens_then_sends_rubbish(channel: GrpcChannel, stream: GrpcStream) -> None:
    answer(channel, stream)
    stream.send_raw(b"\0\0\0\0\2\xff\xff")


def opens_then_fails(channel: GrpcChannel, stream: GrpcStream) -> None:
    answer(channel, stream)
    channel.http2.send_headers(stream.stream_id, [("grpc-status", "13"), ("grpc-message", "boom")], end_stream=True)
    channel.flush()


def closes_with_an_error(channel: GrpcChannel, stream: GrpcStream) -> None:
    answer(channel, stream)
    stream.send(packet_messages.close_response(7, "read: connection reset by peer"))


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        (opens_then_vanishes, "error reading from server: EOF"),
        (opens_then_resets, "RST_STREAM"),
        (opens_then_sends_rubbish, "code = Internal"),
        (opens_then_fails, "code = Internal desc = boom"),
        (closes_with_an_error, "read: connection reset by peer"),
    ],
)
def test_a_tunnel_that_breaks_is_an_error_and_never_a_quiet_end(tmp_path: Path, deed: Deed, words: str) -> None:
    with scripted_grpc(tmp_path / "s", deed) as path:
        stream = dial_grpc(path, "10.92.1.2:8443", Deadline(PATIENT))
        with pytest.raises(ConnectionError, match=words):
            stream.receive()
        stream.close()


def refuses_the_call(channel: GrpcChannel, stream: GrpcStream) -> None:
    trailers = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "12")]
    channel.http2.send_headers(stream.stream_id, trailers, end_stream=True)
    channel.flush()


def vanishes(channel: GrpcChannel, stream: GrpcStream) -> None:
    pass


def answers_another_dial(channel: GrpcChannel, stream: GrpcStream) -> None:
    channel.respond(stream, ())
    stream.send(packet_messages.dial_response(stream.receive(PATIENT).dialRequest.random ^ 1, 7))
    while not channel.ended:
        channel.pump(time.monotonic() + PATIENT)


@pytest.mark.parametrize(
    ("deed", "words", "seconds"),
    [
        (refuses_the_call, "code = Unimplemented", PATIENT),
        (vanishes, "code = Unavailable", PATIENT),
        (answers_another_dial, "context deadline exceeded", SOON),
    ],
)
def test_a_dial_that_gets_no_answer_is_refused(tmp_path: Path, deed: Deed, words: str, seconds: float) -> None:
    with scripted_grpc(tmp_path / "s", deed) as path, pytest.raises(DialRefused, match=words):
        dial_grpc(path, "10.92.1.2:8443", Deadline(seconds))


def test_a_peer_that_speaks_no_http2_is_refused(tmp_path: Path) -> None:
    def serve(server: socket.socket) -> None:
        client, _ = server.accept()
        with client:
            client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            client.recv(100)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        with pytest.raises(DialRefused, match="connection ended"):
            dial_grpc(str(tmp_path / "s"), "10.92.1.2:8443", Deadline(PATIENT))
        thread.join(PATIENT)
