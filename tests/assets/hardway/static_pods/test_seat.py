"""Where a static pod stands, and how files of its node are called."""

from dataclasses import replace
from ipaddress import ip_address

import pytest
from tests.support.hardway_pods import inputs, seat

from umbilical.assets.errors import AssetError
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.inputs import Payload
from umbilical.assets.hardway.static_pods.seat import Seat, bundle, certificate, secret_artifact
from umbilical.pki.hardway_set import Bundle


def test_secrets_have_one_name_in_pods_wherever_they_lie() -> None:
    places = [seat(Profile.KUBERNETES, node).secrets for node in ("bootstrap", "master-0")]
    assert [place.path for place in places] == [
        "/etc/kubernetes/bootstrap-secrets",
        "/etc/kubernetes/static-pod-resources",
    ]
    assert {place.mount_path for place in places} == {"/etc/kubernetes/secrets"}


def test_three_programs_of_openshift_live_in_one_image() -> None:
    openshift, kubernetes = seat(Profile.OPENSHIFT), seat(Profile.KUBERNETES)
    assert openshift.image("kube-scheduler") == openshift.inputs.payload.images["hyperkube"]
    assert openshift.command("kube-scheduler") == ("hyperkube", "kube-scheduler")
    assert openshift.command("etcd") == ("etcd",)
    assert kubernetes.image("kube-scheduler") == "localhost/kube-scheduler:lab"
    assert kubernetes.command("kube-scheduler") == ("kube-scheduler",)


def test_an_image_that_the_release_does_not_have_is_named() -> None:
    given = replace(inputs(Profile.OPENSHIFT), payload=Payload("4.18.0", "", {}))
    with pytest.raises(AssetError) as refusal:
        Seat(given, given.cluster.bootstrap).image("kube-apiserver")
    assert refusal.value.code == "UMB716"
    assert "hyperkube" in refusal.value.why


def test_only_the_bootstrap_node_has_the_tunnel() -> None:
    assert seat(Profile.KUBERNETES).has_tunnel
    assert not seat(Profile.KUBERNETES, "master-0").has_tunnel


def test_a_node_of_ipv6_listens_on_the_address_that_takes_both() -> None:
    given = inputs(Profile.KUBERNETES)
    node = replace(given.cluster.bootstrap, address=ip_address("fd00::10"))
    assert Seat(given, node).every_address == "::"
    assert seat(Profile.KUBERNETES).every_address == "0.0.0.0"


def test_a_file_in_a_pod_leads_back_to_its_artifact() -> None:
    for path, artifact in (
        (certificate("etcd-client"), "tls/etcd-client.crt"),
        (bundle(Bundle.ETCD_CA), "tls/bundles/etcd-ca-bundle.crt"),
    ):
        assert secret_artifact(path.rpartition("/")[2]) == artifact
