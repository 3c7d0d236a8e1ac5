"""A cluster's file from YAML: defaults, computed values, and everything that is wrong with it at once."""

import ipaddress
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import hardway, hardway_config
from tests.support.manifests import json_values

from umbilical.fault import RenderError
from umbilical.hardway.config.cluster import (
    Cluster,
    ClusterProfile,
    MachinesKind,
    Origin,
    ResolvedValue,
    Switch,
    nested,
)
from umbilical.hardway.config.keys import KEYS
from umbilical.hardway.config.reading import key_tree, read_cluster


def read(profile: str = "openshift", **changes: Any) -> Cluster:
    return read_cluster(hardway_config.content(profile, **changes)).cluster


def refusal(profile: str = "openshift", **changes: Any) -> str:
    with pytest.raises(RenderError) as refused:
        read(profile, **changes)
    assert refused.value.code == "UMB700"
    assert str(refused.value).count("\n") == 2
    return refused.value.why


def test_the_least_file_is_the_cluster_of_the_log() -> None:
    cluster, logged = read(), hardway.cluster()
    assert cluster.nodes == logged.nodes
    assert cluster.networks == logged.networks
    assert (cluster.domain, cluster.machines, cluster.sizes) == (logged.domain, logged.machines, logged.sizes)
    assert cluster.libvirt == logged.libvirt
    assert cluster.release.version == "4.18.0"
    assert "@sha256:5bca0266" in cluster.release.image


def test_the_upstream_profile_runs_in_the_lab_with_its_resolver_on_the_node_that_stands_for_the_host() -> None:
    cluster = read("kubernetes")
    assert (cluster.profile, cluster.machines) == (ClusterProfile.KUBERNETES, MachinesKind.LAB)
    assert (cluster.libvirt, cluster.sizes, cluster.networks.dhcp) == (None, {}, None)
    assert (str(cluster.networks.gateway), str(cluster.networks.dns)) == ("192.168.126.1", "192.168.126.2")
    assert (cluster.release.repository, cluster.release.tag) == ("localhost", "lab")
    assert [str(node.pod_network) for node in cluster.masters[:2]] == ["10.128.0.0/24", "10.128.1.0/24"]


@pytest.mark.parametrize(
    ("written", "meant"), [("on", Switch.ON), ("off", Switch.OFF), ("'on'", Switch.ON), ("auto", Switch.AUTO)]
)
def test_on_and_off_need_no_quotes(written: str, meant: Switch) -> None:
    text = hardway_config.content() + f"konnectivity: {written}\n".encode()
    assert read_cluster(text).cluster.konnectivity is meant


def test_an_unknown_key_is_refused_with_the_nearest_name() -> None:
    assert "nmae is unknown; did you mean name?" in refusal(nmae="x")
    assert "networks.apivip is unknown; did you mean networks.apiVip" not in refusal(networks__apivip="192.168.126.5")
    assert "networks.apivip is unknown; did you mean apiVip?" in refusal(networks__apivip="192.168.126.5")
    why = refusal(nodes__masters__machines=[{"adress": "192.168.126.9"}])
    assert "nodes.masters.machines[0].adress is unknown; did you mean address?" in why


def test_all_that_is_wrong_is_told_at_once() -> None:
    why = refusal(
        name="Not A Label",
        networks__machine="192.168.126.7/24",
        nodes__masters__count=12,
        konnectivity="perhaps",
        release__repository="localhost",
        sizes__master__cpu=4,
    )
    assert why.count(";") >= 5
    for told in (
        "name 'Not A Label'",
        "networks.machine '192.168.126.7/24'",
        "nodes.masters.count 12",
        "konnectivity 'perhaps'",
        "release.repository is only valid with profile: kubernetes",
        "sizes.master.cpu is unknown; did you mean cpus?",
    ):
        assert told in why


@pytest.mark.parametrize(
    ("profile", "changes", "told"),
    [
        # What means nothing here.
        ("kubernetes", {"libvirt__pool": "x"}, "libvirt.pool is only valid with machines: libvirt"),
        ("kubernetes", {"sizes__master__cpus": 2}, "sizes.master.cpus is only valid with machines: libvirt"),
        (
            "kubernetes",
            {"networks__dhcp__first": "192.168.126.200"},
            "networks.dhcp.first is only valid with",
        ),
        ("kubernetes", {"release__image": "x"}, "release.image is only valid with profile: openshift"),
        ("openshift", {"release__tag": "lab"}, "release.tag is only valid with profile: kubernetes"),
        ("openshift", {"release__tunnelArchive": "a.tar"}, "release.tunnelArchive is only valid with machines: lab"),
        ("openshift", {"machines": "lab"}, "RHCOS does not run in namespaces"),
        # What cannot be addressed.
        ("openshift", {"networks__machine": "192.168.126.0/26"}, "no address number 100; set nodes.bootstrap.address"),
        ("openshift", {"networks__machine": "fd00::/64"}, "networks.pods 10.128.0.0/14 has another address family"),
        ("openshift", {"networks__gateway": "fd00::1"}, "networks.gateway fd00::1 has another address family"),
        ("openshift", {"nodes__workers__firstAddress": "fd00::1"}, "nodes.workers.firstAddress fd00::1 has another"),
        (
            "openshift",
            {"nodes__masters__machines": [{"address": "fd00::1"}]},
            "machines[0].address fd00::1 has another",
        ),
        ("openshift", {"nodes__workers__firstAddress": "255.255.255.255"}, "no address is left for worker-1"),
        ("openshift", {"networks__services": "172.30.0.0/29"}, "networks.services 172.30.0.0/29 is too small"),
        # A pod network that has no piece for each node, where we cut it.
        ("kubernetes", {"networks__hostPrefix": 14}, "14 does not divide networks.pods 10.128.0.0/14"),
        ("kubernetes", {"networks__hostPrefix": 33}, "networks.hostPrefix 33 does not divide"),
        ("kubernetes", {"networks__hostPrefix": 16}, "into enough CIDRs: 5 nodes, 4 CIDRs"),
    ],
)
def test_what_cannot_be_is_refused(profile: str, changes: dict[str, Any], told: str) -> None:
    assert told in refusal(profile, **changes)


def test_the_kind_and_the_profile_must_be_said() -> None:
    with pytest.raises(RenderError) as refused:
        read_cluster(b"{}")
    assert refused.value.why == "apiVersion is needed; kind is needed; profile is needed"


@pytest.mark.parametrize("text", [b"", b"a: [", b"- 1\n", b"a: 1\na: 2\n", b"\xff\xfe", b"&a [*a]"])
def test_what_is_no_such_file_is_refused(text: bytes) -> None:
    with pytest.raises(RenderError, match="UMB700"):
        read_cluster(text)


def test_every_key_has_its_place_in_the_tree() -> None:
    def leaves(tree: Any) -> int:
        return sum(leaves(below) if isinstance(below, dict) else 1 for below in tree.values())

    assert leaves(key_tree()) == len(KEYS) == len({key.path for key in KEYS})


@given(value=json_values())
@settings(max_examples=60, deadline=None)
def test_any_document_is_read_or_refused(value: Any) -> None:
    with suppress(RenderError):
        read_cluster(yaml.safe_dump(value).encode())


@given(key=st.sampled_from([key for key in KEYS if not key.is_needed and "[]" not in key.path]), value=json_values())
@settings(max_examples=150, deadline=None)
def test_any_value_of_a_key_is_read_or_refused(key: Any, value: Any) -> None:
    with suppress(RenderError):
        read("kubernetes", **{key.path.replace(".", "__"): value})


def test_addresses_follow_the_machine_network_or_the_first_of_their_group() -> None:
    cluster = read(networks__machine="10.7.0.0/16")
    assert str(cluster.networks.api_vip) == "10.7.0.10"
    assert [str(node.address) for node in cluster.nodes] == [
        *("10.7.0.100", "10.7.0.101", "10.7.0.102", "10.7.0.103", "10.7.0.110", "10.7.0.111")
    ]
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


def test_values_become_plain() -> None:
    values = (
        ClusterProfile.OPENSHIFT,
        ("a", ipaddress.ip_address("10.0.0.1")),
        ipaddress.ip_network("10.0.0.0/8"),
        True,
        None,
    )
    assert [ResolvedValue("p", one, Origin.GIVEN).plain for one in values] == [
        *("openshift", ["a", "10.0.0.1"], "10.0.0.0/8", True, None)
    ]


def test_values_become_a_tree() -> None:
    values = [ResolvedValue(path, number, Origin.GIVEN) for number, path in enumerate(("a", "b.c", "b.d.e"))]
    assert nested(tuple(values)) == {"a": 0, "b": {"c": 1, "d": {"e": 2}}}
