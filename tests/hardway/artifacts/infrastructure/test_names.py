"""Names and places of the host: records, zones, the pool's files, and that the real resolver takes its files."""

import contextlib
import ipaddress
import os
import re
import time
import uuid
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
from tests.support.hardway_infrastructure import infrastructure, loopback_cluster, signers

import peers
from umbilical.hardway.artifacts.infrastructure import places
from umbilical.hardway.artifacts.infrastructure.zones import (
    cluster_zone,
    corefile,
    etcd_names,
    host_records,
    reverse_zone,
    reverse_zone_name,
)
from umbilical.hardway.config.cluster import Cluster, ClusterProfile, MachinesKind
from umbilical.host.processes import start

PORT: Final = 10053
# A datagram to a resolver that is not there yet is lost: ask again soon, and often enough for a busy machine.
TRY_SECONDS: Final = 1.0
TRIES: Final = 60


def test_masters_are_etcd_members_too_and_workers_are_not() -> None:
    of = cluster(masters=1, workers=1)
    by_address = {record.address: record.names for record in host_records(of)}
    assert by_address[of.masters[0].address] == ("master-0.ocp4.example.com", "etcd-0.ocp4.example.com")
    assert by_address[of.workers[0].address] == ("worker-0.ocp4.example.com",)
    assert etcd_names(of) == ["etcd-0.ocp4.example.com"]


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
    for path in (places.ZONE, places.REVERSE_ZONE):
        (folder / Path(path).name).write_bytes(tree[path].content)
    program = peers.binary("coredns")
    assert program is not None
    command = [str(program), *places.resolver_command()[1:]]
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
@pytest.mark.parametrize("profile", list(ClusterProfile))
def test_coredns_answers_every_name_of_the_cluster(profile: ClusterProfile, tmp_path: Path) -> None:
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
    of = loopback_cluster(ClusterProfile.KUBERNETES)
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


def test_the_corefile_names_the_address_that_nodes_are_told() -> None:
    of = cluster()
    text = infrastructure(of)[places.COREFILE].content.decode()
    assert f"bind {of.networks.dns}\n" in text
    assert text.startswith(".:53 {")


def test_all_that_a_machine_reads_lies_in_the_pool() -> None:
    of = cluster()
    assert of.libvirt is not None
    assert places.base_iso(of.libvirt) == "/var/lib/libvirt/images/ocp4/rhcos-live.iso"
    for node in of.nodes:
        files = places.machine_places(of, of.libvirt, node)
        for path in (files.disk, files.iso, files.ignition):
            assert path.startswith(f"/var/lib/libvirt/images/ocp4/ocp4-{node.id}.")


def test_a_machine_keeps_its_card_and_no_two_share_one() -> None:
    of = cluster()
    addresses = [places.machine_address(of, node) for node in of.nodes]
    assert addresses == [places.machine_address(cluster(), node) for node in of.nodes]
    assert len(set(addresses)) == len(addresses)
    assert all(re.fullmatch(r"52:54:00(:[0-9a-f]{2}){3}", address) for address in addresses)
    assert places.machine_address(of, replace(of.nodes[0], mac="02:00:00:00:00:07")) == "02:00:00:00:00:07"


def test_identifiers_are_well_formed_and_differ_between_clusters() -> None:
    first, second = cluster(), cluster(name="other")
    assert uuid.UUID(places.stable_uuid(first, "master-0")).version == 8
    assert places.stable_uuid(first, "master-0") == places.stable_uuid(cluster(), "master-0")
    assert len({places.stable_uuid(of, what) for of in (first, second) for what in ("network", "master-0")}) == 4


def test_a_lab_has_a_load_balancer_of_its_own_and_a_virtualisation_host_a_service() -> None:
    lab, host = cluster(ClusterProfile.KUBERNETES), cluster()
    assert places.balancer_places(lab) == places.OWN_PLACES
    assert places.balancer_places(host) == places.SERVICE_PLACES
    assert places.libvirt_of(lab) is None
    assert places.libvirt_of(replace(lab, machines=MachinesKind.LIBVIRT)) == lab.libvirt


def test_commands_name_what_is_written() -> None:
    assert places.balancer_command("/run/x")[-1] == places.OWN_PLACES.config
    assert "/run/x" in places.balancer_command("/run/x")
    assert places.resolver_command() == ("coredns", "-conf", "Corefile")


def test_a_lab_needs_load_balancer_and_names_and_virtual_machines_more() -> None:
    lab, machines = (
        {asset.path for asset in infrastructure(cluster(profile, 1, 0))}
        for profile in (ClusterProfile.KUBERNETES, ClusterProfile.OPENSHIFT)
    )
    assert lab == {
        *(places.HAPROXY_BOOTSTRAP, places.HAPROXY_FINAL, places.SERVER_CA),
        *(places.COREFILE, places.ZONE, places.REVERSE_ZONE, places.HOST_PLAN),
    }
    assert machines - lab == {
        *(places.MACHINE_CONFIG_CA, places.HOST_SCRIPT, places.NETWORK),
        *("infrastructure/domains/bootstrap.xml", "infrastructure/domains/master-0.xml"),
    }
    assert lab < machines


def test_nothing_of_it_is_secret() -> None:
    for asset in infrastructure(cluster()):
        assert b"PRIVATE KEY" not in asset.content
    content = infrastructure(cluster())[places.SERVER_CA].content
    assert signers()["kube-apiserver-service-network-signer"].certificate_pem.strip() in content
