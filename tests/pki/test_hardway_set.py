"""A made set: pairs by id, and bundles of the signers that it has."""

import pytest
from tests.support.hardway import hardway_set

from umbilical.assets.hardway.cluster import Profile
from umbilical.pki.certificate import read_certificates
from umbilical.pki.hardway_set import SIGNERS, Bundle, HardwaySet


def test_pairs_are_found_by_the_ids_of_their_rows() -> None:
    made = hardway_set(Profile.KUBERNETES)
    assert "kube-proxy" in made
    assert "root-ca" not in made
    assert made["kube-proxy"].key.startswith(b"-----BEGIN PRIVATE KEY-----")
    with pytest.raises(KeyError):
        made["root-ca"]


def test_a_bundle_holds_its_signers_in_order() -> None:
    made = hardway_set(Profile.OPENSHIFT)
    for bundle in Bundle:
        assert [one.common_name for one in read_certificates(made.bundle(bundle))] == list(SIGNERS[bundle])


def test_a_bundle_of_nothing_is_empty() -> None:
    assert hardway_set(Profile.KUBERNETES).bundle(Bundle.ETCD_METRICS_CA) == b""


def test_a_set_is_no_view_of_what_it_was_made_from() -> None:
    pairs = {"etcd-signer": hardway_set()["etcd-signer"]}
    made = HardwaySet(pairs)
    pairs.clear()
    assert list(made) == ["etcd-signer"]


def test_keys_stay_out_of_what_is_printed() -> None:
    assert "PRIVATE" not in repr(hardway_set()["etcd-signer"])
