import socket

import pytest
from tests.support.data_plane import open_files, settle, turn_until
from tests.support.dialling import Caller, ScriptedResolver, ask, closed_port, dialer, failure, listening, silent_port
from tests.support.file_limits import no_descriptors
from tests.support.fixture_types import Patch
from tests.support.socket_pairs import kept

from umbilical.tunnel import dialing
from umbilical.tunnel.dialing import Address
from umbilical.tunnel.loop import HANGUP, OUT, Loop

V4, V6 = socket.AF_INET, socket.AF_INET6


def v4(port: int) -> Address:
    return V4, "127.0.0.1", port


def v6(port: int) -> Address:
    return V6, "::1", port


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
@pytest.mark.parametrize("network", ["tcp", "own family"])
def test_an_address_is_connected_to_without_a_lookup(plane: Loop, host: str, shown: str, network: str) -> None:
    listener, port = listening(host)
    resolver = ScriptedResolver()
    family = "tcp6" if ":" in host else "tcp4"
    caller = ask(plane, dialer(plane, resolver), f"{shown}:{port}", network if network == "tcp" else family)
    assert caller.sock is not None
    assert caller.sock.getpeername()[:2] == (host, port)
    assert caller.mask & OUT
    assert resolver.asked == []
    assert caller.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert not caller.sock.get_inheritable()
    kept(listener.accept()[0])


def test_an_endpoint_that_accepts_and_closes_at_once_was_reached(plane: Loop) -> None:
    listener, port = listening()
    caller = Caller()
    dialer(plane).dial(caller, "tcp", f"127.0.0.1:{port}")
    peer = listener.accept()[0]
    peer.send(b"bye")
    peer.close()
    turn_until(plane, caller.is_over)
    assert caller.failures == []
    assert caller.mask & HANGUP


@pytest.mark.parametrize(("network", "host"), [("tcp", "127.0.0.1"), ("tcp4", "127.0.0.1"), ("tcp6", "::1")])
def test_an_empty_host_is_this_machine(plane: Loop, network: str, host: str) -> None:
    _, port = listening(host)
    caller = ask(plane, dialer(plane), f":{port}", network)
    assert caller.failures == []
    assert caller.sock is not None
    assert caller.sock.getpeername()[:2] == (host, port)


@pytest.mark.parametrize("shown", ["127.0.0.1", "[::1]"])
def test_a_refused_connect_reads_as_in_go(plane: Loop, shown: str) -> None:
    port = closed_port()
    before = open_files()
    assert failure(plane, dialer(plane), f"{shown}:{port}") == f"dial tcp {shown}:{port}: connect: connection refused"
    assert open_files() == before


def test_an_unreachable_network_reads_as_in_go(plane: Loop) -> None:
    """No TCP to a broadcast address: the kernel says so before any packet."""
    before = open_files()
    text = failure(plane, dialer(plane), "255.255.255.255:80")
    assert text == "dial tcp 255.255.255.255:80: connect: network is unreachable"
    assert open_files() == before


def test_a_machine_without_free_descriptors_reads_as_in_go(plane: Loop) -> None:
    caller = Caller()
    where = dialer(plane)
    with no_descriptors():
        where.dial(caller, "tcp", "127.0.0.1:1")
    assert caller.failures == ["dial tcp 127.0.0.1:1: socket: too many open files"]
    assert where.under_way() == 0


def test_a_bad_address_fails_at_once_in_the_words_of_go(plane: Loop) -> None:
    caller = Caller()
    dialer(plane).dial(caller, "tcp", "127.0.0.1:gopherish")
    assert caller.failures == ["dial tcp: lookup tcp/gopherish: unknown port"]


@pytest.mark.parametrize(("network", "host"), [("tcp4", "[::1]"), ("tcp6", "127.0.0.1")])
def test_an_address_of_the_other_family_is_not_dialled(plane: Loop, network: str, host: str) -> None:
    bare = host.strip("[]")
    assert failure(plane, dialer(plane), f"{host}:80", network) == (
        f"dial {network}: address {bare}: no suitable address found"
    )


@pytest.mark.parametrize("host", ["example", "1.2.3", "127.1", "1.2.3.4.5", "fe80::1%lo"])
def test_whatever_is_no_whole_address_goes_to_the_resolver(plane: Loop, host: str) -> None:
    resolver = ScriptedResolver({host: "dial tcp: lookup: no"})
    shown = f"[{host}]" if ":" in host else host
    assert failure(plane, dialer(plane, resolver), f"{shown}:80") == "dial tcp: lookup: no"
    assert resolver.asked == [(host, 80)]


def test_a_connect_without_an_answer_times_out_in_the_words_of_go(plane: Loop) -> None:
    port = silent_port()
    before = open_files()
    where = dialer(plane, timeout_seconds=0.1)
    assert failure(plane, where, f"127.0.0.1:{port}") == f"dial tcp 127.0.0.1:{port}: i/o timeout"
    assert open_files() == before
    assert where.under_way() == 0


def test_a_lookup_without_an_answer_times_out_in_the_words_of_go(plane: Loop) -> None:
    resolver = ScriptedResolver()
    assert failure(plane, dialer(plane, resolver, 0.05), "slow:80") == "dial tcp: lookup slow: i/o timeout"
    (late,) = resolver.waiting
    before = open_files()
    late.resolved([v4(1)])
    late.unresolved("too late")
    assert open_files() == before


def test_cancelling_a_connect_closes_its_socket_and_answers_nobody(plane: Loop) -> None:
    port = silent_port()
    before = open_files()
    where = dialer(plane)
    caller = Caller()
    dial = where.dial(caller, "tcp", f"127.0.0.1:{port}")
    assert len(open_files()) == len(before) + 1
    dial.cancel()
    dial.cancel()
    assert open_files() == before
    assert (dial.is_over(), where.under_way(), caller.is_over()) == (True, 0, False)
    settle(plane)
    assert not caller.is_over()


def test_a_dial_that_is_cancelled_in_the_turn_of_its_success_leaves_no_socket(plane: Loop) -> None:
    _, port = listening()
    before = open_files()
    caller = Caller()
    dial = dialer(plane).dial(caller, "tcp", f"127.0.0.1:{port}")
    dial.cancel()
    settle(plane)
    assert not caller.is_over()
    assert open_files() == before


def test_an_owner_that_breaks_on_success_leaves_no_socket(plane: Loop) -> None:
    def drop() -> None:
        raise RuntimeError("dropped it")

    clumsy = Caller()
    clumsy.then = drop
    _, port = listening()
    before = open_files()
    where = dialer(plane)
    where.dial(clumsy, "tcp", f"127.0.0.1:{port}")
    turn_until(plane, lambda: where.under_way() == 0)
    assert open_files() == before


def test_a_name_is_looked_up_and_its_address_dialled(plane: Loop) -> None:
    _, port = listening()
    resolver = ScriptedResolver({"web": [v4(port)]})
    caller = ask(plane, dialer(plane, resolver), "web:http")
    assert caller.sock is not None
    assert resolver.asked == [("web", 80)]


@pytest.mark.parametrize(("network", "family"), [("tcp4", V4), ("tcp6", V6)])
def test_a_network_of_one_family_takes_only_its_addresses(
    plane: Loop, network: str, family: socket.AddressFamily
) -> None:
    ports = {V4: listening()[1], V6: listening("::1")[1]}
    resolver = ScriptedResolver({"both": [v6(ports[V6]), v4(ports[V4])]})
    caller = ask(plane, dialer(plane, resolver), "both:1", network)
    assert caller.sock is not None
    assert (caller.sock.family, caller.sock.getpeername()[1]) == (family, ports[family])


def test_a_name_without_an_address_of_the_wanted_family_reads_as_in_go(plane: Loop) -> None:
    resolver = ScriptedResolver({"four": [v4(1)]})
    text = failure(plane, dialer(plane, resolver), "four:80", "tcp6")
    assert text == "dial tcp6: address four: no suitable address found"


def test_the_other_family_is_tried_while_the_first_gives_no_answer(plane: Loop, monkeypatch: Patch) -> None:
    assert dialing.FALLBACK_SECONDS == 0.3
    monkeypatch.setattr(dialing, "FALLBACK_SECONDS", 0.02)
    silent = silent_port("::1")
    _, port = listening()
    before = open_files()
    caller = ask(plane, dialer(plane, ScriptedResolver({"both": [v6(silent), v4(port)]})), "both:1")
    assert caller.sock is not None
    assert caller.sock.family == V4
    caller.sock.close()
    assert open_files() == before, "the slower attempt must be gone"


def test_the_first_family_wins_if_it_answers_within_its_head_start(plane: Loop, monkeypatch: Patch) -> None:
    monkeypatch.setattr(dialing, "FALLBACK_SECONDS", 3600.0)  # however slow this machine is
    _, first = listening("::1")
    listener, second = listening()
    caller = ask(plane, dialer(plane, ScriptedResolver({"both": [v6(first), v4(second)]})), "both:1")
    assert caller.sock is not None
    assert caller.sock.family == V6
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_the_next_address_is_tried_at_once_when_one_refuses(plane: Loop) -> None:
    _, port = listening()
    addresses = [v4(closed_port()), v6(closed_port()), v4(closed_port()), v4(port)]
    caller = ask(plane, dialer(plane, ScriptedResolver({"many": addresses})), "many:1")
    assert caller.sock is not None
    assert caller.sock.getpeername() == ("127.0.0.1", port)


def test_an_address_that_cannot_be_tried_at_all_is_passed_over(plane: Loop) -> None:
    _, port = listening()
    addresses: list[Address] = [(V4, "255.255.255.255", 1), v4(port)]
    assert ask(plane, dialer(plane, ScriptedResolver({"many": addresses})), "many:1").sock is not None


def test_the_first_refusal_is_told_when_all_refuse(plane: Loop) -> None:
    ports = [closed_port() for _ in range(3)]
    resolver = ScriptedResolver({"many": [v4(port) for port in ports]})
    text = failure(plane, dialer(plane, resolver), "many:1")
    assert text == f"dial tcp 127.0.0.1:{ports[0]}: connect: connection refused"


def test_a_dial_that_tries_several_silent_addresses_times_out_once_and_leaves_nothing(
    plane: Loop, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(dialing, "FALLBACK_SECONDS", 0.01)
    first, second = silent_port(), silent_port("::1")
    before = open_files()
    resolver = ScriptedResolver({"both": [v4(first), v6(second)]})
    text = failure(plane, dialer(plane, resolver, 0.1), "both:1")
    assert text == f"dial tcp 127.0.0.1:{first}: i/o timeout"
    assert open_files() == before
