import socket

import pytest
from tests.support.data_plane import KIB, Reader, patterned, tls_pair, turn_until
from tests.support.socket_pairs import reset, tcp_pair, unix_pair
from tests.support.tunnel_ends import Tap
from tests.support.tunnel_pki import TunnelPki

from umbilical.tunnel.channel import Channel
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.outlet import DIRECT_BYTES, Outlet

BULK = patterned(4_000_000)


@pytest.fixture
def ends(plane: Loop) -> tuple[Tap, Outlet, socket.socket]:
    ours, peer = unix_pair()
    tap = Tap()
    return tap, tap.open(Channel(plane, ours)), peer


def is_silent(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        peer.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        peer.settimeout(10)
    return False


def test_the_first_payload_of_a_turn_is_sent_at_once(plane: Loop, ends: tuple[Tap, Outlet, socket.socket]) -> None:
    _, outlet, peer = ends
    for payload in (b"one", b"two"):
        assert not outlet.put(memoryview(payload))
        assert peer.recv(100) == payload
        plane.turn(0.0)
    assert outlet.is_empty()


def test_small_payloads_behind_the_first_gather_until_the_end_of_the_turn(
    ends: tuple[Tap, Outlet, socket.socket],
) -> None:
    _, outlet, peer = ends
    outlet.put(memoryview(b"zero"))
    assert peer.recv(100) == b"zero"
    assert outlet.put(memoryview(b"one "))
    assert outlet.put(memoryview(b"two "))
    assert is_silent(peer)
    assert (outlet.waiting_bytes(), outlet.is_empty()) == (8, False)
    outlet.flush()
    assert peer.recv(100) == b"one two "
    assert (outlet.waiting_bytes(), outlet.is_empty()) == (0, True)


def test_a_large_payload_is_sent_at_once_and_wants_no_flush(ends: tuple[Tap, Outlet, socket.socket]) -> None:
    _, outlet, peer = ends
    outlet.put(memoryview(b"the first of the turn"))
    assert peer.recv(100)
    assert not outlet.put(memoryview(BULK[:DIRECT_BYTES]))
    assert peer.recv(DIRECT_BYTES, socket.MSG_WAITALL) == BULK[:DIRECT_BYTES]
    assert outlet.is_empty()


def test_a_large_payload_stays_behind_the_small_one_before_it(ends: tuple[Tap, Outlet, socket.socket]) -> None:
    _, outlet, peer = ends
    outlet.put(memoryview(b"zero"))
    assert peer.recv(100) == b"zero"
    outlet.put(memoryview(b"first"))
    assert outlet.put(memoryview(BULK[:DIRECT_BYTES]))
    assert is_silent(peer)
    outlet.flush()
    assert peer.recv(5 + DIRECT_BYTES, socket.MSG_WAITALL) == b"first" + BULK[:DIRECT_BYTES]


def test_held_payload_waits_for_the_flush_whatever_its_size(ends: tuple[Tap, Outlet, socket.socket]) -> None:
    _, outlet, peer = ends
    outlet.hold(memoryview(BULK[: 2 * DIRECT_BYTES]))
    assert is_silent(peer)
    outlet.flush()
    assert peer.recv(2 * DIRECT_BYTES, socket.MSG_WAITALL) == BULK[: 2 * DIRECT_BYTES]


def test_the_payload_may_be_overwritten_once_it_was_put(ends: tuple[Tap, Outlet, socket.socket]) -> None:
    _, outlet, peer = ends
    outlet.put(memoryview(b"zero "))
    shared = bytearray(b"mine")
    outlet.put(memoryview(shared))
    shared[:] = b"gone"
    outlet.flush()
    assert peer.recv(100) == b"zero mine"


def receive_all(plane: Loop, peer: socket.socket, size: int) -> bytes:
    peer.setblocking(False)
    received = bytearray()

    def enough() -> bool:
        try:
            received.extend(peer.recv(256 * KIB))
        except BlockingIOError:
            pass
        return len(received) >= size

    turn_until(plane, enough)
    return bytes(received)


def test_what_a_full_socket_did_not_take_follows_in_order(plane: Loop, ends: tuple[Tap, Outlet, socket.socket]) -> None:
    tap, outlet, peer = ends
    step = 50_000
    wanted_flush = [outlet.put(memoryview(BULK[at : at + step])) for at in range(0, 2_000_000, step)]
    assert outlet.waiting_bytes() > 0
    assert not any(wanted_flush), "a blocked outlet waits for room, not for the end of the turn"
    assert not outlet.put(memoryview(b"tail"))
    assert receive_all(plane, peer, 2_000_004) == BULK[:2_000_000] + b"tail"
    assert outlet.is_empty()
    assert tap.writable > 0
    outlet.put(memoryview(b"again the first"))
    assert outlet.put(memoryview(b"again gathers"))


def test_a_flush_against_a_full_socket_asks_for_room(plane: Loop, ends: tuple[Tap, Outlet, socket.socket]) -> None:
    _, outlet, peer = ends
    outlet.hold(memoryview(BULK))
    outlet.flush()
    assert outlet.waiting_bytes() > 0
    assert receive_all(plane, peer, len(BULK)) == BULK
    assert outlet.is_empty()


@pytest.mark.parametrize("size", [10, DIRECT_BYTES])
def test_a_peer_that_is_gone_breaks_the_outlet(ends: tuple[Tap, Outlet, socket.socket], size: int) -> None:
    tap, outlet, peer = ends
    peer.close()
    outlet.put(memoryview(BULK[:size]))
    outlet.flush()
    assert outlet.broken
    assert outlet.waiting_bytes() == 0
    assert tap.channel.error == "Broken pipe"


def test_a_reset_breaks_an_outlet_that_waits_for_room(plane: Loop) -> None:
    ours, peer = tcp_pair()
    tap = Tap()
    outlet = tap.open(Channel(plane, ours))
    outlet.hold(memoryview(BULK * 4))
    outlet.flush()
    assert outlet.waiting_bytes() > 0
    reset(peer)
    turn_until(plane, lambda: outlet.broken)
    assert outlet.waiting_bytes() == 0


def tls_tap(plane: Loop, pki: TunnelPki) -> tuple[Outlet, Reader]:
    """An outlet on a TLS channel, and a client that does not read yet."""
    server, client = tls_pair(plane, pki.authority.server_context(pki.server), pki.authority.client_context(None))
    tap = Tap()
    tap.channel = server.channel
    tap.outlet = Outlet(server.channel)
    turn_until(plane, lambda: server.opened and client.opened)
    server.channel.owner = tap
    plane.remove(client.channel.descriptor)
    return tap.outlet, client


@pytest.mark.parametrize("size", [1000, DIRECT_BYTES, 100_000])
def test_ciphertext_that_found_no_room_goes_out_without_another_put(
    plane: Loop, tunnel_pki: TunnelPki, size: int
) -> None:
    outlet, client = tls_tap(plane, tunnel_pki)
    sent = 0
    while outlet.is_empty():
        if outlet.put(memoryview(BULK[:size])):
            outlet.flush()
        sent += size
    assert not outlet.broken
    plane.add(client.channel.descriptor, client.channel, False)
    turn_until(plane, lambda: len(client.received) == sent)
    assert outlet.is_empty()
    client.channel.close()
