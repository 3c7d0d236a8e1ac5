"""TLS over something that is no socket, and failed handshakes in Go's words."""

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support import tls_listener
from tests.support.tunnel_pki import FolderAuthority, Pair

from umbilical.lab.tls_stream import TlsRefused, TlsStream
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, server_profile

NAME = "webhook.lab.svc"


class Plain:
    """A connection below, over a socket of this test's own."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)

    def send(self, payload: bytes) -> None:
        self.socket.sendall(payload)

    def receive(self) -> bytes:
        return self.socket.recv(4096)

    def close(self) -> None:
        self.socket.close()


def handshake(port: int, context: ssl.SSLContext, name: str = NAME) -> TlsStream:
    below = Plain(port)
    stream = TlsStream(below, context, name)
    try:
        stream.handshake()
    except BaseException:
        below.close()
        raise
    return stream


@pytest.fixture
def authority(tmp_path: Path) -> FolderAuthority:
    return FolderAuthority(tmp_path)


@pytest.fixture
def pair(authority: FolderAuthority) -> Pair:
    return authority.serving("webhook", [NAME])


def test_bytes_go_both_ways_and_the_end_is_empty(authority: FolderAuthority, pair: Pair) -> None:
    with tls_listener.listener(tls_listener.answers(authority.server_context(pair))) as port:
        stream = handshake(port, authority.client_context(None))
        stream.send(b"hello")
        assert stream.receive() == tls_listener.SETTINGS
        stream.close()


def test_a_peer_that_hangs_up_ends_the_stream(authority: FolderAuthority, pair: Pair) -> None:
    with tls_listener.listener(tls_listener.hangs_up(authority.server_context(pair))) as port:
        stream = handshake(port, authority.client_context(None))
        assert stream.receive() == b""
        stream.close()


def test_a_stranger_s_certificate_is_of_an_unknown_authority(
    authority: FolderAuthority, pair: Pair, tmp_path: Path
) -> None:
    stranger = FolderAuthority(tmp_path, "stranger")
    with (
        tls_listener.listener(tls_listener.answers(authority.server_context(pair))) as port,
        pytest.raises(TlsRefused, match="x509: certificate signed by unknown authority"),
    ):
        handshake(port, stranger.client_context(None))


def test_a_certificate_for_another_name_says_which_name_was_asked_for(authority: FolderAuthority, pair: Pair) -> None:
    with (
        tls_listener.listener(tls_listener.answers(authority.server_context(pair))) as port,
        pytest.raises(TlsRefused, match=r"x509: certificate is not valid for other\.lab\.svc"),
    ):
        handshake(port, authority.client_context(None), "other.lab.svc")


def test_a_certificate_of_yesterday_is_told_as_such(tmp_path: Path) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=2)
    authority = Authority.create("ca", yesterday, timedelta(days=10), KeyType.ECDSA_P256)
    issued = authority.issue(server_profile("webhook", [NAME], KeyType.ECDSA_P256), yesterday, timedelta(days=1))
    (tmp_path / "pair.pem").write_bytes(issued.certificate + issued.key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "pair.pem")
    context = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    with (
        tls_listener.listener(tls_listener.answers(serving)) as port,
        pytest.raises(TlsRefused, match="has expired or is not yet valid"),
    ):
        handshake(port, context)


def test_a_peer_without_tls_is_told_as_such(authority: FolderAuthority) -> None:
    with tls_listener.listener(tls_listener.plain_text) as port, pytest.raises(TlsRefused, match=r"^tls: "):
        handshake(port, authority.client_context(None))


def test_a_peer_that_goes_away_in_the_handshake_is_an_eof(authority: FolderAuthority) -> None:
    with tls_listener.listener(lambda client: None) as port, pytest.raises((TlsRefused, ConnectionError)) as caught:
        handshake(port, authority.client_context(None))
    assert isinstance(caught.value, ConnectionError) or str(caught.value) == "EOF"
