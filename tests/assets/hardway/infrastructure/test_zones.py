"""Zone files: which zone has an address, that serials follow the content, and what the real CoreDNS answers."""

import contextlib
import ipaddress
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import dns.exception
import dns.message
import dns.query
import dns.rcode
import pytest
from tests.support.hardway import cluster
from tests.support.hardway_infrastructure import infrastructure, loopback_cluster

import peers
from umbilical.assets.hardway.cluster import Cluster, Profile
from umbilical.assets.hardway.infrastructure.places import COREFILE, REVERSE_ZONE, ZONE, resolver_command
from umbilical.assets.hardway.infrastructure.zones import cluster_zone, corefile, reverse_zone, reverse_zone_name
from umbilical.host.processes import start

PORT: Final = 10053
# A datagram to a resolver that is not there yet is lost: ask again soon, and often enough for a busy machine.
TRY_SECONDS: Final = 1.0
TRIES: Final = 60


@pytest.mark.parametrize(
    ("network", "zone"),
    [
        ("192.168.126.0/24", "126.168.192.in-addr.arpa"),
        ("10.20.16.0/20", "20.10.in-addr.arpa"),
        ("10.0.0.0/8", "10.in-addr.arpa"),
        ("172.16.5.128/25", "5.16.172.in-addr.arpa"),
        ("fd00:1::/64", "0.0.0.0.0.0.0.0.1.0.0.0.0.0.d.f.ip6.arpa"),
        ("0.0.0.0/0", "in-addr.arpa"),
    ],
)
def test_the_reverse_zone_is_the_smallest_that_has_every_address(network: str, zone: str) -> None:
    of = ipaddress.ip_network(network)
    assert reverse_zone_name(of) == zone
    assert of[1].reverse_pointer.endswith(f".{zone}")
    assert of[-1].reverse_pointer.endswith(f".{zone}")


def test_the_serial_follows_the_content() -> None:
    of = cluster()
    moved = replace(of, networks=replace(of.networks, ingress_vip=of.networks.machine[12]))
    assert cluster_zone(of) == cluster_zone(cluster())
    assert cluster_zone(of).splitlines()[1] != cluster_zone(moved).splitlines()[1]
    assert reverse_zone(of) == reverse_zone(moved)


def test_addresses_of_the_sixth_version_have_records_of_their_own_kind() -> None:
    of = cluster()
    wide = replace(of, networks=replace(of.networks, api_vip=ipaddress.ip_address("fd00::10")))
    assert b"api.ocp4.example.com. IN AAAA fd00::10\n" in cluster_zone(wide)


@contextmanager
def _resolver(of: Cluster, folder: Path) -> Iterator[str]:
    tree = infrastructure(of)
    (folder / "Corefile").write_bytes(corefile(of, PORT))
    for path in (ZONE, REVERSE_ZONE):
        (folder / Path(path).name).write_bytes(tree[path].content)
    program = peers.binary("coredns")
    assert program is not None
    command = [str(program), *resolver_command()[1:]]
    with start(command, folder / "coredns.log", folder=folder) as resolver:
        address = str(of.networks.dns)
        assert _ask(address, of.api_name, "A"), resolver.log_text()
        yield address


def _ask(server: str, name: str, kind: str) -> list[str]:
    for _ in range(TRIES):
        with contextlib.suppress(dns.exception.Timeout):
            answer = dns.query.udp(dns.message.make_query(name, kind), server, timeout=TRY_SECONDS, port=PORT)
            break
    else:
        pytest.fail(f"nobody answers at {server}")
    assert answer.rcode() in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN), dns.rcode.to_text(answer.rcode())
    return sorted(record.to_text() for one in answer.answer for record in one)


@pytest.mark.real("coredns")
@pytest.mark.parametrize("profile", list(Profile))
def test_coredns_answers_every_name_of_the_cluster(profile: Profile, tmp_path: Path) -> None:
    of = loopback_cluster(profile)
    with _resolver(of, tmp_path) as server:
        for name in (of.api_name, of.internal_api_name):
            assert _ask(server, name, "A") == [str(of.networks.api_vip)]
        for name in ("console", "any.thing"):
            assert _ask(server, f"{name}.{of.apps_domain}", "A") == [str(of.networks.ingress_vip)]
        for node in of.nodes:
            assert _ask(server, node.name, "A") == [str(node.address)]
            assert _ask(server, node.address.reverse_pointer, "PTR") == [f"{node.name}."]
        expected = [f"0 10 2380 etcd-{index}.{of.domain}." for index in range(3)]
        assert _ask(server, f"_etcd-server-ssl._tcp.{of.domain}", "SRV") == expected
        assert _ask(server, f"nobody.{of.domain}", "A") == []


@pytest.mark.real("coredns")
def test_coredns_notices_a_zone_that_was_rewritten(tmp_path: Path) -> None:
    of = loopback_cluster(Profile.KUBERNETES)
    moved = replace(of, networks=replace(of.networks, ingress_vip=of.networks.machine[12]))
    with _resolver(of, tmp_path) as server:
        new = tmp_path / "new"
        new.write_bytes(cluster_zone(moved))
        os.replace(new, tmp_path / "cluster.zone")
        for _ in range(240):
            answer = _ask(server, f"x.{of.apps_domain}", "A")
            if answer == [str(moved.networks.ingress_vip)]:
                break
            time.sleep(0.25)
        assert answer == [str(moved.networks.ingress_vip)]

    time.sleep(0.25)


def test_the_corefile_names_the_address_that_nodes_are_told() -> None:
    of = cluster()
    text = infrastructure(of)[COREFILE].content.decode()
    assert f"bind {of.networks.dns}\n" in text
    assert text.startswith(".:53 {")
