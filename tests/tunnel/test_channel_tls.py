import socket
import ssl

import pytest
from tests.support.data_plane import KIB, Reader, patterned, settle, tls_pair, turn_until
from tests.support.socket_pairs import reset, tcp_pair
from tests.support.tls_contexts import VERSIONS, client_context, server_context
from tests.support.tunnel_pki import TunnelPki

from umbilical.tunnel.channel import LOST, TlsChannel
from umbilical.tunnel.loop import Loop

BULK = patterned(3_000_000)


def opened(plane: Loop, pki: TunnelPki) -> tuple[Reader, Reader]:
    """Both ends of a TLS connection, ours, past the handshake."""
    server, client = tls_pair(plane, server_context(pki), client_context(pki))
    turn_until(plane, lambda: server.opened and client.opened)
    return server, client


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


def test_both_ends_know_each_other_after_the_handshake(plane: Loop, tunnel_pki: TunnelPki) -> None:
    server, client = opened(plane, tunnel_pki)
    assert isinstance(server.channel, TlsChannel)
    assert isinstance(client.channel, TlsChannel)
    certificate = server.channel.tls.getpeercert()
    assert certificate is not None
    assert certificate["subject"] == ((("commonName", "proxy-agent"),),)
    assert client.channel.tls.selected_alpn_protocol() == "h2"
    assert (server.channel.is_open(), client.channel.is_open()) == (True, True)
    assert (server.opened, client.opened) == (1, 1)


def test_a_closed_channel_is_an_end_at_the_other(plane: Loop, tunnel_pki: TunnelPki) -> None:
    server, client = opened(plane, tunnel_pki)
    client.write(b"last words")
    client.channel.close()
    turn_until(plane, server.is_over)
    assert (bytes(server.received), server.ended, server.lost) == (b"last words", True, [])


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
    server = Reader(view_bytes=1000)
    server.own(TlsChannel(plane, ours, server_context(tunnel_pki, asks_certificate=False), None))
    dialler = client_context(tunnel_pki)
    peer.setblocking(False)
    client = Reader()
    client.own(TlsChannel(plane, peer, dialler, "localhost"))
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
    ours, _ = tcp_pair()
    owner = Reader()
    channel = owner.own(TlsChannel(plane, ours, server_context(tunnel_pki), None))
    assert channel.send(b"early") == 0
    channel.close()


def test_a_peer_that_ends_during_the_handshake_is_named(plane: Loop, tunnel_pki: TunnelPki) -> None:
    ours, peer = tcp_pair()
    owner = Reader()
    channel = owner.own(TlsChannel(plane, ours, server_context(tunnel_pki), None))
    peer.close()
    turn_until(plane, owner.is_over)
    assert owner.lost == ["connection closed during the TLS handshake"]
    assert channel.closed
    assert owner.opened == 0


def test_a_reset_during_the_handshake_is_named(plane: Loop, tunnel_pki: TunnelPki) -> None:
    ours, peer = tcp_pair()
    owner = Reader()
    owner.own(TlsChannel(plane, ours, server_context(tunnel_pki), None))
    reset(peer)
    turn_until(plane, owner.is_over)
    assert owner.lost == ["Connection reset by peer"]


def test_a_handshake_may_arrive_one_byte_at_a_time(plane: Loop, tunnel_pki: TunnelPki) -> None:
    ours, peer = tcp_pair()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    owner = Reader()
    channel = owner.own(TlsChannel(plane, ours, server_context(tunnel_pki), None))
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
    assert channel.readable is False
    channel.close()


def test_pieces_that_are_added_leave_together_with_the_push(plane: Loop, tunnel_pki: TunnelPki) -> None:
    server, client = opened(plane, tunnel_pki)
    for piece in (b"control ", b"and payload"):
        assert server.channel.add(memoryview(piece)) == len(piece)
    settle(plane)
    assert bytes(client.received) == b"", "nothing has left yet"
    assert server.channel.push()
    turn_until(plane, lambda: bytes(client.received) == b"control and payload")
