"""OpenSSL on leaves: what it refuses is told with its own words."""

import pytest
from tests.support.hardway_judges import after, bench, current
from tests.support.hardway_lint import Subject
from tests.support.hardway_pki import reissue

from umbilical.assets.hardway.cluster import Profile
from umbilical.hardway.judges.certificates import certificate_faults
from umbilical.pki.profiles import Usage

pytestmark = pytest.mark.real("openssl")


def _faults(subject: Subject) -> list[str]:
    with bench(subject) as opened:
        return certificate_faults(opened)


@pytest.mark.parametrize("profile", list(Profile))
def test_every_leaf_verifies(profile: Profile) -> None:
    assert _faults(current(profile)) == []


def test_a_certificate_for_another_purpose_is_refused() -> None:
    subject = current(Profile.KUBERNETES)
    reissue(subject, "etcd-serving-bootstrap", subject.now, usages=(Usage.SERVER,))
    told = " ".join(_faults(subject))
    assert "sslclient" in told
    assert "etcd-serving-bootstrap.crt" in told


def test_another_signers_bundle_is_refused() -> None:
    def swap(subject: Subject) -> None:
        other = subject.assets["tls/aggregator-signer.crt"].content
        subject.write("tls/bundles/etcd-ca-bundle.crt", other)

    told = " ".join(_faults(after(Profile.KUBERNETES, swap)))
    assert "unable to get local issuer certificate" in told
    assert "umbilical-judges" not in told


def test_what_is_missing_is_named() -> None:
    faults = _faults(after(Profile.KUBERNETES, lambda tree: tree.remove("tls/etcd-client.crt")))
    assert "tls/etcd-client.crt is missing" in faults
