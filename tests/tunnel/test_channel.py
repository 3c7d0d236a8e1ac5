import socket
from collections.abc import Callable

import pytest
from tests.support.data_plane import KIB, Reader, open_files, patterned, receive_all, settle, turn_until
from tests.support.socket_pairs import kept, read_to_end, reset, tcp_pair, unix_pair

from umbilical.tunnel.channel import AGAIN, LOST, NOTSENT_LOWAT, UNSENT_BYTES, Channel
from umbilical.tunnel.loop import Loop

BULK = patterned(3_000_000)
Pair = tuple[socket.socket, socket.socket]


def owned(plane: Loop, pair: Pair | None = None) -> tuple[Reader, Channel, socket.socket]:
    """A reader, its channel, and the peer's socket."""
    ours, peer = pair or unix_pair()
    reader = Reader()
    return reader, reader.own(Channel(plane, ours)), peer


@pytest.mark.parametrize("make", [unix_pair, tcp_pair])
def test_bytes_and_the_end_in_one_event_are_both_told(plane: Loop, make: Callable[[], Pair]) -> None:
    ours, peer = make()
    peer.send(b"last words")
    peer.close()
    reader = Reader()
    channel = reader.own(Channel(plane, ours))
    turn_until(plane, reader.is_over)
    assert (bytes(reader.received), reader.ended, channel.hung_up) == (b"last words", True, True)


def test_the_end_is_told_behind_more_bytes_than_one_read_takes(plane: Loop) -> None:
    ours, peer = unix_pair()
    peer.send(BULK[: 32 * KIB])
    peer.close()
    reader = Reader(view_bytes=1000)
    reader.own(Channel(plane, ours))
    turn_until(plane, reader.is_over)
    assert reader.received == BULK[: 32 * KIB]
    assert reader.ended


def test_an_end_that_comes_alone_is_told_while_sending_goes_on(plane: Loop) -> None:
    reader, channel, peer = owned(plane, tcp_pair())
    peer.shutdown(socket.SHUT_WR)
    turn_until(plane, reader.is_over)
    assert reader.ended
    assert channel.send(b"answer") == 6
    channel.end_sending()
    assert read_to_end(peer) == b"answer"


def test_an_empty_socket_says_again(plane: Loop) -> None:
    reader, channel, _ = owned(plane)
    reader.channel.readable = True
    assert channel.receive_into(memoryview(bytearray(10))) == AGAIN
    assert not channel.readable


def test_a_full_read_leaves_the_channel_readable_and_a_short_one_does_not(plane: Loop) -> None:
    _, channel, peer = owned(plane)
    peer.send(b"0123456789")
    channel.readable = True
    seen = [(channel.receive_into(memoryview(bytearray(8))), channel.readable) for _ in range(2)]
    assert seen == [(8, True), (2, False)]


def test_a_reset_is_a_loss_with_its_cause_and_not_an_end(plane: Loop) -> None:
    reader, channel, peer = owned(plane, tcp_pair())
    reset(peer)
    turn_until(plane, reader.is_over)
    assert reader.lost == ["Connection reset by peer"]
    assert channel.send(b"x") == LOST


def test_sending_to_a_peer_that_is_gone_is_a_loss(plane: Loop) -> None:
    _, channel, peer = owned(plane)
    peer.close()
    assert channel.send(b"x") == LOST
    assert channel.error == "Broken pipe"


@pytest.mark.parametrize("make", [unix_pair, tcp_pair])
def test_a_send_that_came_back_short_goes_on_when_there_is_room(plane: Loop, make: Callable[[], Pair]) -> None:
    ours, peer = make()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * KIB)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
    writer = Reader()
    writer.own(Channel(plane, ours))
    writer.write(BULK)
    assert writer.outgoing, "all of it fitted into the socket: the test shows nothing"
    assert receive_all(plane, peer, len(BULK)) == BULK
    turn_until(plane, writer.has_sent_all)
    assert writer.writable > 0


def test_nobody_is_told_of_room_who_did_not_ask(plane: Loop) -> None:
    owner, channel, peer = owned(plane)
    channel.ask_room()
    turn_until(plane, lambda: owner.writable == 1)
    peer.send(b"x")
    turn_until(plane, lambda: owner.received == b"x")
    assert owner.writable == 1
    channel.ask_room()
    peer.send(b"y")
    turn_until(plane, lambda: owner.writable == 2)


def test_who_waits_for_room_learns_of_the_hang_up(plane: Loop) -> None:
    owner, channel, peer = owned(plane)
    channel.ask_room()
    peer.close()
    turn_until(plane, lambda: owner.writable)


def test_an_adopted_descriptor_is_watched_for_room_already(plane: Loop) -> None:
    ours, peer = unix_pair()
    owner = Reader()
    other = Channel(plane, ours)
    plane.add(ours.fileno(), other, True)
    channel = Channel(plane, ours)
    owner.channel = channel
    channel.adopt(owner)
    channel.ask_room()
    peer.send(b"x")
    turn_until(plane, lambda: owner.received == b"x" and owner.writable)


def test_closing_twice_is_closing_once_and_silences_the_channel(plane: Loop) -> None:
    before = open_files()
    owner, channel, peer = owned(plane, tcp_pair())
    peer.send(b"x")
    channel.close()
    channel.close()
    channel.ask_room()
    settle(plane)
    assert (bytes(owner.received), owner.writable, channel.closed) == (b"", 0, True)
    peer.close()
    assert open_files() == before


def test_an_owner_that_breaks_loses_its_channel_and_hears_why(plane: Loop) -> None:
    def drop() -> None:
        raise RuntimeError("dropped it")

    ours, peer = unix_pair()
    neighbour_ours, neighbour_peer = unix_pair()
    owner, neighbour = Reader(), Reader()
    owner.in_place_of_reading = drop
    channel = owner.own(Channel(plane, ours))
    neighbour_channel = neighbour.own(Channel(plane, neighbour_ours))
    peer.send(b"x")
    neighbour_peer.send(b"y")
    turn_until(plane, lambda: owner.lost and neighbour.received)
    assert owner.lost == ["internal error: RuntimeError('dropped it')"]
    assert channel.closed
    assert not neighbour_channel.closed
    neighbour_channel.close()


def test_an_owner_may_close_the_channel_while_it_reads(plane: Loop) -> None:
    owner, channel, peer = owned(plane)
    owner.in_place_of_reading = channel.close
    channel.ask_room()
    peer.close()
    settle(plane)
    assert (owner.writable, owner.lost) == (0, [])


def test_a_peer_is_named_by_address_or_as_unix(plane: Loop) -> None:
    ours, peer = tcp_pair()
    assert Channel(plane, ours).peer() == f"127.0.0.1:{peer.getsockname()[1]}"
    assert Channel(plane, unix_pair()[0]).peer() == "unix"
    ours.close()
    assert Channel(plane, ours).peer() == "unknown"


@pytest.mark.parametrize(
    ("host", "shown"), [("::1", "[::1]"), ("127.0.0.1", "127.0.0.1")], ids=["IPv6", "IPv4 at a listener for both"]
)
def test_the_family_of_a_peer_shows_in_its_name(plane: Loop, host: str, shown: str) -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        client = kept(socket.create_connection((host, listener.getsockname()[1]), timeout=10))
        assert Channel(plane, kept(listener.accept()[0])).peer() == f"{shown}:{client.getsockname()[1]}"


def test_on_a_long_way_little_waits_in_the_kernel_of_what_was_not_sent(plane: Loop) -> None:
    _, channel, _ = owned(plane, tcp_pair())
    assert channel.sock.getsockopt(socket.IPPROTO_TCP, NOTSENT_LOWAT) != UNSENT_BYTES
    channel.keep_little_unsent()
    assert channel.sock.getsockopt(socket.IPPROTO_TCP, NOTSENT_LOWAT) == UNSENT_BYTES
    _, unix, _ = owned(plane)
    unix.keep_little_unsent()  # has no such option
