import socket
import time

from tests.support.socket_pairs import tcp_pair

from umbilical.tunnel.tcp_facts import round_trip_seconds, tcp_facts


def test_a_healthy_connection_acknowledges_everything() -> None:
    ours, peer = tcp_pair()
    for _ in range(3):
        ours.send(b"hello")
        peer.recv(5)
    deadline = time.monotonic() + 10
    facts = tcp_facts(ours)
    while facts is not None and facts.unacknowledged and time.monotonic() < deadline:
        time.sleep(0.01)
        facts = tcp_facts(ours)
    assert facts is not None
    assert (facts.unacknowledged, facts.sent_again) == (0, 0)
    assert facts.segments_out >= 3


def test_other_sockets_have_no_such_facts() -> None:
    ours, peer = socket.socketpair()
    with ours, peer:
        assert tcp_facts(ours) is None
    assert tcp_facts(ours) is None


def test_the_kernel_has_seen_a_round_trip_of_a_tcp_connection_and_of_no_other() -> None:
    ours, peer = tcp_pair()
    ours.send(b"hello")
    peer.recv(5)
    assert 0 < round_trip_seconds(ours) < 10
    one, other = socket.socketpair()
    with one, other:
        assert round_trip_seconds(one) == 0
