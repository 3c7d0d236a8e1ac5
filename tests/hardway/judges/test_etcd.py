"""A real etcd with the generated certificates: it runs, and finds the two faults that a lint of names would not."""

import pytest
from tests.support.hardway_judges import after, bench, current
from tests.support.hardway_lint import Subject
from tests.support.hardway_pki import reissue

from umbilical.assets.hardway.cluster import Profile
from umbilical.hardway.judges.etcd import etcd_faults
from umbilical.pki.profiles import Usage

pytestmark = pytest.mark.real("etcd", "etcdctl")


def _faults(subject: Subject) -> list[str]:
    with bench(subject) as opened:
        return etcd_faults(opened)


@pytest.mark.parametrize("profile", list(Profile))
def test_etcd_runs_with_what_is_rendered(profile: Profile) -> None:
    assert _faults(current(profile)) == []


def test_a_serving_certificate_that_is_no_clients_is_found() -> None:
    subject = current(Profile.KUBERNETES)
    reissue(subject, "etcd-serving-bootstrap", subject.now, usages=(Usage.SERVER,))
    (fault,) = _faults(subject)
    assert "does not take its own serving certificate" in fault


def test_a_key_of_another_is_found_and_no_path_of_ours_is_told() -> None:
    def swap(tree: Subject) -> None:
        tree.write("tls/etcd-serving-bootstrap.key", tree.assets["tls/etcd-peer-bootstrap.key"].content)

    (fault,) = _faults(after(Profile.KUBERNETES, swap))
    assert "private key does not match public key" in fault


def test_what_is_missing_is_named() -> None:
    assert _faults(after(Profile.KUBERNETES, lambda tree: tree.remove("tls/etcd-client.key"))) == [
        "tls/etcd-client.key is missing"
    ]
