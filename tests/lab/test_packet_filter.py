"""The rules as the program `nft` reads them back from the kernel, and what is counted and refused."""

import ipaddress
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.lab_wires import each_world, in_roots_world
from tests.support.worlds import World, run_in

from umbilical.fault import LabError
from umbilical.lab import packet_filter
from umbilical.lab.netlink import Netlink
from umbilical.lab.packet_filter import Chain
from umbilical.lab.topology import Family, plan_topology

TOPOLOGY = plan_topology(family=Family.DUAL)
MASTER = TOPOLOGY.node("master-1")
OPENINGS = [(ipaddress.ip_address("192.168.91.10"), 6443), (ipaddress.ip_address("fd94::11"), 8091)]
FIRST, SECOND = "02:00:00:00:00:01", "02:00:00:00:00:02"
REFUSED = "fib daddr type != local reject with icmpx no-route"
TABLES: dict[str, tuple[Sequence[Chain], list[str]]] = {
    "masquerade": (
        packet_filter.masquerade(MASTER.pod_networks, TOPOLOGY.pod_networks, "machine0"),
        [
            "type nat hook postrouting priority srcnat; policy accept;",
            'oifname "machine0" ip saddr 10.92.1.0/24 ip daddr != 10.92.0.0/16 masquerade',
            'oifname "machine0" ip6 saddr fd92:0:0:1::/64 ip6 daddr != fd92::/48 masquerade',
        ],
    ),
    "transit": (
        packet_filter.refuse_transit(FIRST),
        ["type filter hook prerouting priority filter; policy accept;", f"ether daddr {FIRST} {REFUSED}"],
    ),
    "edge": (
        packet_filter.edge(FIRST, SECOND, TOPOLOGY.machine_networks, OPENINGS),
        [
            "type filter hook prerouting priority filter; policy accept;",
            "ct direction reply accept",
            f"ether daddr {FIRST} ip daddr 192.168.91.10 tcp dport 6443 accept",
            f"ether daddr {FIRST} ip6 daddr fd94::11 tcp dport 8091 accept",
            f"ether daddr {FIRST} {REFUSED}",
            f"ether daddr {SECOND} {REFUSED}",
            "type nat hook postrouting priority srcnat; policy accept;",
            "ip saddr 10.91.0.0/24 ip daddr 192.168.91.10 tcp dport 6443 masquerade",
            "ip6 saddr fd91::/64 ip6 daddr fd94::11 tcp dport 8091 masquerade",
        ],
    ),
    "count": (
        packet_filter.count_port(8091),
        [
            "type filter hook input priority filter; policy accept;",
            "tcp dport 8091 counter packets 0 bytes 0",
            "type filter hook output priority filter; policy accept;",
            "tcp sport 8091 counter packets 0 bytes 0",
        ],
    ),
}


def _listed(name: str) -> list[str]:
    command = ["nft", "list", "table", "inet", f"umbilical_{name}"]
    lines = subprocess.check_output(command, timeout=30, text=True).splitlines()
    return [line.strip() for line in lines if not line.rstrip().endswith(("{", "}"))]


@pytest.mark.root
@pytest.mark.real("nft")
@each_world
def test_nft_reads_every_table_back_as_it_is_meant(world: World) -> None:
    for name, (chains, expected) in TABLES.items():
        packet_filter.load(name, chains)
        # Twice, since a table takes the place of one of the same name.
        packet_filter.load(name, chains)
        assert [line for line in _listed(name) if line] == expected


@pytest.mark.root
@each_world
def test_tables_are_listed_and_removed_by_name(world: World) -> None:
    for name, (chains, _) in TABLES.items():
        packet_filter.load(name, chains)
    assert packet_filter.loaded() == sorted(TABLES)
    for name in TABLES:
        packet_filter.unload(name)
    packet_filter.unload("never_loaded")
    assert packet_filter.loaded() == []


@pytest.mark.root
@pytest.mark.real("nft")
@in_roots_world
def test_tables_of_others_are_neither_listed_nor_touched() -> None:
    subprocess.run(["nft", "add", "table", "inet", "kube-proxy"], check=True, timeout=30)
    packet_filter.load("mine", [])
    packet_filter.unload("mine")
    assert packet_filter.loaded() == []
    tables = subprocess.check_output(["nft", "list", "tables"], timeout=30, text=True)
    assert tables == "table inet kube-proxy\n"


@pytest.mark.root
@in_roots_world
def test_bytes_of_a_port_are_counted_in_both_directions() -> None:
    with Netlink() as netlink:
        netlink.set_link("lo", up=True)
    packet_filter.load("bytes", packet_filter.count_port(8091))
    assert packet_filter.counted_bytes("bytes") == 0
    _talk(8091, b"y" * 10_000, b"x" * 20_000)
    _talk(8092, b"y" * 10_000, b"x" * 20_000)
    # Headers come on top; on loopback both chains see a packet, each in one direction.
    assert 30_000 < packet_filter.counted_bytes("bytes") < 40_000


@pytest.mark.root
def test_nothing_is_counted_where_nothing_counts() -> None:
    assert run_in(World.ROOT, lambda: packet_filter.counted_bytes("bytes")) == 0


@pytest.mark.root
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda: packet_filter.load("mine", []), "load the rules mine"),
        (lambda: packet_filter.unload("mine"), "remove the rules mine"),
    ],
)
@in_roots_world
def test_without_permission_the_kernel_is_quoted(change: Callable[[], None], what: str) -> None:
    os.setresuid(65534, 65534, 65534)
    with pytest.raises(LabError) as caught:
        change()
    assert caught.value.brief == f"UMB818 failed to {what}: Operation not permitted"


@given(
    st.text().filter(lambda name: not name.isascii() or not name.replace("_", "x").isalnum() or name.lower() != name)
)
def test_a_name_that_could_be_more_than_a_name_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="UMB818"):
        packet_filter.load(name, [])


def _talk(port: int, question: bytes, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=_answer, args=(listener, answer))
        thread.start()
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            client.sendall(question)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass
        thread.join(5)


def _answer(listener: socket.socket, answer: bytes) -> None:
    peer, _ = listener.accept()
    with peer:
        while peer.recv(65536):
            pass
        peer.sendall(answer)
