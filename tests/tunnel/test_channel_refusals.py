import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.data_plane import Reader, open_files, tls_pair, turn_until
from tests.support.socket_pairs import tcp_pair
from tests.support.tls_contexts import VERSIONS, client_context, server_context
from tests.support.tunnel_pki import FolderAuthority, TunnelPki

from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, client_profile, server_profile
from umbilical.tunnel.channel import TlsChannel
from umbilical.tunnel.loop import Loop


def refused(plane: Loop, listener: ssl.SSLContext, dialler: ssl.SSLContext, name: str = "localhost") -> tuple[str, str]:
    """What each end says about a handshake that must fail: the server's words, the client's words."""
    before = open_files()
    server, client = tls_pair(plane, listener, dialler, name)
    turn_until(plane, lambda: server.is_over() and client.is_over())
    assert not server.opened, "the server took the client"
    assert (len(server.lost), len(client.lost)) == (1, 1)
    client.channel.close()
    assert open_files() == before
    return server.lost[0], client.lost[0]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_client_without_a_certificate_is_refused_and_told(
    plane: Loop, tunnel_pki: TunnelPki, version: ssl.TLSVersion
) -> None:
    dialler = client_context(tunnel_pki, shows_certificate=False)
    dialler.maximum_version = version
    server_says, client_says = refused(plane, server_context(tunnel_pki), dialler)
    assert server_says == "TLS: peer did not return a certificate"
    wanted = {
        ssl.TLSVersion.TLSv1_2: "alert handshake failure",
        ssl.TLSVersion.TLSv1_3: "alert certificate required",
    }
    assert wanted[version] in client_says


def test_a_server_of_an_unknown_authority_is_refused(plane: Loop, tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    stranger = FolderAuthority(tmp_path, "stranger")
    server_says, client_says = refused(plane, server_context(tunnel_pki), stranger.client_context(None))
    assert client_says.startswith("certificate verification failed: self")
    assert "alert unknown ca" in server_says


def test_a_client_of_an_unknown_authority_is_refused(plane: Loop, tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    dialler = tunnel_pki.authority.client_context(FolderAuthority(tmp_path, "stranger").client("stranger"))
    server_says, client_says = refused(plane, server_context(tunnel_pki), dialler)
    assert server_says == "certificate verification failed: unable to get local issuer certificate"
    assert "alert unknown ca" in client_says


def test_a_server_under_another_name_is_refused(plane: Loop, tunnel_pki: TunnelPki) -> None:
    _, client_says = refused(plane, server_context(tunnel_pki), client_context(tunnel_pki), "konnectivity.example")
    assert client_says.startswith("certificate verification failed: Hostname mismatch")
    assert "konnectivity.example" in client_says


def test_a_server_under_another_address_is_refused(plane: Loop, tunnel_pki: TunnelPki) -> None:
    _, client_says = refused(plane, server_context(tunnel_pki), client_context(tunnel_pki), "192.0.2.1")
    assert client_says.startswith("certificate verification failed: IP address mismatch")


def test_a_client_certificate_does_not_serve_as_a_server(plane: Loop, tunnel_pki: TunnelPki) -> None:
    listener = tunnel_pki.authority.server_context(tunnel_pki.agent)
    _, client_says = refused(plane, listener, client_context(tunnel_pki))
    assert client_says.startswith("certificate verification failed: un")
    assert "purpose" in client_says


@pytest.mark.parametrize("expired", ["server", "client"])
def test_an_expired_certificate_is_refused(plane: Loop, tmp_path: Path, expired: str) -> None:
    now = datetime.now(UTC)
    authority = Authority.create("ca", now, timedelta(days=1), KeyType.ECDSA_P256)
    profiles = {
        "server": server_profile("server", ["localhost"], KeyType.ECDSA_P256),
        "client": client_profile("client", (), KeyType.ECDSA_P256),
    }
    contexts = {
        "server": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        "client": ssl.create_default_context(cadata=authority.certificate_pem.decode()),
    }
    contexts["server"].load_verify_locations(cadata=authority.certificate_pem.decode())
    contexts["server"].verify_mode = ssl.CERT_REQUIRED
    for who, profile in profiles.items():
        issued = authority.issue(profile, now, timedelta(minutes=-5 if who == expired else 5))
        pem = tmp_path / f"{who}.pem"
        pem.write_bytes(issued.certificate + issued.key)
        contexts[who].load_cert_chain(pem)
    server_says, client_says = refused(plane, contexts["server"], contexts["client"])
    judge, judged = (server_says, client_says) if expired == "client" else (client_says, server_says)
    assert judge == "certificate verification failed: certificate has expired"
    assert "alert certificate expired" in judged


def test_a_client_that_speaks_plainly_is_refused(plane: Loop, tunnel_pki: TunnelPki) -> None:
    ours, peer = tcp_pair()
    owner = Reader()
    owner.own(TlsChannel(plane, ours, server_context(tunnel_pki), None))
    peer.send(b"CONNECT 10.0.0.1:443 HTTP/1.1\r\n\r\n")
    turn_until(plane, owner.is_over)
    assert owner.lost == ["TLS: https proxy request"]


def test_a_server_that_speaks_plainly_is_refused(plane: Loop, tunnel_pki: TunnelPki) -> None:
    ours, peer = tcp_pair()
    owner = Reader()
    owner.own(TlsChannel(plane, ours, client_context(tunnel_pki), "localhost"))
    peer.recv(65_536)
    peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    turn_until(plane, owner.is_over)
    assert owner.lost == ["TLS: wrong version number"]


def test_peers_without_a_common_version_refuse_each_other(plane: Loop, tunnel_pki: TunnelPki) -> None:
    listener, dialler = server_context(tunnel_pki), client_context(tunnel_pki)
    listener.minimum_version = ssl.TLSVersion.TLSv1_3
    dialler.maximum_version = ssl.TLSVersion.TLSv1_2
    server_says, client_says = refused(plane, listener, dialler)
    assert server_says == "TLS: unsupported protocol"
    assert "alert protocol version" in client_says


def test_a_refusal_can_be_read_although_the_client_had_spoken_already(plane: Loop, tunnel_pki: TunnelPki) -> None:
    """In TLS 1.3 the client's handshake succeeds before the server has judged its certificate."""
    ours, peer = tcp_pair()
    peer.setblocking(False)
    server, client = Reader(), Reader()
    client.then_open = lambda: client.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    server.own(TlsChannel(plane, ours, server_context(tunnel_pki), None))
    client.own(TlsChannel(plane, peer, client_context(tunnel_pki, shows_certificate=False), "localhost"))
    turn_until(plane, client.is_over)
    assert client.opened == 1
    assert "alert certificate required" in client.lost[0]
    client.channel.close()
