"""A cluster's file from YAML: all of it, and everything that is wrong with it at once."""

from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import hardway, hardway_config
from tests.support.manifests import json_values

from umbilical.assets.errors import AssetError
from umbilical.assets.hardway.cluster import Cluster, MachinesKind, Profile, Switch
from umbilical.assets.hardway.config_keys import KEYS
from umbilical.assets.hardway.config_reading import key_tree, read_cluster


def read(profile: str = "openshift", **changes: Any) -> Cluster:
    return read_cluster(hardway_config.content(profile, **changes)).cluster


def refusal(profile: str = "openshift", **changes: Any) -> str:
    with pytest.raises(AssetError) as refused:
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


def test_the_upstream_profile_runs_in_the_lab() -> None:
    cluster = read("kubernetes")
    assert (cluster.profile, cluster.machines) == (Profile.KUBERNETES, MachinesKind.LAB)
    assert (cluster.libvirt, cluster.sizes, cluster.networks.dhcp) == (None, {}, None)
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
        "release.repository is for the profile kubernetes only",
        "sizes.master.cpu is unknown; did you mean cpus?",
    ):
        assert told in why


@pytest.mark.parametrize(
    ("profile", "changes", "told"),
    [
        ("kubernetes", {"libvirt__pool": "x"}, "libvirt.pool is for machines libvirt only"),
        ("kubernetes", {"sizes__master__cpus": 2}, "sizes.master.cpus is for machines libvirt only"),
        ("kubernetes", {"networks__dhcp__first": "192.168.126.200"}, "networks.dhcp.first is for machines libvirt"),
        ("kubernetes", {"release__image": "x"}, "release.image is for the profile openshift only"),
        ("openshift", {"release__tag": "lab"}, "release.tag is for the profile kubernetes only"),
        ("openshift", {"machines": "lab"}, "RHCOS does not run in namespaces"),
    ],
)
def test_what_means_nothing_here_is_refused(profile: str, changes: dict[str, Any], told: str) -> None:
    assert told in refusal(profile, **changes)


def test_the_kind_and_the_profile_must_be_said() -> None:
    with pytest.raises(AssetError) as refused:
        read_cluster(b"{}")
    assert refused.value.why == "apiVersion is needed; kind is needed; profile is needed"


@pytest.mark.parametrize("text", [b"", b"a: [", b"- 1\n", b"a: 1\na: 2\n", b"\xff\xfe", b"&a [*a]"])
def test_what_is_no_such_file_is_refused(text: bytes) -> None:
    with pytest.raises(AssetError, match="UMB700"):
        read_cluster(text)


def test_every_key_has_its_place_in_the_tree() -> None:
    def leaves(tree: Any) -> int:
        return sum(leaves(below) if isinstance(below, dict) else 1 for below in tree.values())

    assert leaves(key_tree()) == len(KEYS) == len({key.path for key in KEYS})


@given(value=json_values())
@settings(max_examples=60, deadline=None)
def test_any_document_is_read_or_refused(value: Any) -> None:
    with suppress(AssetError):
        read_cluster(yaml.safe_dump(value).encode())


@given(key=st.sampled_from([key for key in KEYS if not key.is_needed and "[]" not in key.path]), value=json_values())
@settings(max_examples=150, deadline=None)
def test_any_value_of_a_key_is_read_or_refused(key: Any, value: Any) -> None:
    with suppress(AssetError):
        read("kubernetes", **{key.path.replace(".", "__"): value})
