"""Every meeting of a certificate with whoever checks it is found, in the table and in flags."""

from tests.support.hardway_lint import changed
from tests.support.hardway_pki import pods, reissue, rendered

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.trust import chain_faults
from umbilical.pki.profiles import Usage


def test_rendered_clusters_have_no_fault() -> None:
    for profile in Profile:
        assert list(chain_faults(rendered(profile).facts())) == []


def test_etcd_shows_its_serving_certificate_to_itself() -> None:
    broken = changed(
        rendered(Profile.KUBERNETES), lambda subject: reissue(subject, "etcd-serving-master-0", usages=(Usage.SERVER,))
    )
    found = "\n".join(chain_faults(broken.facts()))
    assert "tls/etcd-serving-master-0.crt against tls/bundles/etcd-ca-bundle.crt: it is not for clientAuth" in found


def test_a_flag_that_names_another_bundle_is_found() -> None:
    path = pods(rendered(Profile.OPENSHIFT), "kube-apiserver")[0]
    old, new = "--requestheader-client-ca-file=/etc/kubernetes/secrets/aggregator-ca-bundle.crt", "etcd-ca-bundle.crt"
    broken = changed(
        rendered(Profile.OPENSHIFT),
        lambda subject: subject.replace(path, old, old.replace("aggregator-ca-bundle.crt", new)),
    )
    [found] = chain_faults(broken.facts())
    assert found.startswith("tls/aggregator-client.crt against tls/bundles/etcd-ca-bundle.crt: unable to get issuer")
