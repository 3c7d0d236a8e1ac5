import asyncio
import base64
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from tests.support.dialling import closed_port, listening
from tests.support.socket_pairs import kept

from umbilical.tunnel import outbound

FAR = "konnectivity.example"
"""Not a name of this machine, so a proxy is used for it; only our own proxy sees the name."""


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


class Proxy:
    """Answers one CONNECT by its script, in a thread of its own, and keeps the head that it was sent."""

    def __init__(self, reply: bytes, *, hangs_up: bool = False) -> None:
        self._reply = reply
        self._hangs_up = hangs_up
        self.head = b""

    @contextlib.contextmanager
    def open(self) -> Iterator[int]:
        listener, port = listening()
        listener.settimeout(10)
        thread = threading.Thread(target=self._serve, args=(listener,))
        thread.start()
        try:
            yield port
        finally:
            thread.join(10)
        assert not thread.is_alive()

    def _serve(self, listener: socket.socket) -> None:
        client = listener.accept()[0]
        client.settimeout(10)
        with client, contextlib.suppress(ConnectionError):
            while not self.head.endswith(b"\r\n\r\n"):
                self.head += client.recv(1)
            client.sendall(self._reply)
            while not self._hangs_up and (piece := client.recv(1000)):
                client.sendall(piece.upper())


async def test_the_proxy_is_asked_and_then_carries_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy(b"HTTP/1.1 200 Connection established\r\nX-Proxy: small\r\n\r\nfirst bytes of the server")

    with proxy.open() as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        sock = kept(await outbound.connect(FAR, 8091))
        loop = asyncio.get_running_loop()
        assert await loop.sock_recv(sock, 100) == b"first bytes of the server"
        await loop.sock_sendall(sock, b"hello")
        assert await loop.sock_recv(sock, 100) == b"HELLO"
        sock.close()
    lines = proxy.head.decode().split("\r\n")
    assert lines[0] == f"CONNECT {FAR}:8091 HTTP/1.1"
    assert f"Host: {FAR}:8091" in lines
    assert not any(line.lower().startswith("proxy-authorization") for line in lines)


async def test_a_server_address_of_version_six_is_asked_for_in_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy(b"HTTP/1.1 200 OK\r\n\r\n")

    with proxy.open() as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        (await outbound.connect("2001:db8::1", 8091)).close()
    assert proxy.head.startswith(b"CONNECT [2001:db8::1]:8091 HTTP/1.1\r\n")


async def test_credentials_are_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    encoded = base64.b64encode(b"user:top-secret").decode()

    with proxy.open() as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:top-secret@127.0.0.1:{port}")
        with pytest.raises(OSError) as caught:
            await outbound.connect(FAR, 8091)
    text = str(caught.value)
    assert text == (f"HTTPS_PROXY 127.0.0.1:{port}: refused CONNECT {FAR}:8091: 407 Proxy Authentication Required")
    assert "top-secret" not in text
    assert encoded not in text
    assert f"Proxy-Authorization: Basic {encoded}\r\n".encode() in proxy.head


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", f"refused CONNECT {FAR}:8091: 403 Forbidden"),
        (b"SSH-2.0-OpenSSH_9\r\n", "malformed status line"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000, "longer than"),
    ],
)
async def test_a_proxy_that_refuses_or_babbles_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, reply: bytes, words: str
) -> None:
    with Proxy(reply).open() as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        with pytest.raises(OSError) as caught:
            await outbound.connect(FAR, 8091)
        assert str(caught.value).startswith(f"HTTPS_PROXY 127.0.0.1:{port}: ")
        assert words in str(caught.value)


async def test_a_proxy_that_closes_the_connection_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy(b"HTTP/1.1 200", hangs_up=True).open() as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        with pytest.raises(OSError, match="closed the connection before it answered CONNECT"):
            await outbound.connect(FAR, 8091)


async def test_a_proxy_that_is_not_there_is_named_as_the_failing_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    port = closed_port()
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:secret@127.0.0.1:{port}")

    with pytest.raises(OSError) as caught:
        await outbound.connect(FAR, 8091)
    text = str(caught.value)
    assert text.startswith(f"HTTPS_PROXY 127.0.0.1:{port}: ")
    assert "Connection refused" in text
    assert "secret" not in text


async def test_a_proxy_that_never_answers_is_left_without_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    _, port = listening()
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await outbound.connect(FAR, 8091)
