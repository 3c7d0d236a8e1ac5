import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.data_plane import KIB, Reader, open_files, patterned, settle, tls_pair, turn_until
from tests.support.socket_pairs import reset, tcp_pair
from tests.support.tls_contexts import VERSIONS, client_context, server_context
from tests.support.tunnel_pki import FolderAuthority, TunnelPki

from umbilical.tunnel.channel import LOST
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.tls_channel import TlsChannel

BULK = patterned(3_000_000)


def opened(plane: Loop, pki: TunnelPki) -> tuple[Reader, Reader]:
    """Both ends of a TLS connection, ours, past the handshake."""
    server, client = tls_pair(plane, server_context(pki), client_context(pki))
    turn_until(plane, lambda: server.opened and client.opened)
    return server, client


def awaiting(plane: Loop, pki: TunnelPki) -> tuple[Reader, socket.socket]:
    """A server's end, and a peer at a bare socket that has not spoken yet."""
    ours, peer = tcp_pair()
    server = Reader()
    server.own(TlsChannel(plane, ours, server_context(pki), None))
    return server, peer


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_large_transfers_go_both_ways_at_once(plane: Loop, tunnel_pki: TunnelPki, version: ssl.TLSVersion) -> None:
    dialler = client_context(tunnel_pki)
    dialler.minimum_version = dialler.maximum_version = version
    server, client = tls_pair(plane, server_context(tunnel_pki), dialler)
    turn_until(plane, lambda: server.opened and client.opened)
    back = BULK[::-1]
    server.write(back)
    client.write(BULK)
    turn_until(plane, lambda: len(server.received) == len(BULK) and len(client.received) == len(back))
    assert server.received == BULK
    assert client.received == back
    assert server.has_sent_all()
    assert client.has_sent_all()
    assert isinstance(client.channel, TlsChannel)
    assert client.channel.tls.version() == version.name.replace("_", ".")
    server.channel.close()
    client.channel.close()


def test_an_end_of_sending_leaves_the_other_direction_open(plane: Loop, tunnel_pki: TunnelPki) -> None:
    server, client = opened(plane, tunnel_pki)
    client.channel.end_sending()
    turn_until(plane, server.is_over)
    server.write(b"answer")
    turn_until(plane, lambda: client.received == b"answer")
    assert server.ended


def test_a_missing_close_notify_is_a_loss_and_not_an_end(plane: Loop, tunnel_pki: TunnelPki) -> None:
    """An attacker who can cut the TCP connection must not be able to pass a part off as the whole."""
    server, client = opened(plane, tunnel_pki)
    client.write(b"first half")
    client.channel.sock.shutdown(socket.SHUT_WR)
    turn_until(plane, server.is_over)
    assert bytes(server.received) == b"first half"
    assert not server.ended
    assert server.lost == ["TLS: connection ended without close_notify"]


def test_bytes_and_close_notify_and_the_end_in_one_event_are_all_told(plane: Loop, tunnel_pki: TunnelPki) -> None:
    ours, peer = tcp_pair()
    server, client = Reader(view_bytes=1000), Reader()
    server.own(TlsChannel(plane, ours, server_context(tunnel_pki, asks_certificate=False), None))
    peer.setblocking(False)
    client.own(TlsChannel(plane, peer, client_context(tunnel_pki), "localhost"))
    turn_until(plane, lambda: server.opened and client.opened)
    client.write(BULK[:20_000])
    client.channel.close()
    turn_until(plane, server.is_over)
    assert server.received == BULK[:20_000]
    assert (server.ended, server.lost) == (True, [])


@pytest.mark.parametrize("view_bytes", [100, 600, 64 * KIB])
def test_a_reset_behind_bytes_is_told_after_them(plane: Loop, tunnel_pki: TunnelPki, view_bytes: int) -> None:
    server, client = opened(plane, tunnel_pki)
    server._view = memoryview(bytearray(view_bytes))
    client.write(BULK[:1000])
    turn_until_received(plane, server.channel.sock)
    reset(client.channel.sock)
    turn_until(plane, server.is_over)
    assert bytes(server.received) == BULK[:1000]
    assert server.lost == ["Connection reset by peer"]


def turn_until_received(plane: Loop, sock: socket.socket) -> None:
    """Wait, without reading, until bytes lie in the socket."""
    sock.setblocking(True)
    sock.settimeout(10)
    sock.recv(1, socket.MSG_PEEK)
    sock.setblocking(False)


def test_garbage_inside_an_open_connection_is_a_loss(plane: Loop, tunnel_pki: TunnelPki) -> None:
    server, client = opened(plane, tunnel_pki)
    client.channel.sock.send(b"this is no TLS record")
    turn_until(plane, server.is_over)
    assert len(server.lost) == 1
    assert server.lost[0].startswith("TLS: ")


def test_a_loss_while_sending_is_told(plane: Loop, tunnel_pki: TunnelPki) -> None:
    server, client = opened(plane, tunnel_pki)
    reset(client.channel.sock)
    turn_until(plane, server.is_over)
    assert server.lost == ["Connection reset by peer"]
    assert server.channel.send(b"x") == LOST


def test_unsent_bytes_are_pushed_when_there_is_room(plane: Loop, tunnel_pki: TunnelPki) -> None:
    server, client = opened(plane, tunnel_pki)
    client._view = memoryview(bytearray(0))
    plane.remove(client.channel.descriptor)
    while server.channel.send(BULK[: 256 * KIB]) > 0:
        pass
    assert server.channel.has_unsent()
    assert server.channel.push()
    assert server.channel.has_unsent()
    client.channel.close()


def test_an_end_of_sending_waits_for_bytes_that_the_socket_has_no_room_for(plane: Loop, tunnel_pki: TunnelPki) -> None:
    server, client = opened(plane, tunnel_pki)
    plane.remove(client.channel.descriptor)
    sent = 0
    while not server.channel.has_unsent():
        sent += server.channel.send(BULK[: 256 * KIB])
    server.channel.end_sending()
    server.channel.end_sending()
    plane.add(client.channel.descriptor, client.channel, False)
    turn_until(plane, client.is_over)
    assert (len(client.received), client.ended, client.lost) == (sent, True, [])
    server.channel.close()


def test_sending_before_the_handshake_is_done_takes_nothing(plane: Loop, tunnel_pki: TunnelPki) -> None:
    server, _ = awaiting(plane, tunnel_pki)
    assert server.channel.send(b"early") == 0


@pytest.mark.parametrize(
    ("leave", "words"),
    [(socket.socket.close, "connection closed during the TLS handshake"), (reset, "Connection reset by peer")],
    ids=["ends", "resets"],
)
def test_a_peer_that_leaves_during_the_handshake_is_named(
    plane: Loop, tunnel_pki: TunnelPki, leave: Callable[[socket.socket], None], words: str
) -> None:
    server, peer = awaiting(plane, tunnel_pki)
    leave(peer)
    turn_until(plane, server.is_over)
    assert (server.lost, server.opened, server.channel.closed) == ([words], 0, True)


def test_a_handshake_may_arrive_one_byte_at_a_time(plane: Loop, tunnel_pki: TunnelPki) -> None:
    owner, peer = awaiting(plane, tunnel_pki)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context(tunnel_pki).wrap_bio(incoming, outgoing, server_hostname="localhost")
    while not owner.opened:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        for octet in outgoing.read():
            peer.send(bytes([octet]))
            settle(plane, 1)
        settle(plane)
        if not owner.opened:
            incoming.write(peer.recv(65_536))
    assert owner.channel.readable is False


def test_pieces_that_are_added_leave_together_with_the_push(plane: Loop, tunnel_pki: TunnelPki) -> None:
    server, client = opened(plane, tunnel_pki)
    for piece in (b"control ", b"and payload"):
        assert server.channel.add(memoryview(piece)) == len(piece)
    settle(plane)
    assert bytes(client.received) == b"", "nothing has left yet"
    assert server.channel.push()
    turn_until(plane, lambda: bytes(client.received) == b"control and payload")


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
    wanted = {ssl.TLSVersion.TLSv1_2: "alert handshake failure", ssl.TLSVersion.TLSv1_3: "alert certificate required"}
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


def test_a_client_certificate_does_not_serve_as_a_server(plane: Loop, tunnel_pki: TunnelPki) -> None:
    listener = tunnel_pki.authority.server_context(tunnel_pki.agent)
    _, client_says = refused(plane, listener, client_context(tunnel_pki))
    assert client_says.startswith("certificate verification failed: un")
    assert "purpose" in client_says


def test_a_client_that_speaks_plainly_is_refused(plane: Loop, tunnel_pki: TunnelPki) -> None:
    owner, peer = awaiting(plane, tunnel_pki)
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


def test_a_refusal_can_be_read_although_the_client_had_spoken_already(plane: Loop, tunnel_pki: TunnelPki) -> None:
    """In TLS 1.3 the client's handshake succeeds before the server has judged its certificate."""
    _, peer = awaiting(plane, tunnel_pki)
    peer.setblocking(False)
    client = Reader()
    client.then_open = lambda: client.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    client.own(TlsChannel(plane, peer, client_context(tunnel_pki, shows_certificate=False), "localhost"))
    turn_until(plane, client.is_over)
    assert client.opened == 1
    assert "alert certificate required" in client.lost[0]
    client.channel.close()


def test_a_dot_at_the_end_of_a_servers_name_is_left_out_of_tls(plane: Loop, tunnel_pki: TunnelPki) -> None:
    ours, theirs = tcp_pair()
    server, client = Reader(), Reader()
    server.own(TlsChannel(plane, ours, server_context(tunnel_pki), None))
    client.own(TlsChannel(plane, theirs, client_context(tunnel_pki), "localhost."))
    turn_until(plane, lambda: server.opened and client.opened)
    assert isinstance(client.channel, TlsChannel)
    assert client.channel.tls.server_hostname == "localhost"
    server.channel.close()
    client.channel.close()
