"""The hard way's certificates as files, and how they are explained."""

from dataclasses import replace
from ipaddress import ip_network

import pytest
from tests.support import hardway

from umbilical.assets.hardway.certificates import (
    TOPICS,
    anchor,
    cluster_bundles,
    cluster_rows,
    names,
    render_certificates,
)
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.topic import TopicKind
from umbilical.assets.tree import AssetTree
from umbilical.pki.certificate import read_certificates
from umbilical.pki.hardway_row import Scope
from umbilical.pki.hardway_set import Bundle


def rendered(profile: Profile) -> AssetTree:
    return render_certificates(hardway.inputs(profile), AssetTree())


@pytest.mark.parametrize("profile", Profile)
def test_every_row_has_its_two_files_and_every_bundle_one(profile: Profile) -> None:
    cluster = hardway.cluster(profile)
    files = {f"tls/{file}" for row in cluster_rows(cluster) for file in (row.public_file, row.key_file)}
    bundles = {f"tls/bundles/{bundle.value}.crt" for bundle in cluster_bundles(cluster)}
    assert {asset.path for asset in rendered(profile)} == files | bundles


@pytest.mark.parametrize("profile", Profile)
def test_keys_are_secret_and_nothing_else_is(profile: Profile) -> None:
    for asset in rendered(profile):
        is_key = asset.path.endswith(".key")
        assert asset.mode == (0o600 if is_key else 0o644)
        assert (b"PRIVATE KEY" in asset.content) == is_key


def test_the_same_inputs_give_the_same_bytes() -> None:
    one, other = ([(asset.path, asset.content) for asset in rendered(Profile.OPENSHIFT)] for _ in range(2))
    assert one == other


def test_names_follow_from_the_cluster() -> None:
    networks = replace(hardway.cluster().networks, services=ip_network("fd02::/112"))
    found = names(hardway.cluster(Profile.KUBERNETES, masters=1, networks=networks))
    assert found.scope is Scope.KUBERNETES
    assert str(found.service_ip) == "fd02::1"
    assert [one.id for one in found.members] == ["bootstrap", "master-0"]
    assert found.internal_api_name == "api-int.ocp4.example.com"


def test_workers_have_no_certificates_of_ours() -> None:
    assert not [row.id for row in cluster_rows(hardway.cluster()) if "worker" in row.id]


def test_upstream_has_no_metrics_bundle() -> None:
    assert Bundle.ETCD_METRICS_CA not in cluster_bundles(hardway.cluster(Profile.KUBERNETES))
    assert set(cluster_bundles(hardway.cluster(Profile.OPENSHIFT))) == set(Bundle)


def test_a_bundle_and_a_signer_lie_in_different_places() -> None:
    assert anchor("etcd-ca-bundle") == "tls/bundles/etcd-ca-bundle.crt"
    assert anchor("root-ca") == "tls/root-ca.crt"


def test_every_row_and_bundle_has_one_topic_with_all_its_words() -> None:
    named = [topic.name for topic in TOPICS]
    assert len(named) == len(set(named))
    for topic in TOPICS:
        assert all((topic.what, topic.readers, topic.without, topic.by_hand, topic.installer)), topic.name
    for profile in Profile:
        nodes = [node.id for node in hardway.cluster(profile).nodes]
        for row in cluster_rows(hardway.cluster(profile)):
            node = next((one for one in nodes if row.node == one), "")
            assert (row.id.removesuffix(node) + "NODE" if node else row.id) in named


def test_what_is_shown_by_hand_names_files_that_are_there() -> None:
    paths = {f"artifacts/{asset.path}" for asset in rendered(Profile.OPENSHIFT)}
    paths |= {f"artifacts/{asset.path}" for asset in rendered(Profile.KUBERNETES)}
    for topic in TOPICS:
        for word in topic.by_hand.replace("NODE", "master-0").split():
            assert not word.startswith("artifacts/") or word in paths
    assert {topic.kind for topic in TOPICS} == {TopicKind.CERTIFICATE, TopicKind.FILE}


def test_the_bundle_of_servers_holds_three_signers() -> None:
    content = rendered(Profile.OPENSHIFT)["tls/bundles/kube-apiserver-complete-server-ca-bundle.crt"].content
    assert [one.common_name for one in read_certificates(content)] == [
        "kube-apiserver-localhost-signer",
        "kube-apiserver-service-network-signer",
        "kube-apiserver-lb-signer",
    ]
