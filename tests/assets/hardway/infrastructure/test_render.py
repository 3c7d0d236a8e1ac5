"""The recipe: which files each kind of machines needs, and the same bytes every time."""

import pytest
from tests.support.hardway import cluster
from tests.support.hardway_infrastructure import infrastructure, signers

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.infrastructure import places


def _paths(profile: Profile) -> set[str]:
    return {asset.path for asset in infrastructure(cluster(profile, 1, 0))}


def test_virtual_machines_need_all_of_it() -> None:
    assert _paths(Profile.OPENSHIFT) == {
        *(places.HAPROXY_BOOTSTRAP, places.HAPROXY_FINAL, places.SERVER_CA, places.MACHINE_CONFIG_CA),
        *(places.COREFILE, places.ZONE, places.REVERSE_ZONE, places.HOST_PLAN, places.HOST_SCRIPT, places.NETWORK),
        *("infrastructure/domains/bootstrap.xml", "infrastructure/domains/master-0.xml"),
    }


def test_a_lab_needs_load_balancer_and_names() -> None:
    assert _paths(Profile.KUBERNETES) == {
        *(places.HAPROXY_BOOTSTRAP, places.HAPROXY_FINAL, places.SERVER_CA),
        *(places.COREFILE, places.ZONE, places.REVERSE_ZONE, places.HOST_PLAN),
    }


@pytest.mark.parametrize("profile", list(Profile))
def test_the_same_cluster_gives_the_same_bytes(profile: Profile) -> None:
    first, second = (infrastructure(cluster(profile)) for _ in range(2))
    assert {asset.path: asset for asset in first} == {asset.path: asset for asset in second}


def test_nothing_of_it_is_secret() -> None:
    for asset in infrastructure(cluster()):
        assert b"PRIVATE KEY" not in asset.content
    content = infrastructure(cluster())[places.SERVER_CA].content
    assert signers()["kube-apiserver-service-network-signer"].certificate_pem.strip() in content
