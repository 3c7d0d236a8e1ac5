import socket
from collections.abc import Callable

import pytest
from tests.support.data_plane import KIB, Reader, open_files, patterned, settle, tls_pair, turn_until
from tests.support.socket_pairs import read_to_end, reset, tcp_pair
from tests.support.tunnel_pki import TunnelPki

from umbilical.tunnel import linger
from umbilical.tunnel.channel import Channel
from umbilical.tunnel.linger import LingeringChannels
from umbilical.tunnel.loop import Loop

BULK = patterned(600_000)


def lingering(plane: Loop) -> tuple[LingeringChannels, Channel, socket.socket]:
    ours, peer = tcp_pair()
    return LingeringChannels(plane), Reader().own(Channel(plane, ours)), peer


def test_a_peer_that_was_still_talking_gets_every_byte_and_no_reset(plane: Loop) -> None:
    """With a plain close, the unread input would make the kernel throw away what the peer has not fetched yet."""
    room, channel, peer = lingering(plane)
    sent = 0
    while (count := channel.send(BULK)) > 0:
        sent += count
    peer.send(b"never read")
    room.take(channel)
    peer.send(b"nor this")
    settle(plane)
    received = read_to_end(peer)
    assert len(received) == sent
    peer.close()
    turn_until(plane, lambda: channel.closed)
    assert len(room) == 0


def test_the_peer_sees_our_end_at_once(plane: Loop) -> None:
    room, channel, peer = lingering(plane)
    channel.send(b"last words")
    room.take(channel)
    assert read_to_end(peer) == b"last words"
    assert not channel.closed
    assert len(room) == 1
    channel.close()


def test_a_peer_that_ended_before_is_not_waited_for(plane: Loop) -> None:
    before = open_files()
    room, channel, peer = lingering(plane)
    peer.close()
    turn_until(plane, lambda: channel.hung_up)
    room.take(channel)
    settle(plane)
    assert channel.closed
    assert len(room) == 0
    assert open_files() == before


@pytest.mark.parametrize(
    "end",
    [
        lambda channel, peer: reset(peer),
        lambda channel, peer: channel.owner.on_crash(RuntimeError("a bug")),
        lambda channel, peer: channel.fail("a bug"),
    ],
    ids=["the peer resets", "the lingering crashes", "the channel fails"],
)
def test_whoever_breaks_leaves_the_room_at_once(plane: Loop, end: Callable[[Channel, socket.socket], object]) -> None:
    room, channel, peer = lingering(plane)
    room.take(channel)
    end(channel, peer)
    turn_until(plane, lambda: channel.closed)
    assert len(room) == 0


def test_whatever_the_peer_still_sends_is_read_and_dropped(plane: Loop) -> None:
    room, channel, peer = lingering(plane)
    room.take(channel)
    peer.setblocking(False)
    rest = memoryview(BULK)

    def written() -> bool:
        nonlocal rest
        try:
            rest = rest[peer.send(rest[: 64 * KIB]) :]
        except BlockingIOError:
            pass
        return not rest

    turn_until(plane, written)
    peer.close()
    turn_until(plane, lambda: channel.closed)


def test_a_peer_that_never_ends_is_left_after_a_while(plane: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert linger.LINGER_SECONDS == 2.0
    monkeypatch.setattr(linger, "LINGER_SECONDS", 0.05)
    room, channel, _ = lingering(plane)
    room.take(channel)
    assert len(room) == 1
    turn_until(plane, lambda: channel.closed)
    assert len(room) == 0


def test_a_tls_peer_sees_a_clean_end(plane: Loop, tunnel_pki: TunnelPki) -> None:
    pki = tunnel_pki
    server, client = tls_pair(plane, pki.authority.server_context(pki.server), pki.authority.client_context(None))
    turn_until(plane, lambda: server.opened and client.opened)
    room = LingeringChannels(plane)
    server.write(b"last words")
    client.channel.send(b"never read")
    room.take(server.channel)
    turn_until(plane, client.is_over)
    assert (bytes(client.received), client.ended, client.lost) == (b"last words", True, [])
    client.channel.close()
    turn_until(plane, lambda: server.channel.closed)
    assert len(room) == 0
