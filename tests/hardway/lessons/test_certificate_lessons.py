"""What the lessons on certificates do to them."""

import pytest
from tests.support import hardway
from tests.support.hardway_everything import everything

from umbilical.assets.hardway.cluster import Profile
from umbilical.hardway.lessons.certificate_lessons import LESSONS
from umbilical.hardway.lessons.desk import Desk
from umbilical.pki.certificate import Certificate, read_certificates


def spoiled(lesson_id: str, profile: Profile = Profile.KUBERNETES) -> Desk:
    subject = everything(profile)
    desk = Desk(subject.cluster, subject.assets, hardway.NOW)
    next(lesson for lesson in LESSONS if lesson.id == lesson_id).spoil(desk)
    return desk


def certificate(desk: Desk, row_id: str) -> Certificate:
    return read_certificates(desk.content(f"tls/{row_id}.crt"))[0]


def test_the_serving_certificate_of_etcd_cannot_be_a_client() -> None:
    assert certificate(spoiled("etcd-serving"), "etcd-serving-bootstrap").usages == ("serverAuth",)


def test_localhost_is_no_name_of_the_api_and_its_address_still_is() -> None:
    found = certificate(spoiled("apiserver-localhost"), "kube-apiserver-localhost-server")
    assert found.dns_names == ()
    assert "127.0.0.1" in map(str, found.ip_addresses)


def test_only_the_bootstrap_address_is_missing() -> None:
    desk = spoiled("apiserver-bootstrap-address")
    addresses = set(certificate(desk, "kube-apiserver-service-network-server").ip_addresses)
    assert desk.cluster.bootstrap.address not in addresses
    assert {node.address for node in desk.cluster.masters} <= addresses


@pytest.mark.parametrize("profile", Profile)
def test_the_front_proxy_is_not_among_the_allowed_names(profile: Profile) -> None:
    text = spoiled("proxy-client", profile).content("static-pods/bootstrap/kube-apiserver-bootstrap.yaml").decode()
    assert "--requestheader-allowed-names=system:admin" in text
