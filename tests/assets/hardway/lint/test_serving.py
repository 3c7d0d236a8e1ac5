"""Who is shown which of kube-apiserver's certificates."""

from tests.support.hardway_lint import Subject, changed
from tests.support.hardway_pki import pods, rendered

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.serving import serving_pairs


def test_names_are_answered_by_sni_and_addresses_by_the_default() -> None:
    found = serving_pairs(rendered(Profile.OPENSHIFT).facts())[0]
    assert found.shown_for("localhost").path == "tls/kube-apiserver-localhost-server.crt"
    assert found.shown_for("api.ocp4.example.com").path == "tls/kube-apiserver-lb-server.crt"
    assert found.shown_for("api-int.ocp4.example.com").path == "tls/kube-apiserver-internal-lb-server.crt"
    assert found.shown_for("192.168.126.100") is found.default
    assert len(found.all) == 4


def test_a_pair_without_names_answers_for_those_in_its_certificate() -> None:
    def unnamed(subject: Subject) -> None:
        subject.replace(pods(subject, "kube-apiserver")[0], ".key:api.ocp4.example.com", ".key")

    found = serving_pairs(changed(rendered(Profile.OPENSHIFT), unnamed).facts())[0]
    assert found.shown_for("api.ocp4.example.com").path == "tls/kube-apiserver-lb-server.crt"


def test_an_address_is_covered_however_it_is_written() -> None:
    default = serving_pairs(rendered(Profile.KUBERNETES).facts())[0].default
    assert default.covers("0:0:0:0:0:0:0:1")
    assert default.covers("172.30.0.1")
    assert not default.covers("172.30.0.2")
    assert not default.covers("api.ocp4.example.com")
