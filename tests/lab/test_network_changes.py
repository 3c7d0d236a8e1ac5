"""What can be broken in a lab's network, and that all of it is back after a mend."""

import socket
from contextlib import ExitStack, suppress

import pytest
from tests.support import packet_rules
from tests.support.lab_wires import (
    PORT,
    SECONDS,
    SILENT_SECONDS,
    Place,
    Wires,
    dial,
    each_place,
    each_world,
    in_roots_world,
    listen,
    talk,
)
from tests.support.worlds import World

from umbilical.fault import LabError
from umbilical.host import namespaces
from umbilical.lab import nft, packet_filter
from umbilical.lab.network import MACHINE_LINK
from umbilical.lab.topology import Family

pytestmark = [pytest.mark.root, pytest.mark.real("nft")]


def _send_to(client: Place, server: Place, version: int, count: int) -> int:
    """Send datagrams and return how many arrived."""
    kind = socket.AF_INET if version == 4 else socket.AF_INET6
    with ExitStack() as stack:
        receiver = stack.enter_context(
            namespaces.in_network(server.namespace, lambda: socket.socket(kind, socket.SOCK_DGRAM))
        )
        sender = stack.enter_context(
            namespaces.in_network(client.namespace, lambda: socket.socket(kind, socket.SOCK_DGRAM))
        )
        receiver.bind((server.address(version), PORT))
        receiver.settimeout(SILENT_SECONDS)
        for _ in range(count):
            # So the kernel tells a sender of datagrams that a rule of its own machine dropped one.
            with suppress(PermissionError):
                sender.sendto(b"x", (server.address(version), PORT))
        return _drain(receiver, count)


def _drain(receiver: socket.socket, most: int) -> int:
    for arrived in range(most):
        try:
            receiver.recv(1)
        except TimeoutError:
            return arrived
    return most


@each_place
def test_an_open_connection_outlives_a_short_cut(world: World, family: Family) -> None:
    """A cable that is pulled takes no address away, so the connection's packets are only late."""
    wires = Wires(family)
    client, server = wires.node("bootstrap"), wires.node("master-0")
    version = wires.versions[-1]
    with listen(server, version) as listener:
        address = server.address(version)
        with namespaces.in_network(
            client.namespace, lambda: socket.create_connection((address, PORT), SECONDS)
        ) as calling:
            answering, _ = listener.accept()
            with answering:
                wires.network.set_link("master-0", up=False)
                calling.sendall(b"late")
                answering.settimeout(SILENT_SECONDS)
                with pytest.raises(TimeoutError):
                    answering.recv(4)
                wires.network.set_link("master-0", up=True)
                answering.settimeout(30)
                assert answering.recv(4) == b"late"


@each_place
def test_without_a_default_route_only_the_machine_network_is_there(world: World, family: Family) -> None:
    wires = Wires(family)
    bootstrap, pod = wires.node("bootstrap"), wires.pod("master-0")
    before = wires.network.describe()
    for _ in range(2):
        wires.network.set_default_route("bootstrap", present=False)
    for version in wires.versions:
        talk(bootstrap, wires.node("master-0"), version)
        assert dial(bootstrap, pod.address(version)) == "Network is unreachable"
    for _ in range(2):
        wires.network.set_default_route("bootstrap", present=True)
    assert wires.network.describe() == before
    bootstrap, master = wires.node("bootstrap"), wires.node("master-0")
    far = wires.pod("master-1")
    for _ in range(2):
        wires.network.set_link("master-0", up=False)
        for version in wires.versions:
            with listen(master, version):
                assert dial(bootstrap, master.address(version), seconds=SILENT_SECONDS) != "connected"
                assert dial(far, pod.address(version), seconds=SILENT_SECONDS) != "connected"
        wires.network.set_link("master-0", up=True)
    assert wires.network.describe() == before
    for version in wires.versions:
        assert talk(bootstrap, master, version) == bootstrap.address(version)
        assert talk(far, pod, version) == far.address(version)
        assert talk(pod, bootstrap, version) == master.address(version)


@each_place
def test_a_blocked_port_and_a_dropped_address_are_silent_and_others_are_not(world: World, family: Family) -> None:
    wires = Wires(family)
    bootstrap, pod = wires.node("bootstrap"), wires.pod("master-0")
    wires.network.add_rules("bootstrap", "port", packet_rules.block_tcp_port(PORT))
    for version in wires.versions:
        address = bootstrap.address(version)
        with listen(bootstrap, version), listen(bootstrap, version, PORT + 1):
            assert dial(pod, address, seconds=SILENT_SECONDS) == "silence"
            assert dial(wires.node("master-1"), address, seconds=SILENT_SECONDS) == "silence"
            assert dial(pod, address, PORT + 1) == "connected"
            assert dial(bootstrap, address) == "connected"
    wires.network.remove_rules("bootstrap", "port")
    for version in wires.versions:
        talk(pod, bootstrap, version)
    bootstrap, first, second = wires.node("bootstrap"), wires.node("master-0"), wires.node("master-1")
    for index, dropped in enumerate(first.addresses):
        wires.network.add_rules("bootstrap", f"drop_{index}", packet_rules.drop_address(dropped))
    for version in wires.versions:
        with listen(bootstrap, version), listen(first, version):
            assert dial(first, bootstrap.address(version), seconds=SILENT_SECONDS) == "silence"
            assert dial(bootstrap, first.address(version), seconds=SILENT_SECONDS) == "silence"
            assert dial(second, bootstrap.address(version)) == "connected"


@each_world
def test_some_packets_are_lost_and_some_are_not(world: World) -> None:
    """Of 200, each lost with even odds: all or none lost is less likely than one in 2^100."""
    wires = Wires()
    client, server = wires.node("bootstrap"), wires.node("master-0")
    before = _send_to(client, server, 4, 200)
    wires.network.add_rules("master-0", "loss", nft.lose_at_random(50, MACHINE_LINK))
    during = _send_to(client, server, 4, 200)
    wires.network.remove_rules("master-0", "loss")
    after = _send_to(client, server, 4, 200)
    assert (before, after) == (200, 200)
    assert 20 < during < 180


@each_world
def test_loss_of_everything_is_loss_in_both_directions(world: World) -> None:
    wires = Wires(Family.IPV6)
    ends = wires.node("bootstrap"), wires.node("master-0")
    ways = (ends, ends[::-1])
    for sender, receiver in ways:
        talk(sender, receiver, 6)
    wires.network.add_rules("master-0", "loss", nft.lose_at_random(100, MACHINE_LINK))
    assert [_send_to(sender, receiver, 6, 20) for sender, receiver in ways] == [0, 0]


@each_world
def test_rules_take_the_place_of_old_ones_of_their_name_and_go_without_the_others(world: World) -> None:
    wires = Wires()
    bootstrap, master = wires.node("bootstrap"), wires.node("master-0")
    wires.network.add_rules("bootstrap", "port", packet_rules.block_tcp_port(PORT))
    wires.network.add_rules("bootstrap", "port", packet_rules.block_tcp_port(PORT + 1))
    with listen(bootstrap, 4), listen(bootstrap, 4, PORT + 1):
        assert dial(master, bootstrap.address(4)) == "connected"
        assert dial(master, bootstrap.address(4), PORT + 1, SILENT_SECONDS) == "silence"
    wires.network.add_rules("master-0", "one", packet_rules.block_tcp_port(1))
    wires.network.add_rules("master-0", "two", packet_rules.block_tcp_port(2))
    for _ in range(2):
        wires.network.remove_rules("master-0", "one")
    assert namespaces.in_network(wires.network.namespace("master-0"), packet_filter.loaded) == ["pods", "two"]
    bootstrap, pod = wires.node("bootstrap"), wires.pod("master-0")
    wires.network.add_rules("master-0", "port", packet_rules.block_tcp_port(PORT))
    with listen(bootstrap, 4):
        assert dial(pod, bootstrap.address(4), seconds=SILENT_SECONDS) == "silence"
        assert dial(wires.pod("master-1"), bootstrap.address(4)) == "connected"
    wires.network.set_default_route("master-0", present=False)
    before = wires.network.describe()
    wires.network.set_link("master-0", up=False)
    wires.network.set_link("master-0", up=True)
    assert wires.network.describe() == before


@in_roots_world
def test_rules_that_nft_cannot_read_change_nothing() -> None:
    wires = Wires()
    wires.network.add_rules("bootstrap", "port", packet_rules.block_tcp_port(PORT))
    with pytest.raises(LabError) as caught:
        wires.network.add_rules("bootstrap", "port", "chain broken {")
    with listen(wires.node("bootstrap"), 4):
        assert dial(wires.node("master-0"), "10.91.0.10", seconds=SILENT_SECONDS) == "silence"
    said = caught.value.brief
    assert said.startswith("UMB818 failed to load the rules port: ")
    assert "syntax error" in said


@each_world
def test_connections_to_one_address_are_spread_over_whoever_is_named(world: World) -> None:
    wires = Wires(Family.IPV4)
    bootstrap, masters = wires.node("bootstrap"), [wires.node(f"master-{number}") for number in range(2)]
    front = wires.topology.machine_networks[0][200]
    with ExitStack() as stack:
        listeners = [stack.enter_context(listen(master, 4)) for master in masters]
        wires.network.add_rules("bootstrap", "front", nft.spread(front, PORT, [m.addresses[0] for m in masters]))
        for _ in range(2):
            assert dial(bootstrap, str(front)) == "connected"
        for listener in listeners:
            listener.accept()[0].close()
        wires.network.add_rules("bootstrap", "front", nft.spread(front, PORT, [masters[1].addresses[0]]))
        for _ in range(2):
            assert dial(bootstrap, str(front)) == "connected"
            listeners[1].accept()[0].close()
        wires.network.add_rules("bootstrap", "front", nft.spread(front, PORT, []))
        assert dial(bootstrap, str(front)) == "Connection refused"
