"""A blocking dial ends in a stream or in the words that kube-apiserver would print; it never waits past its end."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.tunnel_pair import free_port

from umbilical.tunnel.blocking_dial import Deadline, DialRefused, dial_connect, dial_direct

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
