"""Defaults and computed values, and what cannot be resolved."""

import ipaddress
from typing import Any

import pytest
from tests.support import hardway_config

from umbilical.assets.errors import AssetError
from umbilical.assets.hardway.cluster import Cluster
from umbilical.assets.hardway.config_reading import read_cluster
from umbilical.assets.hardway.origins import Origin


def read(profile: str = "openshift", **changes: Any) -> Cluster:
    return read_cluster(hardway_config.content(profile, **changes)).cluster


def refusal(profile: str = "openshift", **changes: Any) -> str:
    with pytest.raises(AssetError) as refused:
        read(profile, **changes)
    return refused.value.why


def test_addresses_follow_the_machine_network() -> None:
    cluster = read(networks__machine="10.7.0.0/16")
    assert str(cluster.networks.api_vip) == "10.7.0.10"
    assert [str(node.address) for node in cluster.nodes] == [
        *("10.7.0.100", "10.7.0.101", "10.7.0.102", "10.7.0.103", "10.7.0.110", "10.7.0.111")
    ]


def test_the_lab_has_its_resolver_on_the_node_that_stands_for_the_host() -> None:
    networks = read("kubernetes").networks
    assert (str(networks.gateway), str(networks.dns)) == ("192.168.126.1", "192.168.126.2")


def test_a_first_address_moves_all_of_a_group() -> None:
    cluster = read(nodes__workers={"firstAddress": "192.168.126.60", "count": 3})
    assert [str(node.address) for node in cluster.workers] == ["192.168.126.60", "192.168.126.61", "192.168.126.62"]


def test_single_machines_are_described_in_order() -> None:
    machines = [{}, {"address": "192.168.126.77", "mac": "52:54:00:00:00:01", "interface": "enp1s0"}]
    first, second, third = read(nodes__masters={"count": 3, "machines": machines}).masters
    assert (str(first.address), first.mac) == ("192.168.126.101", "")
    assert (str(second.address), second.mac, second.interface) == ("192.168.126.77", "52:54:00:00:00:01", "enp1s0")
    assert str(third.address) == "192.168.126.103"


def test_listed_machines_are_counted() -> None:
    assert len(read(nodes__workers__machines=[{}, {}, {}, {}]).workers) == 4
    assert "has 2 entries, and nodes.workers.count is 1" in refusal(nodes__workers={"count": 1, "machines": [{}, {}]})


def test_no_workers_are_a_number_too() -> None:
    cluster = read(nodes__workers__count=0)
    assert (cluster.workers, cluster.routers) == ((), cluster.masters)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"networks__machine": "192.168.126.0/26"}, "has no address number 100; give nodes.bootstrap.address"),
        ({"networks__machine": "fd00::/64"}, "networks.pods 10.128.0.0/14 is of another address family"),
        ({"networks__gateway": "fd00::1"}, "networks.gateway fd00::1 is of another address family"),
        (
            {"nodes__workers__firstAddress": "fd00::1"},
            "nodes.workers.firstAddress fd00::1 is of another",
        ),
        ({"nodes__masters__machines": [{"address": "fd00::1"}]}, "nodes.masters.machines[0].address fd00::1 is of"),
        ({"nodes__workers__firstAddress": "255.255.255.255"}, "no address follows for worker-1"),
        ({"networks__services": "172.30.0.0/29"}, "networks.services 172.30.0.0/29 is too small"),
    ],
)
def test_what_cannot_be_addressed_is_refused(changes: dict[str, Any], told: str) -> None:
    assert told in refusal(**changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"networks__hostPrefix": 14}, "networks.hostPrefix 14 does not cut networks.pods 10.128.0.0/14 into pieces"),
        ({"networks__hostPrefix": 33}, "networks.hostPrefix 33 does not cut"),
        ({"networks__hostPrefix": 16}, "into pieces for 5 nodes: there are 4"),
    ],
)
def test_a_pod_network_that_has_no_piece_for_each_node_is_refused_where_we_cut_it(
    changes: dict[str, Any], told: str
) -> None:
    assert told in refusal("kubernetes", **changes)


def test_a_cluster_of_the_other_family_can_be() -> None:
    cluster = read(
        "kubernetes",
        networks={"machine": "fd00:1::/64", "pods": "fd00:2::/48", "services": "fd00:3::/112", "hostPrefix": 64},
    )
    assert cluster.networks.api_vip == ipaddress.ip_address("fd00:1::a")
    assert cluster.masters[1].pod_network == ipaddress.ip_network("fd00:2:0:1::/64")


def test_an_own_release_has_no_version_until_it_is_read() -> None:
    assert read(release__directory="release").release.version == ""
    assert read(release__directory="release").release.image == ""
    both = read(release={"directory": "release", "image": "quay.io/x@sha256:00", "version": "4.18.1"}).release
    assert (both.directory, both.image, both.version) == ("release", "quay.io/x@sha256:00", "4.18.1")


def test_names_in_libvirt_follow_the_cluster() -> None:
    libvirt = read(name="one").libvirt
    assert libvirt is not None
    assert (libvirt.network, libvirt.bridge, libvirt.pool_directory) == (
        *("one", "virbr-one", "/var/lib/libvirt/images/one"),
    )


def test_every_value_tells_where_it_comes_from() -> None:
    values = {one.path: one for one in read_cluster(hardway_config.content(name="one")).values}
    assert values["name"].origin is Origin.GIVEN
    assert values["baseDomain"].origin is Origin.DEFAULT
    assert (values["domain"].origin, values["domain"].source) == (Origin.COMPUTED, "name, baseDomain")
    assert values["networks.apiVip"].source == "networks.machine, number 10"
    assert values["apiUrl"].plain == "https://api.one.example.com:6443"
    assert all(one.source for one in values.values() if one.origin is Origin.COMPUTED)


def test_the_origin_of_a_listed_machine_is_its_entry() -> None:
    text = hardway_config.content(nodes__workers__machines=[{"address": "192.168.126.77"}])
    values = {one.path: one for one in read_cluster(text).values}
    found = values["node.worker-0.address"]
    assert (found.origin, found.source) == (Origin.GIVEN, "nodes.workers.machines[0].address")
